"""Everything before the user's process: network, files of the contract, data, code, requirements.

What needs nothing of each other is done at the same time: the network, each channel, checkpoints, the source archive;
code that lies in a channel waits for the channels, and the environment waits for the code, whose requirements it has.
Each step may be done again after a crash; a step that fails for the user's reason raises DataError with the words, and
the others end.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from trainshed_worker.agent.networks import network_isolated
from trainshed_worker.agent.progress import DownloadProgress
from trainshed_worker.agent.state import AssignmentState
from trainshed_worker.contract import Channel, channels, write_config_files
from trainshed_worker.data import Cancelled, DataError, check_entry_point, download_channel, fetch_code, needs_channels
from trainshed_worker.environments import BaseEnvironment, BaseError, Installed, base_for, provide
from trainshed_worker.environments.requirements import Installer, Requirements, in_channels, requirements_of
from trainshed_worker.protocol import FailureCause, Phase

Step = asyncio.Task[None]


async def prepare(state: AssignmentState) -> None:
    """Bring the assignment from ACCEPTED to READY. DataError, Cancelled, SandboxError."""
    record = state.record
    await asyncio.to_thread(_make_folders, state)
    record.move(Phase.DOWNLOADING)
    state.report_start()
    network = _begin(state, _network(state))
    data = [_begin(state, _channel(state, channel)) for channel in channels(state.assignment)]
    if (checkpoints := _checkpoints(state)) is not None:
        data.append(_begin(state, checkpoints))
    code = _begin(state, _code(state, data))
    environment = _begin(state, _environment(state, network, code, data))
    steps = [network, *data, code, environment]
    try:
        await asyncio.wait([network, *data, code])
        if not environment.done() and state.installing:
            record.move(Phase.INSTALLING)
            state.context.report_soon()
        ended = await asyncio.gather(*steps, return_exceptions=True)
    except asyncio.CancelledError:
        for step in steps:
            step.cancel()
        raise
    errors = [error for error in ended if isinstance(error, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
        raise error
    record.move(Phase.READY)
    state.report_start()


def _make_folders(state: AssignmentState) -> None:
    state.layout.create()
    state.context.pool_caches.prepare(state.assignment.cluster_id, state.record.data.slot)


def _begin(state: AssignmentState, step: Coroutine[Any, Any, None]) -> Step:
    """Run one step; where it fails the others end too, since the job cannot start any more."""

    async def run() -> None:
        try:
            await step
        except BaseException:
            state.cancellation.cancel()
            raise

    return asyncio.create_task(run())


async def _after(steps: Sequence[Step]) -> None:
    """Return when all of them have succeeded. Cancelled where one has failed: the failure is that one's."""
    if steps:
        await asyncio.wait(steps)
    if any(step.cancelled() or step.exception() for step in steps):
        raise Cancelled


async def _timed(state: AssignmentState, name: str, step: Callable[[], object]) -> None:
    start = time.time()
    await asyncio.to_thread(step)
    state.record.span(name, start, time.time())


async def _network(state: AssignmentState) -> None:
    await state.context.warm.wait()
    start = time.time()
    network = await state.context.networks.join(state.assignment, state.layout, state.record.data.credential_token)
    state.network = network
    state.record.report.address = network.address or state.context.options.advertise
    state.record.touch()
    await asyncio.to_thread(write_config_files, state.assignment, state.layout, network.facts.interface)
    state.record.span("network", start, time.time())
    if network.mode == "host":  # the other machines' agents wait for this address
        state.context.report_soon()


async def _code(state: AssignmentState, data: Sequence[Step]) -> None:
    if needs_channels(state.assignment):
        await _after(data)

    def code() -> None:
        fetch_code(state.store, state.assignment, state.layout, state.trouble, state.cache)
        check_entry_point(state.assignment, state.layout)

    await _timed(state, "code", code)


def _checkpoints(state: AssignmentState) -> Coroutine[Any, Any, None] | None:
    sync = state.checkpoints(state.store)
    if sync is None:
        return None
    report = DownloadProgress(state, "checkpoints")
    return _timed(state, "checkpoints", lambda: sync.restore(report, state.trouble))


async def _channel(state: AssignmentState, channel: Channel) -> None:
    if channel.input_mode != "File":
        raise DataError(
            FailureCause.UNSUPPORTED,
            f"channel {channel.name} asks for input mode {channel.input_mode}, which this node cannot serve yet; "
            "use File",
        )
    directory = state.layout.input_data / channel.name
    report = DownloadProgress(state, f"channel {channel.name}")
    await _timed(
        state,
        f"channel {channel.name}",
        lambda: download_channel(
            state.store, channel, directory, state.layout.state, report, state.trouble, state.cache
        ),
    )
    report.finished()


async def _environment(state: AssignmentState, network: Step, code: Step, data: Sequence[Step]) -> None:
    image = (state.assignment.request.get("AlgorithmSpecification") or {}).get("TrainingImage")
    try:
        name, base = await asyncio.to_thread(base_for, state.context.table, image)
    except BaseError as error:
        raise DataError(FailureCause.NODE, str(error)) from error
    start = time.time()
    directory: Path = state.layout.environment
    # Most jobs have no requirements: the environment without any is made while the code is on its way.
    skeletons = state.context.skeletons
    plain = (skeletons, state.record.data.slot) if skeletons is not None else None
    environment = await asyncio.to_thread(provide, name, base, directory, None, plain)
    state.record.span("environment", start, time.time())
    await _after([code, *data] if in_channels(state.assignment) else [code])
    wanted = await asyncio.to_thread(requirements_of, state.assignment, state.layout)
    if wanted is not None:
        installed = await _install(state, wanted, base, network)
        environment = await asyncio.to_thread(provide, name, base, directory, installed)
    state.environment = environment


async def _install(state: AssignmentState, wanted: Requirements, base: BaseEnvironment, network: Step) -> Installed:
    if network_isolated(state.assignment):
        raise DataError(
            FailureCause.NETWORK_ISOLATION,
            f"{wanted.shown} cannot be installed: EnableNetworkIsolation leaves the job no way to a package index. "
            "Leave the file out, or use an image whose environment has what it needs.",
        )
    state.installing = True
    await _after([network])
    assert state.network is not None
    installer = Installer(state.context.layers, base, state.network, state.context.facts, state.say)
    start = time.time()
    installed = await asyncio.to_thread(
        installer.install, wanted, state.assignment, state.layout, state.record.data.slot, state.cancellation
    )
    state.record.span("requirements", start, time.time())
    return installed
