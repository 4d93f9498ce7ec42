"""The disk log: numbers without gap over crashes, one writer at a time."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_worker.sandbox.spec import SandboxError
from trainshed_worker.sandbox.spool import SpoolWriter


def records(path: Path) -> list[list[object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_records_and_numbers(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        assert spool.append([(5, "algo-1", 'a "quoted" \u2028 line\ttab'), (6, "algo-2", "")]) == 2
    with SpoolWriter(tmp_path) as spool:
        assert spool.next_seq == 2
        spool.append([(7, "algo-1", "\ud800 lone")])
        path = spool.path
    lines = path.read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines if line] == [
        [0, 5, "algo-1", 'a "quoted" \u2028 line\ttab'],
        [1, 6, "algo-2", ""],
        [2, 7, "algo-1", "? lone"],
    ]


@given(st.integers(1, 400))
def test_a_torn_tail_is_cut_wherever_it_tore(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("spool")
    with SpoolWriter(folder) as spool:
        for number in range(10):
            spool.append([(number, "algo-1", f"line {number} é")])
        path = spool.path
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    with SpoolWriter(folder) as spool:
        spool.append([(99, "algo-1", "after")])
    found = records(path)
    assert [record[0] for record in found] == list(range(len(found)))
    assert found[-1][3] == "after"
    assert [record[3] for record in found[:-1]] == [f"line {n} é" for n in range(len(found) - 1)]


def test_a_last_record_longer_than_the_window_is_found(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path) as spool:
        spool.append([(1, "algo-1", "short"), (2, "algo-1", "x" * 3_000_000)])
    with SpoolWriter(tmp_path) as spool:
        assert spool.next_seq == 2


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path), pytest.raises(SandboxError, match="being written by another process"):
        SpoolWriter(tmp_path)
