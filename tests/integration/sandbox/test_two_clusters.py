"""Acceptance: two clusters at once, each of which believes that it owns port 7777 on algo-1."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.sandbox.support import log_lines, make_spec, python
from trainshed_worker.sandbox import ClusterNetwork, InstanceHandle, SandboxSpec

_TRAIN = """
import os, sys, torch, torch.distributed as dist
from datetime import timedelta
rank, weight = int(sys.argv[1]), float(sys.argv[2])
store = dist.TCPStore("algo-1", 7777, 2, is_master=rank == 0, timeout=timedelta(seconds=60))
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
value = torch.full((4,), weight * (rank + 1))
dist.all_reduce(value)
print("sum", value.tolist(), os.uname().nodename)
dist.barrier()
"""


def test_two_clusters_use_the_same_port_at_once(
    tmp_path: Path,
    make_network: Callable[[Path], ClusterNetwork],
    start_instance: Callable[[SandboxSpec], InstanceHandle],
) -> None:
    pytest.importorskip("torch")
    handles: list[tuple[float, InstanceHandle]] = []
    for number, weight in enumerate((1.0, 10.0)):
        folder = tmp_path / f"cluster {number}"
        addresses = make_network(folder / "net").ensure(["algo-1", "algo-2"], {}, isolated=True)
        for rank, host in enumerate(("algo-1", "algo-2")):
            command = python(_TRAIN, str(rank), str(weight), env={"GLOO_SOCKET_IFNAME": addresses.interface})
            spec = make_spec(
                folder / host,
                command,
                hostname=host,
                hosts=addresses.hosts,
                network="cluster",
                network_dir=str(folder / "net"),
                slot=number * 2 + rank,
            )
            handles.append((weight, start_instance(spec)))
    for weight, handle in handles:
        record = handle.wait(120)
        assert record is not None
        lines = log_lines(handle)
        assert record.exit_code == 0, lines
        assert f"sum {[weight * 3] * 4} {handle.spec().hostname}" in lines
        assert record.reaped and handle.prove_empty()
