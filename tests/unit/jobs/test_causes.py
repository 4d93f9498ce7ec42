import signal

import pytest

from trainshed_service.jobs.causes import MAX_REASON, TABLE, verdict
from trainshed_service.jobs.states import Cause
from trainshed_worker.protocol import FailureCause, InstanceFailure


def fault(cause: FailureCause, message: str = "", **values: object) -> InstanceFailure:
    return InstanceFailure(cause=cause, message=message, at=1.0, **values)  # type: ignore[arg-type]


def test_every_cause_has_its_row() -> None:
    assert set(TABLE) == set(FailureCause)
    assert [cause for cause, row in TABLE.items() if row.retryable] == [FailureCause.NODE]


@pytest.mark.parametrize("values", [{"exit_code": 139}, {"signal": 11}, {"exit_code": -11, "signal": 11}])
def test_signals_are_decoded_and_the_host_is_named(values: dict[str, int]) -> None:
    found = verdict(fault(FailureCause.ALGORITHM, **values), "algo-2")
    assert found.reason == "AlgorithmError: algo-2: exit code 139 (SIGSEGV)"
    assert signal.SIGSEGV == 11


def test_a_plain_exit_code_with_rank_and_last_exception() -> None:
    found = verdict(fault(FailureCause.ALGORITHM, "ValueError: boom", exit_code=1, local_rank=3), "algo-2")
    assert found.reason == "AlgorithmError: algo-2 (local rank 3): exit code 1: ValueError: boom"
    assert (found.cause, found.retryable) == (Cause.ALGORITHM_ERROR, False)


def test_a_lost_node_is_ours_and_retryable() -> None:
    found = verdict(fault(FailureCause.NODE, "the node was lost"), "algo-1")
    assert found.reason.startswith("InternalServerError: We encountered an internal error. Please try again. algo-1")
    assert (found.cause, found.retryable) == (Cause.NODE_FAULT, True)


def test_a_reason_is_never_longer_than_aws_allows() -> None:
    assert len(verdict(fault(FailureCause.ALGORITHM, "x" * 4000, exit_code=1), "algo-1").reason) == MAX_REASON
