"""One assignment from acceptance to the empty slot, resumed from disk where an earlier process of the agent stood.

Invariant: whatever goes wrong ends in a report with a failure and in a slot that can be cleared; only CLEAR, or the
service's not naming the assignment any more, takes it off the machine.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from trainshed_worker.agent.execution import execute, plan_start
from trainshed_worker.agent.finishing import empty, finish
from trainshed_worker.agent.preparation import prepare
from trainshed_worker.agent.state import MAX_RUNTIME, AssignmentState
from trainshed_worker.data import Cancelled, DataError
from trainshed_worker.launchers import LaunchRefused
from trainshed_worker.protocol import Action, Assignment, AssignmentReport, FailureCause, Phase
from trainshed_worker.sandbox import SandboxError, attach

LONGEST_END = 120.0
"""Seconds that a step may take to notice CLEAR (an S3 read that hangs, a process that is being killed)."""
_log = logging.getLogger(__name__)


class AssignmentRunner:
    """Owns the task of one assignment. `on_end(reason)` is called when the slot is empty (None) or quarantined."""

    def __init__(self, state: AssignmentState, on_end: Callable[[str | None], None]) -> None:
        self.state = state
        self._on_end = on_end
        self._task = asyncio.create_task(self._run(), name=f"assignment {state.assignment.id}")

    @property
    def assignment(self) -> Assignment:
        return self.state.assignment

    @property
    def report(self) -> AssignmentReport:
        return self.state.record.report

    async def stop_watching(self) -> None:
        """The agent's process ends; processes of the job go on."""
        self.state.shut_down()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        shipping = asyncio.create_task(self.state.shipper.run())
        work = asyncio.create_task(self._work())
        try:
            await self.state.wait_for(lambda: self.state.wants(Action.CLEAR))
            # Its threads look at their flags: files must not be deleted under a download that still runs.
            await asyncio.wait({work}, timeout=LONGEST_END)
        finally:
            work.cancel()
            shipping.cancel()
            await asyncio.gather(work, shipping, return_exceptions=True)
        self.state.context.gangs.leave(self.assignment.attempt_id, self.assignment.id)
        try:
            reason = await empty(self.state)
        except Exception as error:  # noqa: BLE001 - an unproven slot must be quarantined, whatever the fault
            _log.exception("assignment %s", self.assignment.id)
            reason = f"emptying failed: {type(error).__name__}: {error}"
        if reason is not None:
            _log.error("assignment %s: slot is quarantined: %s", self.assignment.id, reason)
        self._on_end(reason)

    async def _work(self) -> None:
        record = self.state.record
        try:
            if not record.at_least(Phase.EXITED):
                await self._until_exit()
            await finish(self.state)
        except Cancelled:
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours must reach the job's failure reason
            _log.exception("assignment %s", self.assignment.id)
            record.fail(FailureCause.NODE, f"the node agent failed: {type(error).__name__}: {error}")
            record.move(Phase.FINISHED if self.assignment.is_lead else Phase.PART_UPLOADED)
            self.state.context.report_soon()

    async def _until_exit(self) -> None:
        state = self.state
        try:
            running = await asyncio.to_thread(attach, state.layout.instance) is not None
            if not running and not state.stopping:
                await prepare(state)
                await plan_start(state)
                await state.wait_for_start()
            await execute(state)
        except Cancelled:
            _log.info("assignment %s was stopped before its start", self.assignment.id)
        except DataError as error:
            state.record.fail(error.cause, error.message)
            state.say(error.message)
        except LaunchRefused as refusal:
            state.record.fail(refusal.cause, refusal.message)
            state.say(refusal.message)
        except SandboxError as error:
            state.record.fail(FailureCause.NODE, f"the sandbox of {self.assignment.host.name} failed: {error}")
        if state.past_deadline() and not state.assignment.end_reason and state.record.report.end_reason is None:
            state.record.report.end_reason = MAX_RUNTIME
        if not state.record.at_least(Phase.EXITED):
            state.record.move(Phase.EXITED)
            state.context.report_soon()
