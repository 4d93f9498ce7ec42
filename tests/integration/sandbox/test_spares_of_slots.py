"""The agent's spares: one per slot of a pool, used by the next job that suits or ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.sandbox.support import environment_binds, log_lines, make_spec, shell
from tests.support.wait import patient
from trainshed_worker.agent.spares import Maker, Spares
from trainshed_worker.sandbox import ClusterNetwork, SandboxSpec, start

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces without a user namespace need root")
PLAIN = Maker("environment", "role", None)


@pytest.fixture
def spares(tmp_path: Path) -> Iterator[Spares]:
    made = Spares(tmp_path / "spares", enabled=True)
    yield made
    made.close()
    assert alive(made) == []


@pytest.fixture
def job(tmp_path: Path, make_network: Callable[[Path], ClusterNetwork]) -> SandboxSpec:
    network = make_network(tmp_path / "network")
    addresses = network.ensure(["algo-1"], {}, True)
    binds = [replace(bind, common=True) for bind in environment_binds()]
    return make_spec(
        tmp_path / "job",
        shell("cat /etc/hosts; echo here"),
        binds=binds,
        hosts=dict(addresses.hosts),
        network="cluster",
        network_dir=str(network.directory),
    )


def alive(spares: Spares) -> list[str]:
    return [path.name for path in spares._root.iterdir()] if spares._root.exists() else []


def test_the_next_job_of_the_pool_gets_it_with_a_working_network(spares: Spares, job: SandboxSpec) -> None:
    spares.make("cluster", job, PLAIN, lambda: True)
    spares.make("cluster", job, PLAIN, lambda: True)
    assert len(alive(spares)) == 1
    spare = spares.take(job, PLAIN)
    assert spare is not None
    handle = start(job, spare)
    spares.used(spare)
    assert alive(spares) == []
    record = handle.wait(patient(30))
    assert record is not None
    assert record.reaped
    lines = log_lines(handle)
    assert lines[-1] == "here"
    assert any(line.endswith(" algo-1") for line in lines)
    assert spares.take(job, PLAIN) is None


def test_none_is_made_for_a_slot_that_was_taken_meanwhile(spares: Spares, job: SandboxSpec) -> None:
    spares.make("cluster", job, PLAIN, lambda: False)
    spares.make("cluster", replace(job, network="none"), PLAIN, lambda: True)
    assert alive(spares) == []


def test_one_for_another_role_is_ended_not_used(spares: Spares, job: SandboxSpec) -> None:
    spares.make("cluster", job, PLAIN, lambda: True)
    assert spares.take(job, Maker("environment", "another role", None)) is None
    assert alive(spares) == []


def test_it_ends_with_its_pool_and_with_its_network(
    spares: Spares, job: SandboxSpec, make_network: Callable[[Path], ClusterNetwork]
) -> None:
    spares.make("cluster", job, PLAIN, lambda: True)
    spares.sweep({"cluster", "other"})
    assert len(alive(spares)) == 1
    spares.sweep({"other"})
    assert alive(spares) == []
    spares.make("cluster", job, PLAIN, lambda: True)
    network = make_network(Path(job.network_dir))
    network.remove()
    network.ensure(["algo-1"], {}, True)
    assert spares.take(job, PLAIN) is None
    assert alive(spares) == []
