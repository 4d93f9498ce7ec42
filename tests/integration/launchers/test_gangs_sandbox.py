"""Whole gangs: 2 hosts x 2 processes in sandboxes, started by each launcher, running real torch.distributed scripts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.launchers.gang import run_gang
from trainshed_worker.sandbox import ClusterNetwork, InstanceHandle, SandboxSpec

MakeNetwork = Callable[[Path], ClusterNetwork]
StartInstance = Callable[[SandboxSpec], InstanceHandle]

pytest.importorskip("torch")

GPU_SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(3, 1).cuda(local), device_ids=[local])
model(torch.ones(2, 3, device=torch.device("cuda", local))).sum().backward()
total = torch.tensor([float(dist.get_rank() + 1)]).cuda()
dist.all_reduce(total)
os.write(1, f"rank={dist.get_rank()} host={os.environ['SM_CURRENT_HOST']} total={total.item():g}\\n".encode())
dist.destroy_process_group()
"""

RANK_SCRIPT = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
names = ("OMPI_COMM_WORLD_RANK", "LOCAL_RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "FOO")
for _ in range(50):
    print(f"total={total.item():g}", *(os.environ.get(name, "-") for name in names))
dist.destroy_process_group()
"""


def request(**hyperparameters: str) -> dict[str, dict[str, str]]:
    return {"HyperParameters": {"sagemaker_program": '"train.py"', **hyperparameters}}


def test_torchrun_runs_a_gpu_script_on_stand_ins(
    tmp_path: Path, make_network: MakeNetwork, start_instance: StartInstance
) -> None:
    runs = run_gang(
        tmp_path, request(sagemaker_torch_distributed_enabled="true"), GPU_SCRIPT, make_network, start_instance
    )
    for index, run in enumerate(runs):
        name = f"algo-{index + 1}"
        assert run.record.exit_code == 0, run.lines
        assert {stream for stream, _ in run.lines} == {name}
        for rank in (2 * index, 2 * index + 1):
            assert f"rank={rank} host={name} total=10" in run.texts(name)


def test_data_parallel_ranks_log_into_the_first_hosts_stream(
    tmp_path: Path, make_network: MakeNetwork, start_instance: StartInstance
) -> None:
    asked = request(
        sagemaker_distributed_dataparallel_enabled='"true"',
        sagemaker_distributed_dataparallel_custom_mpi_options='"-x FOO=bar"',
    )
    runs = run_gang(tmp_path, asked, RANK_SCRIPT, make_network, start_instance)
    lines = [text for run in runs for text in run.texts("algo-1")]
    for rank in range(4):
        host, local = f"algo-{rank // 2 + 1}", rank % 2
        assert lines.count(f"[1,{rank}]<stdout>:total=10 {rank} {local} 4 {host} bar") == 50, lines
    assert [run.record.exit_code for run in runs] == [0, 0]
    assert runs[1].texts("algo-2") == []


@pytest.mark.needs("mpirun")
def test_mpirun_starts_ranks_in_the_other_sandbox_without_ssh(
    tmp_path: Path, make_network: MakeNetwork, start_instance: StartInstance
) -> None:
    asked = request(
        sagemaker_mpi_enabled="true",
        sagemaker_mpi_num_of_processes_per_host="2",
        sagemaker_mpi_custom_mpi_options='"-x FOO=bar --oversubscribe"',
    )
    runs = run_gang(tmp_path, asked, RANK_SCRIPT, make_network, start_instance)
    lines = runs[0].texts("algo-1")
    for rank in range(4):
        host, local = f"algo-{rank // 2 + 1}", rank % 2
        assert lines.count(f"[1,{rank}]<stdout>:total=10 {rank} {local} 4 {host} bar") == 50, lines
    assert [run.record.exit_code for run in runs] == [0, 0], [run.lines for run in runs]
    assert runs[1].texts("algo-2") == ["algo-2 waits for mpirun on the gang's first host"]
    assert any("--oversubscribe" in notice for notice in runs[0].plan.notices)


@pytest.mark.needs("mpirun")
def test_a_failing_rank_on_another_host_ends_mpirun_and_its_daemon(
    tmp_path: Path, make_network: MakeNetwork, start_instance: StartInstance
) -> None:
    script = "import os, sys, threading\nif os.environ['RANK'] == '3':\n    sys.exit(7)\nthreading.Event().wait(60)\n"
    asked = request(sagemaker_mpi_enabled="true", sagemaker_mpi_num_of_processes_per_host="2")
    runs = run_gang(tmp_path, asked, script, make_network, start_instance, timeout=40.0)
    assert runs[0].record.exit_code == 7, runs[0].lines
    assert all(run.record.ended_at - (run.record.started_at or 0.0) < 30 for run in runs)
    assert all(run.record.reaped for run in runs)


def test_the_first_rank_that_fails_ends_its_hosts_other_ranks(
    tmp_path: Path, make_network: MakeNetwork, start_instance: StartInstance
) -> None:
    script = "import os, signal, threading\nif os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
    script += "threading.Event().wait(60)\n"
    asked = request(sagemaker_distributed_dataparallel_enabled="true")
    (run,) = run_gang(tmp_path, asked, script, make_network, start_instance, hosts=1, timeout=40.0)
    assert run.record.exit_code == 139
    first = [command for command in run.record.commands if command.first_failure]
    assert [command.tag for command in first] == ["1"]
    assert run.record.ended_at - (run.record.started_at or 0.0) < 20
