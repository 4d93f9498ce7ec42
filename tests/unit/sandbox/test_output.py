"""Pipes into the spool, also while the disk is full."""

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from trainshed_worker.sandbox import output
from trainshed_worker.sandbox.output import Outputs
from trainshed_worker.sandbox.spec import Command
from trainshed_worker.sandbox.spool import SpoolWriter


class FullDisk(SpoolWriter):
    """A spool whose disk is full for the first `refusals` batches."""

    refusals = 3

    def append(self, lines: Iterable[tuple[int, str, str]]) -> int:
        lines = list(lines)
        if lines and self.refusals:
            self.refusals -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().append(lines)


def texts(spool: SpoolWriter) -> list[str]:
    return [json.loads(line)[3] for line in spool.path.read_text().splitlines()]


def test_a_full_disk_delays_lines_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FULL_DISK_WAIT", 0.001)
    with FullDisk(tmp_path) as spool:
        outputs = Outputs([Command(["x"], {}), Command(["y"], {}, prefix="[1] ")], spool, owner=None)
        os.write(outputs.ends[0], b"one\ntwo\nopen")
        os.write(outputs.ends[1], b"other\n")
        assert outputs.read()
        assert texts(spool) == []
        outputs.close_ends()
        outputs.finish()
        assert sorted(texts(spool)) == ["[1] other", "one", "open", "two"]
        assert [text for text in texts(spool) if not text.startswith("[")] == ["one", "two", "open"]


def test_another_error_of_the_disk_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SpoolWriter(tmp_path) as spool:
        outputs = Outputs([Command(["x"], {})], spool, owner=None)
        os.write(outputs.ends[0], b"line\n")

        def fail(lines: object) -> int:
            raise OSError(errno.EIO, "I/O error")

        monkeypatch.setattr(spool, "append", fail)
        with pytest.raises(OSError, match="I/O error"):
            outputs.read()
        monkeypatch.undo()
        outputs.close_ends()
        outputs.finish()
