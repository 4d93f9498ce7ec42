"""After the processes: last checkpoint sync, last log lines, this host's part, the job's artifacts, the emptying.

Every step may be done again; an upload that fails for good becomes the instance's failure and the rest goes on.
"""

import asyncio
import logging

from trainshed_worker.agent.progress import UploadProgress
from trainshed_worker.agent.state import AssignmentState
from trainshed_worker.data import Cancelled, DataError, Upload, assemble, upload_parts
from trainshed_worker.logs import notices
from trainshed_worker.protocol import Action, Phase
from trainshed_worker.sandbox import SandboxError, attach, prove_empty, remove_tree

_log = logging.getLogger(__name__)


async def finish(state: AssignmentState) -> None:
    """From EXITED to FINISHED (lead) or PART_UPLOADED (others). Cancelled where CLEAR comes meanwhile."""
    record = state.record
    lead = state.assignment.is_lead
    if not record.at_least(Phase.PART_UPLOADED):
        record.move(Phase.UPLOADING, lasting=False)
        state.report_end()
        await _final_checkpoints(state)
        parts = [] if lead else await _parts(state)
        await _all_lines(state)
        record.move(Phase.PART_UPLOADED, lasting=not state.alone, part_uris=parts)
        state.report_end()
    if not lead:
        return
    # the order names the others' parts; without others there is nothing to wait for
    await state.wait_for(lambda: state.alone or state.wants(Action.ASSEMBLE))
    if state.wants(Action.CLEAR):
        raise Cancelled
    if not record.at_least(Phase.FINISHED):
        await _assemble(state)
        await _all_lines(state)
        record.move(Phase.FINISHED)
        state.context.report_soon()


def _upload(state: AssignmentState) -> Upload:
    return Upload(state.uploads, state.notice, state.trouble, UploadProgress(state))


async def _final_checkpoints(state: AssignmentState) -> None:
    sync = state.checkpoints(state.uploads)
    if sync is None or not state.record.data.started:
        return
    try:
        await asyncio.to_thread(lambda: sync.sync_once(state.trouble, final=True))
    except DataError as error:
        state.record.fail(error.cause, f"the last checkpoint sync failed: {error.message}")


async def _parts(state: AssignmentState) -> list[str]:
    if not state.record.data.started:
        return []
    plan = state.assignment.output
    host = state.assignment.host.name
    try:
        return await asyncio.to_thread(upload_parts, _upload(state), state.layout.ml, plan.parts_uri, host)
    except DataError as error:
        state.record.fail(error.cause, f"the output of {host} could not be uploaded: {error.message}")
        return []


async def _assemble(state: AssignmentState) -> None:
    plan = state.assignment.output
    succeeded = state.record.report.failure is None and state.record.data.started
    try:
        await asyncio.to_thread(
            assemble, _upload(state), state.layout.ml, plan.base_uri, plan.compression, list(plan.parts), succeeded
        )
    except DataError as error:
        state.record.fail(error.cause, f"the job's artifacts could not be uploaded: {error.message}")


async def _all_lines(state: AssignmentState) -> None:
    for text in notices(state.shipper.definitions):
        state.record.notice(text)
    await asyncio.to_thread(state.journal.flush)
    drained = asyncio.create_task(state.shipper.drained())
    cleared = asyncio.create_task(state.wait_for(lambda: state.wants(Action.CLEAR)))
    try:
        await asyncio.wait({drained, cleared}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        cleared.cancel()
        drained.cancel()
    if not drained.done() or drained.cancelled():
        raise Cancelled
    for text in notices(state.shipper.definitions):
        state.record.notice(text)


async def empty(state: AssignmentState) -> str | None:
    """Delete all that the assignment has here. Returns why the slot is not proven empty, None where it is."""
    try:
        emptiness = await asyncio.to_thread(_end_all, state)
    except (SandboxError, OSError) as error:
        return f"the instance could not be ended: {error}"
    if emptiness is not None:
        return emptiness
    data = state.record.data
    try:
        await state.context.networks.leave(data.assignment, data.credential_token)
        await asyncio.to_thread(_delete, state)
    except (SandboxError, OSError) as error:
        return f"the instance's files or network could not be removed: {error}"
    return None


def _end_all(state: AssignmentState) -> str | None:
    handle = attach(state.layout.instance)
    if handle is not None and handle.is_alive():
        handle.kill()
        handle.wait(15.0)
    emptiness = prove_empty(state.layout.instance)
    return None if emptiness else emptiness.reason or "the sandbox could not be proven empty"


def _delete(state: AssignmentState) -> None:
    """Files first, the record last: an agent that dies in between finds the record and goes on deleting."""
    root = state.layout.root
    for path in list(root.iterdir()):
        if path != state.layout.agent_file:
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink()
    remove_tree(root)
