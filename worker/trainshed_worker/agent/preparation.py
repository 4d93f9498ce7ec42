"""Everything before the user's process: files of the contract, data, code, requirements.

Each step may be done again after a crash; a step that fails for the user's reason raises DataError with the words.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from trainshed_worker.agent.networks import network_isolated
from trainshed_worker.agent.state import AssignmentState
from trainshed_worker.contract import Channel, channels, write_config_files
from trainshed_worker.data import Cancelled, DataError, check_entry_point, download_channel, fetch_code
from trainshed_worker.environments import BaseError, Installed, base_for, provide
from trainshed_worker.environments.requirements import Installer, requirements_of
from trainshed_worker.protocol import FailureCause, Phase

LOG_EVERY = 15.0
"""Seconds between two lines on the progress of a download in the job's log."""


async def prepare(state: AssignmentState) -> None:
    """Bring the assignment from ACCEPTED to READY. DataError, Cancelled, SandboxError."""
    record = state.record
    await asyncio.to_thread(state.layout.create)
    await state.context.warm.wait()
    state.network = await state.context.networks.join(state.assignment, state.layout, record.data.credential_token)
    address = state.network.address or state.context.options.advertise
    record.move(Phase.ACCEPTED, address=address)
    state.context.report_soon()
    await asyncio.to_thread(write_config_files, state.assignment, state.layout, state.network.facts.interface)

    record.move(Phase.DOWNLOADING)
    state.context.report_soon()
    await _download(state)

    record.move(Phase.INSTALLING)
    state.context.report_soon()
    await _install(state)

    record.move(Phase.READY)
    state.context.report_soon()


async def _timed(state: AssignmentState, name: str, step: Callable[[], object]) -> None:
    start = time.time()
    await asyncio.to_thread(step)
    state.record.span(name, start, time.time())


async def _download(state: AssignmentState) -> None:
    """Channels and checkpoints in parallel; then the code, which may be in a channel."""
    jobs = [_channel(state, channel) for channel in channels(state.assignment)]
    sync = state.checkpoints(state.store)
    if sync is not None:
        report = _Progress(state, "checkpoints")
        jobs.append(_timed(state, "checkpoints", lambda: sync.restore(report, state.trouble)))
    ended = await asyncio.gather(*(_stop_others(state, job) for job in jobs), return_exceptions=True)
    errors = [error for error in ended if isinstance(error, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, Cancelled)):
        raise error

    def code() -> None:
        fetch_code(state.store, state.assignment, state.layout, state.trouble)
        check_entry_point(state.assignment, state.layout)

    await _timed(state, "code", code)


async def _stop_others(state: AssignmentState, job: Coroutine[Any, Any, None]) -> None:
    """Run one download; where it fails the others end too, since the job cannot start any more."""
    try:
        await job
    except BaseException:
        state.cancellation.cancel()
        raise


async def _channel(state: AssignmentState, channel: Channel) -> None:
    if channel.input_mode != "File":
        raise DataError(
            FailureCause.UNSUPPORTED,
            f"channel {channel.name} asks for input mode {channel.input_mode}, which this node cannot serve yet; "
            "use File",
        )
    directory = state.layout.input_data / channel.name
    report = _Progress(state, f"channel {channel.name}")
    await _timed(
        state,
        f"channel {channel.name}",
        lambda: download_channel(state.store, channel, directory, state.layout.state, report, state.trouble),
    )
    report.finished()


class _Progress:
    """Progress of one download: in the report each second, in the log now and then."""

    def __init__(self, state: AssignmentState, label: str) -> None:
        self._state = state
        self._label = label
        self._logged = time.monotonic()
        self._total = 0
        self._said = False

    def __call__(self, done: int, total: int) -> None:
        self._total = total
        text = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB of {self._label}"
        self._state.progress(text)
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            self._said = True
            self._state.say(f"Downloading: {text}")

    def finished(self) -> None:
        if self._said:
            self._state.say(f"Downloaded {self._total / 1e6:.0f} MB of {self._label}")


async def _install(state: AssignmentState) -> None:
    request = state.assignment.request
    image = (request.get("AlgorithmSpecification") or {}).get("TrainingImage")
    try:
        name, base = await asyncio.to_thread(base_for, state.context.table, image)
    except BaseError as error:
        raise DataError(FailureCause.NODE, str(error)) from error
    wanted = await asyncio.to_thread(requirements_of, state.assignment, state.layout)
    installed: Installed | None = None
    if wanted is not None:
        if network_isolated(state.assignment):
            raise DataError(
                FailureCause.NETWORK_ISOLATION,
                f"{wanted.shown} cannot be installed: EnableNetworkIsolation leaves the job no way to a package index. "
                "Leave the file out, or use an image whose environment has what it needs.",
            )
        assert state.network is not None
        installer = Installer(state.context.options.environments, base, state.network, state.context.facts, state.say)
        start = time.time()
        installed = await asyncio.to_thread(
            installer.install, wanted, state.assignment, state.layout, state.record.data.slot, state.cancellation
        )
        state.record.span("requirements", start, time.time())
    directory: Path = state.layout.environment
    state.environment = await asyncio.to_thread(provide, name, base, directory, installed)
