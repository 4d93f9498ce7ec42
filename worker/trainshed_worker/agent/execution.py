"""The user's processes: started once, watched, stopped on demand; their end is on disk before anybody learns of it.

Invariant: processes are started at most once per assignment: the record says "started" before the sandbox is asked (and
lastingly before anybody hears that they run), and the sandbox gives the running instance for a folder in which one was
started.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from trainshed_worker.agent.failure import exit_failure
from trainshed_worker.agent.instance import launch_plan, sandbox_spec
from trainshed_worker.agent.spares import Maker
from trainshed_worker.agent.state import MAX_RUNTIME, AssignmentState
from trainshed_worker.agent.usage import sample_usage
from trainshed_worker.data import Cancelled, CheckpointSync, DataError
from trainshed_worker.protocol import Action, Phase
from trainshed_worker.sandbox import ExitRecord, attach, start
from trainshed_worker.sandbox.handle import InstanceHandle

SYNC_SECONDS = 5.0
WAIT_SLICE = 2.0


async def execute(state: AssignmentState) -> None:
    """From READY to EXITED. LaunchRefused, SandboxError where it cannot be started."""
    handle = await asyncio.to_thread(attach, state.layout.instance)
    if handle is None:
        if state.stopping:
            return
        handle = await _start(state)
    if not state.record.at_least(Phase.RUNNING):
        started_at = (await asyncio.to_thread(handle.state)).started_at
        state.record.move(Phase.RUNNING, started_at=started_at or time.time())
        state.report_start()
    async with _background(state, handle):
        record = await _watch(state, handle)
    _note_exit(state, record)


async def plan_start(state: AssignmentState) -> None:
    """What this host is going to start, while it may have to wait for others. LaunchRefused."""
    assert state.network is not None and state.environment is not None
    if state.network.mode != "host":  # over several machines the others' addresses are not known yet
        state.plan = await asyncio.to_thread(
            launch_plan, state.assignment, state.layout, state.environment, state.network, state.context.facts
        )


async def _start(state: AssignmentState) -> InstanceHandle:
    assert state.network is not None and state.environment is not None
    plan = state.plan
    if state.network.mode == "host":  # by now every host's address is known
        token = state.record.data.credential_token
        state.network = await state.context.networks.join(state.assignment, state.layout, token)
    if plan is None:
        plan = await asyncio.to_thread(
            launch_plan, state.assignment, state.layout, state.environment, state.network, state.context.facts
        )
    for text in plan.notices:
        state._notice(text)
    state.journal.flush()
    spec = sandbox_spec(
        state.assignment,
        state.layout,
        state.environment,
        state.network,
        plan,
        state.record.data.slot,
        state.context.facts,
        state.context.pool_caches.path(state.assignment.cluster_id, state.record.data.slot),
    )
    state.record.data.ranked = any(command.local_rank is not None for command in plan.commands)
    state.record.data.started = True
    state.record.save(sync=False)
    stored = asyncio.create_task(asyncio.to_thread(state.record.sync))  # beside the start
    begin = time.time()
    parent, reason = None, ""
    role = str(state.assignment.request.get("RoleArn"))
    if not all(command.fresh for command in spec.commands):
        parent, reason = state.context.parents.take(state.environment.base, role)
    maker = Maker(state.environment.base.fingerprint, role, parent)
    spare = await asyncio.to_thread(state.context.spares.take, spec, maker)
    state.started_like = (spec, maker)
    try:
        handle = await asyncio.to_thread(start, spec, spare, parent)
    finally:
        await stored
        if spare is not None:
            state.context.spares.used(spare)
    state.record.accepted = True
    ways = {why or "forked from a preloaded parent" for why in (await asyncio.to_thread(handle.state)).fresh.values()}
    state.record.span(f"process ({reason or '; '.join(sorted(ways))})", begin, time.time())
    return handle


async def _watch(state: AssignmentState, handle: InstanceHandle) -> ExitRecord:
    """Wait for the end; pass on a stop as soon as it is wanted."""
    stopper = asyncio.create_task(_stop_when_wanted(state, handle))
    try:
        while True:
            record = await asyncio.to_thread(handle.wait, WAIT_SLICE)
            if record is not None:
                return record
    finally:
        stopper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopper


async def _stop_when_wanted(state: AssignmentState, handle: InstanceHandle) -> None:
    await state.wait_for(lambda: state.stopping)
    if state.past_deadline() and not state.assignment.end_reason and state.record.report.end_reason is None:
        state.record.report.end_reason = MAX_RUNTIME
        state.record.touch()
        state.record.save()
    if not state.wants(Action.CLEAR):
        await asyncio.to_thread(handle.stop, state.assignment.grace_seconds)
    await state.wait_for(lambda: state.wants(Action.CLEAR))
    await asyncio.to_thread(handle.kill)


@contextlib.asynccontextmanager
async def _background(state: AssignmentState, handle: InstanceHandle) -> AsyncIterator[None]:
    """Checkpoint sync and usage samples while the processes run."""
    tasks = [asyncio.create_task(sample_usage(state, handle))]
    sync = state.checkpoints(state.uploads)
    if sync is not None:
        tasks.append(asyncio.create_task(_sync_checkpoints(state, sync)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _sync_checkpoints(state: AssignmentState, sync: CheckpointSync) -> None:
    failing = False
    while True:
        await asyncio.sleep(SYNC_SECONDS)
        try:
            await asyncio.shield(asyncio.to_thread(sync.sync_once, state.trouble))
        except DataError as error:
            failing = True
            state.trouble(f"checkpoint sync: {error.message}")
            continue
        except Cancelled:
            return
        if failing:
            failing = False
            state._set_message(None)


def _note_exit(state: AssignmentState, record: ExitRecord) -> None:
    host = state.assignment.host.name
    failure = exit_failure(record, state.layout, host, state.record.data.ranked)
    if failure is not None:
        state.record.fail(**{name: getattr(failure, name) for name in type(failure).model_fields})
    if record.reason == "deadline" and not state.record.report.end_reason:
        state.record.report.end_reason = MAX_RUNTIME
    state.record.move(Phase.EXITED, exit_code=record.exit_code, ended_at=record.ended_at)
    state.report_end()
