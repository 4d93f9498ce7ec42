"""What an agent remembers over a crash."""

from __future__ import annotations

from pathlib import Path

from tests.support.agent_gang import gang, nowhere
from trainshed_worker.agent.records import RESERVED_AT_ONCE, Record
from trainshed_worker.protocol import FailureCause, Phase


def test_a_restarted_agent_reports_above_every_revision_that_it_has_reported(tmp_path: Path) -> None:
    (member,) = gang(nowhere(), "b")
    path = tmp_path / "a" / "agent.json"
    record = Record.create(path, 0, member, "token")
    highest = 0
    for _ in range(3 * RESERVED_AT_ONCE + 17):
        record.touch()
        highest = max(highest, record.report.revision)
    again = Record.load(path)
    assert again is not None
    assert again.report.revision > highest


def test_phases_go_forward_only_and_the_first_failure_stays(tmp_path: Path) -> None:
    (member,) = gang(nowhere(), "b")
    path = tmp_path / "a" / "agent.json"
    record = Record.create(path, 0, member, "token")
    record.move(Phase.READY)
    record.move(Phase.DOWNLOADING)
    record.fail(FailureCause.USER_INPUT, "first")
    record.fail(FailureCause.NODE, "second")
    again = Record.load(path)
    assert again is not None
    assert again.phase is Phase.READY
    assert again.report.failure is not None
    assert again.report.failure.message == "first"
    assert [span.name for span in again.report.spans] == ["accepted", "ready"]
    assert Record.load(tmp_path / "none") is None
