"""What the steps of one assignment share while the agent runs: its record, its latest orders, its transfers.

Invariant: orders only go forward (PREPARE → RUN → STOP → ASSEMBLE → CLEAR); a late or doubled message changes nothing.
A gang whose members are all on this agent goes on by itself when all of them are ready.
"""

import asyncio
import time
from collections.abc import Callable

from trainshed_worker.agent.context import AgentContext
from trainshed_worker.agent.journal import Journal
from trainshed_worker.agent.networks import InstanceNetwork, credentials_file, write_credentials
from trainshed_worker.agent.records import ACTION_ORDER, Record
from trainshed_worker.agent.spares import Maker
from trainshed_worker.contract import DEFAULT_CHECKPOINTS, InstanceLayout
from trainshed_worker.contract.layout import ML
from trainshed_worker.data import Cancellation, CheckpointSync, ObjectStore, RoleCache
from trainshed_worker.environments import PythonEnvironment
from trainshed_worker.launchers import LaunchPlan
from trainshed_worker.logs import LogShipper, Source, definitions
from trainshed_worker.protocol import Action, Assignment, FailureCause
from trainshed_worker.sandbox import SandboxSpec

PROGRESS_SECONDS = 1.0
MAX_RUNTIME = "max-runtime"


def layout_for(context: AgentContext, assignment: Assignment) -> InstanceLayout:
    """Where the assignment's files are, CheckpointConfig.LocalPath considered."""
    from pathlib import PurePosixPath

    root = context.layout(assignment.id).root
    config = assignment.request.get("CheckpointConfig") or {}
    return InstanceLayout(root, PurePosixPath(config.get("LocalPath") or DEFAULT_CHECKPOINTS))


