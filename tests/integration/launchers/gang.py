"""Runs one job's plan for every host, each in its own sandbox on one cluster network."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.sandbox.support import environment_binds
from tests.support.launching import make_assignment, make_environment
from trainshed_worker.contract import InstanceLayout
from trainshed_worker.launchers import LaunchPlan, plan, support_paths
from trainshed_worker.sandbox import Bind, ClusterNetwork, Command, ExitRecord, InstanceHandle, SandboxSpec

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass
class HostRun:
    """What became of one host: its plan, its exit record and its lines as (stream, text)."""

    plan: LaunchPlan
    record: ExitRecord
    lines: list[tuple[str, str]]

    def texts(self, stream: str) -> list[str]:
        return [text for found, text in self.lines if found == stream]


def run_gang(
    folder: Path,
    request: dict[str, Any],
    script: str,
    make_network: Callable[[Path], ClusterNetwork],
    start_instance: Callable[[SandboxSpec], InstanceHandle],
    *,
    hosts: int = 2,
    timeout: float = 120.0,
) -> list[HostRun]:
    """Every host's run, in rank order, after all have ended. `script` becomes train.py.

    A host that fails ends the others, as the service does with a gang.
    """
    names = [f"algo-{index + 1}" for index in range(hosts)]
    addresses = make_network(folder / "net").ensure(names, {}, isolated=True)
    started: list[tuple[LaunchPlan, InstanceHandle]] = []
    for rank, name in enumerate(names):
        layout = InstanceLayout(folder / name)
        layout.create()
        (layout.code / "train.py").write_text(script)
        environment = make_environment(
            SYSTEM_PATH,
            python=sys.executable,
            cpus=2,
            SM_CURRENT_HOST=name,
            SM_NETWORK_INTERFACE_NAME=addresses.interface,
            GLOO_SOCKET_IFNAME=addresses.interface,
        )
        found = plan(make_assignment(request, hosts=hosts, rank=rank), layout, environment)
        binds = [Bind(str(layout.ml), "/opt/ml", writable=True, give=True), *environment_binds()]
        binds += [Bind(str(path), str(path)) for path in support_paths()]
        spec = SandboxSpec(
            directory=str(layout.instance),
            hostname=name,
            commands=[
                Command(c.argv, c.env, cwd=c.cwd, tag=str(c.local_rank or 0), stream=c.stream, prefix=c.prefix)
                for c in found.commands
            ],
            hosts=addresses.hosts,
            binds=binds,
            network="cluster",
            network_dir=str(folder / "net"),
            slot=rank,
            grace=2.0,
        )
        started.append((found, start_instance(spec)))
    return [_finished(found, handle, timeout) for found, handle in started]


def _finished(found: LaunchPlan, handle: InstanceHandle, timeout: float) -> HostRun:
    record = handle.wait(timeout)
    assert record is not None, f"{handle.spec().hostname} still runs after {timeout} s"
    rows = [json.loads(line) for line in handle.spool_path.read_text(encoding="utf-8").splitlines()]
    return HostRun(found, record, [(row[2], row[3]) for row in rows])
