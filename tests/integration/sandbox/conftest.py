"""Every test leaves no process, no network and no control group behind, also where it fails."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.wait import patient
from trainshed_worker.sandbox import ClusterNetwork, InstanceHandle, SandboxSpec, attach, isolation, start

_ISOLATION = isolation()


@pytest.fixture(autouse=True)
def needs_isolation() -> None:
    """The tests need what the sandbox needs; where it is absent they are skipped with the reason."""
    if _ISOLATION != "full":
        pytest.skip(f"isolation is {_ISOLATION}")


@pytest.fixture
def start_instance() -> Iterator[Callable[[SandboxSpec], InstanceHandle]]:
    """Like `start`; what still runs at the end of the test is killed, and proven empty."""
    directories: list[str] = []

    def start_one(spec: SandboxSpec) -> InstanceHandle:
        directories.append(spec.directory)
        return start(spec)

    yield start_one
    for directory in directories:
        handle = attach(directory)
        if handle is not None:
            if handle.exit_record() is None:
                handle.kill()
                assert handle.wait(patient(20)) is not None
            assert handle.prove_empty(), handle.prove_empty().reason


@pytest.fixture
def make_network() -> Iterator[Callable[[Path], ClusterNetwork]]:
    networks: list[ClusterNetwork] = []

    def make(directory: Path) -> ClusterNetwork:
        networks.append(ClusterNetwork(directory))
        return networks[-1]

    yield make
    for network in networks:
        network.remove()