class AssignmentState:
    """One assignment in this process. Used on the event loop; progress callbacks may come from any thread."""

    def __init__(self, context: AgentContext, record: Record) -> None:
        self.context = context
        self.record = record
        self.loop = asyncio.get_running_loop()
        self.layout = layout_for(context, record.data.assignment)
        self.cancellation = Cancellation()
        """Stops downloads and the installation of requirements."""
        self.abandon = Cancellation()
        """Stops uploads: set for CLEAR alone."""
        self.store = ObjectStore(self.assignment.object_store, self.cancellation)
        self.uploads = self.store.with_cancellation(self.abandon)
        self.changed = asyncio.Condition()
        self.network: InstanceNetwork | None = None
        self.environment: PythonEnvironment | None = None
        self.started_like: tuple[SandboxSpec, Maker] | None = None
        """How its processes were started, for a spare sandbox for the slot's next ones."""
        self.plan: LaunchPlan | None = None
        self.installing = False
        """The environment is being made, with requirements to be installed."""
        self.journal = Journal(self.layout.instance / "spool", self.assignment.host.name)
        self.shipper = LogShipper(
            Source(self.assignment.job_name, self.assignment.attempt_id, self.assignment.host.name),
            self.layout.spool,
            self.layout.state,
            context.access,
            context.http,
            definitions(self.assignment.request),
            self._acknowledged,
        )
        self._last_progress = 0.0

    @property
    def assignment(self) -> Assignment:
        return self.record.data.assignment

    @property
    def cache(self) -> RoleCache | None:
        """The node's cache as the job's role sees it."""
        cache, role = self.context.cache, self.assignment.request.get("RoleArn")
        return cache.for_role(role) if cache is not None and role else None

    def wants(self, action: Action) -> bool:
        """True where the service wants `action` or something beyond it, or the deadline has made STOP of it."""
        if action is Action.STOP and self.past_deadline():
            return True
        return ACTION_ORDER.index(self.assignment.action) >= ACTION_ORDER.index(action)

    def past_deadline(self) -> bool:
        deadline = self.assignment.deadline
        return deadline is not None and time.time() >= deadline

    @property
    def stopping(self) -> bool:
        return self.wants(Action.STOP)

    async def accept(self) -> None:
        """Let reports tell of the assignment when it is on disk; what does not need that goes on meanwhile."""
        try:
            await asyncio.to_thread(self.record.sync)
        except FileNotFoundError:
            return  # it has been cleared meanwhile
        except OSError as error:
            self.record.fail(FailureCause.NODE, f"the node's disk does not take the assignment: {error}")
        self.record.accepted = True
        self.report_start()

    def report_start(self) -> None:
        """Tell of a step on the way to the processes: soon, where the service has something to do for it."""
        if self.assignment.start_when_ready and self.record.report.failure is None:
            self.context.report_later()
        else:
            self.context.report_soon()

    @property
    def alone(self) -> bool:
        """No other host has a part in the job: nobody waits to hear how far this one is."""
        return len(self.assignment.hosts) == 1

    def report_end(self) -> None:
        """Tell of a step on the way from the processes' end to the artifacts: soon, where others have to act on it."""
        if self.alone:
            self.context.report_later()
        else:
            self.context.report_soon()

    async def update(self, desired: Assignment) -> None:
        """Take the newest orders and credentials; stored before anything acts on them."""
        current = self.assignment
        merged = desired
        if ACTION_ORDER.index(desired.action) < ACTION_ORDER.index(current.action):
            merged = desired.model_copy(update={"action": current.action, "end_reason": current.end_reason})
        if merged == current:
            return
        if merged.object_store != current.object_store:
            self.store.renew(merged.object_store)
            if credentials_file(self.layout).exists():
                await asyncio.to_thread(write_credentials, self.layout, merged.object_store)
        self.record.data.assignment = merged
        # the service says again what is lost with the machine; that a job is to end must outlive both
        self.record.save(sync=self.stopping)
        await self._apply_orders()

    async def wait_for_start(self) -> None:
        """Return when the processes may start: the service says so, or every member of a gang that is all here is
        ready. Whoever is ready last lets the others know."""
        gangs, wanted = self.context.gangs, self.assignment
        if wanted.start_when_ready:
            await gangs.ready(wanted.attempt_id, wanted.id, len(wanted.hosts), self.look_again)
        await self.wait_for(lambda: self.wants(Action.RUN) or gangs.is_complete(wanted.attempt_id))

    async def clear(self) -> None:
        """Order CLEAR: the service no longer names the assignment."""
        if not self.wants(Action.CLEAR):
            await self.update(self.assignment.model_copy(update={"action": Action.CLEAR}))

    async def _apply_orders(self) -> None:
        if self.stopping:
            self.cancellation.cancel()
        if self.wants(Action.CLEAR):
            self.abandon.cancel()
        await self.look_again()

    async def look_again(self) -> None:
        """Whoever waits for something looks whether it is there."""
        async with self.changed:
            self.changed.notify_all()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds; looks again after each change of orders and at the deadline."""
        async with self.changed:
            while not condition():
                deadline = self.assignment.deadline
                left = None if deadline is None or self.past_deadline() else max(0.01, deadline - time.time())
                try:
                    async with asyncio.timeout(left):
                        await self.changed.wait()
                except TimeoutError:
                    if self.past_deadline():
                        self.cancellation.cancel()

    def shut_down(self) -> None:
        """The agent's process ends: let threads return soon; nothing of the assignment is changed."""
        self.cancellation.cancel()
        self.abandon.cancel()

    def say(self, text: str) -> None:
        """A line of ours in the job's log."""
        self.journal.write(text)

    def notice(self, text: str) -> None:
        """A sentence for describe and for the log, once. From any thread."""
        self.loop.call_soon_threadsafe(self._notice, text)

    def _notice(self, text: str) -> None:
        if self.record.notice(text):
            self.record.save()
            self.say(text)
            self.context.report_soon()

    def progress(self, text: str) -> None:
        """What is being done now, for the report; at most one a second. From any thread."""
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_SECONDS:
            self._last_progress = now
            self.loop.call_soon_threadsafe(self._set_message, text)

    def trouble(self, text: str) -> None:
        """Why it does not go on at the moment (a store that is away). From any thread."""
        self.loop.call_soon_threadsafe(self._set_message, text)

    def _set_message(self, text: str | None) -> None:
        if self.record.report.message != text:
            self.record.report.message = text
            self.record.touch()
            self.context.report_soon()

    def _acknowledged(self, lines: int) -> None:
        self.record.report.log_lines = lines
        self.record.touch()

    def checkpoints(self, store: ObjectStore) -> CheckpointSync | None:
        """The checkpoint directory's sync, None for a job without CheckpointConfig."""
        uri = (self.assignment.request.get("CheckpointConfig") or {}).get("S3Uri")
        if not uri:
            return None
        layout = self.layout
        if layout.checkpoints_outside_ml:
            root, relative = layout.checkpoints, ""
        else:
            root, relative = layout.ml, str(layout.checkpoint_path.relative_to(ML))
        return CheckpointSync(store, uri, root, relative, layout.state, str(layout.checkpoint_path))
