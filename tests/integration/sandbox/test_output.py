"""Lines: all of them, in order, at a rate."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.sandbox.support import log_lines, make_spec, python, shell
from tests.support.wait import wait_until
from trainshed_worker.sandbox import InstanceHandle, SandboxSpec

Start = Callable[[SandboxSpec], InstanceHandle]


def test_a_burst_is_complete_and_in_order(tmp_path: Path, start_instance: Start) -> None:
    began = time.monotonic()
    script = "import sys\nfor i in range(100_000): sys.stdout.write(f'line {i}\\n')"
    handle = start_instance(make_spec(tmp_path / "i", python(script)))
    record = handle.wait(60)
    took = time.monotonic() - began
    assert record is not None and record.exit_code == 0
    assert log_lines(handle) == [f"line {i}" for i in range(100_000)]
    assert took < 10, f"{100_000 / took:.0f} lines/s"


def test_two_ranks_write_to_their_streams_with_their_prefixes(tmp_path: Path, start_instance: Start) -> None:
    commands = [
        shell(
            f"for i in 1 2 3; do echo $i; done; echo e{rank} >&2",
            tag=str(rank),
            stream=f"algo-{rank + 1}",
            prefix=f"[{rank}] ",
        )
        for rank in range(2)
    ]
    handle = start_instance(make_spec(tmp_path / "i", *commands))
    assert handle.wait(30) is not None
    records = [json.loads(line) for line in handle.spool_path.read_text().splitlines()]
    for rank in range(2):
        texts = [record[3] for record in records if record[2] == f"algo-{rank + 1}"]
        assert texts == [f"[{rank}] 1", f"[{rank}] 2", f"[{rank}] 3", f"[{rank}] e{rank}"]


def test_an_open_line_is_shown_soon(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(make_spec(tmp_path / "i", shell("printf 'no end'; sleep 600")))
    wait_until(lambda: log_lines(handle) == ["no end"], timeout=10)


def test_progress_bars_odd_bytes_and_long_lines(tmp_path: Path, start_instance: Start) -> None:
    script = r"""
import sys
out = sys.stdout.buffer
out.write(b"10%\r20%\r\nbad \xff byte\n\nempty above\n")
out.write("é".encode() * 200_000 + b"\n")
"""
    handle = start_instance(make_spec(tmp_path / "i", python(script)))
    assert handle.wait(30) is not None
    lines = log_lines(handle)
    assert lines[:5] == ["10%", "20%", "bad \ufffd byte", "", "empty above"]
    assert "".join(lines[5:]) == "é" * 200_000 and len(lines) == 7
    assert all(len(line.encode()) <= 256 * 1024 for line in lines)


def test_a_terminal_where_asked(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(
        make_spec(tmp_path / "i", shell("test -t 1 && echo terminal; cat < /dev/tty > /dev/null & exit 0", pty=True))
    )
    assert handle.wait(30) is not None
    assert log_lines(handle) == ["terminal"]


def test_dev_stdout_can_be_opened_by_name(tmp_path: Path, start_instance: Start) -> None:
    handle = start_instance(make_spec(tmp_path / "i", shell("echo a > /dev/stdout; echo b > /dev/stderr")))
    assert handle.wait(30) is not None
    assert log_lines(handle) == ["a", "b"]
