"""What an agent remembers over a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.agent_gang import gang, nowhere
from trainshed_worker.agent.core import remove_unaccepted
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


@pytest.mark.parametrize("content", ["", "\0" * 300, '{"slot": 0, "assignm', "[]"])
def test_a_record_that_a_power_cut_took_is_none(tmp_path: Path, content: str) -> None:
    (member,) = gang(nowhere(), "b")
    path = tmp_path / "a" / "agent.json"
    Record.create(path, 0, member, "token")
    path.write_text(content)
    assert Record.load(path) is None
    (path.parent / "instance").mkdir()
    remove_unaccepted(path.parent)
    assert not path.parent.exists()


def test_the_disk_is_waited_for_from_the_first_exit_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (member,) = gang(nowhere(), "b")
    record = Record.create(tmp_path / "a" / "agent.json", 0, member, "token")
    synced: list[Phase] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(record.phase), real(fd))[1])
    for phase in (Phase.DOWNLOADING, Phase.INSTALLING, Phase.READY):
        record.move(phase)
    assert synced == []
    record.data.started = True
    record.save()
    for phase in (Phase.RUNNING, Phase.EXITED, Phase.FINISHED):
        record.move(phase)
    assert set(synced) == {Phase.READY, Phase.EXITED, Phase.FINISHED}
    synced.clear()
    record.sync()
    assert len(synced) == 2  # the file and its name


def test_a_failure_before_any_process_is_on_disk_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (member,) = gang(nowhere(), "b")
    record = Record.create(tmp_path / "a" / "agent.json", 0, member, "token")
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    record.fail(FailureCause.USER_INPUT, "no such bucket")
    assert calls
