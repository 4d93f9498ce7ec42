"""The backend smddp: what scripts do with torch.distributed, over ranks that are processes."""

import signal
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.ranks import run_ranks, try_ranks

_CASES = "tests.integration.runtime.smddp_cases"


def test_every_function_of_torch_distributed_works_also_in_sub_groups() -> None:
    run_ranks(4, f"{_CASES}:api", ranks_per_node=2, group=False, env={"SECOND_PORT": str(free_port())})


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "hsdp"])
def test_training_equals_one_process(kind: str) -> None:
    run_ranks(4, f"{_CASES}:training", kind, ranks_per_node=2, group=False)


def test_fsdp_takes_the_collectives_on_plain_gloo() -> None:
    run_ranks(4, f"{_CASES}:custom_for_fsdp", ranks_per_node=2)


def test_the_names_of_the_first_version() -> None:
    run_ranks(4, f"{_CASES}:legacy", ranks_per_node=2, group=False)


def test_hops_of_whole_collectives() -> None:
    run_ranks(4, f"{_CASES}:hops")


@pytest.mark.parametrize("how", ["now", "later", "coalesced", "ddp"])
def test_a_dead_rank_is_an_error_on_every_other(how: str) -> None:
    *others, dead = try_ranks(4, f"{_CASES}:loses_a_rank", how, ranks_per_node=2, group=False)
    assert dead.signal == signal.SIGKILL
    for other in others:
        assert other.error is not None and "rank" in other.error, f"{how}: nothing was noticed: {other}"


@pytest.mark.gpu
def test_cuda_tensors_go_over_nccl() -> None:
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not devices:
        pytest.skip("no CUDA device")
    per_node = devices // 2 if devices % 2 == 0 else devices
    run_ranks(devices, f"{_CASES}:cuda", ranks_per_node=per_node, group=False)
