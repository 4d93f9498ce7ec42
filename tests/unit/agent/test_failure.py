"""What a user is told of a failed process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainshed_worker.agent.failure import exception_line, exit_failure, reported_local_rank
from trainshed_worker.contract import InstanceLayout
from trainshed_worker.protocol import FailureCause
from trainshed_worker.sandbox import CommandExit, ExitRecord


def ended(code: int = 1, reason: str = "exited", **changes: object) -> ExitRecord:
    facts = {"signal": None, "oom": False, "started_at": 1.0, "ended_at": 9.0, "reaped": True, **changes}
    return ExitRecord(exit_code=code, reason=reason, **facts)  # type: ignore[arg-type]


@pytest.fixture
def layout(tmp_path: Path) -> InstanceLayout:
    layout = InstanceLayout(tmp_path)
    layout.create()
    return layout


def spool(layout: InstanceLayout, *texts: str) -> None:
    layout.spool.parent.mkdir()
    layout.spool.write_text("".join(json.dumps([n, n, "algo-1", text]) + "\n" for n, text in enumerate(texts)))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["Traceback (most recent call last):", "  x", "ValueError: bad", "bye"], "ValueError: bad"),
        (["[1,3]<stderr>:my.pkg.CustomError: deep"], "my.pkg.CustomError: deep"),
        (["KeyError: 'a'", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"], "KeyError: 'a'"),
        (["AssertionError"], "AssertionError"),
        (["all is well: no Error here"], None),
        ([], None),
    ],
)
def test_the_last_exception_line(lines: list[str], found: str | None) -> None:
    assert exception_line(lines) == found


def test_torchrun_names_the_rank() -> None:
    assert reported_local_rank(["Root Cause", "  rank      : 3 (local_rank: 1)", "  exitcode : 1"]) == 1


def test_the_failure_file_comes_first_and_is_cut(layout: InstanceLayout) -> None:
    spool(layout, "ValueError: from the log")
    layout.failure.write_text("x" * 2000)
    failure = exit_failure(ended(), layout, "algo-1", False)
    assert failure is not None
    assert failure.message == "x" * 1024
    layout.failure.unlink()
    layout.failure.symlink_to("/etc/hostname")
    failure = exit_failure(ended(), layout, "algo-1", False)
    assert failure is not None
    assert failure.message == "ValueError: from the log"


def test_rank_signal_and_time_of_the_first_failure(layout: InstanceLayout) -> None:
    commands = [CommandExit("0", None, 15, 8.0, by_us=True), CommandExit("1", None, 11, 7.0, first_failure=True)]
    failure = exit_failure(ended(139, signal=11, commands=commands), layout, "algo-2", True)
    assert failure is not None
    assert (failure.local_rank, failure.signal, failure.exit_code, failure.at) == (1, 11, 139, 7.0)


def test_memory_and_lost_supervisors(layout: InstanceLayout) -> None:
    failure = exit_failure(ended(137, signal=9, oom=True), layout, "algo-1", False)
    assert failure is not None
    assert "out of memory" in failure.message
    lost = exit_failure(ended(137, reason="supervisor-lost"), layout, "algo-1", False)
    assert lost is not None
    assert lost.cause is FailureCause.NODE


@pytest.mark.parametrize("record", [ended(0), ended(143, reason="stopped"), ended(143, reason="deadline")])
def test_success_and_an_end_that_was_asked_for_are_no_failures(layout: InstanceLayout, record: ExitRecord) -> None:
    assert exit_failure(record, layout, "algo-1", False) is None
