"""Splitting output: nothing lost, whatever the pieces in which it comes."""

import time

from hypothesis import given
from hypothesis import strategies as st

from trainshed_worker.sandbox.lines import MAX_LINE, LineSplitter


def split(*chunks: bytes) -> list[str]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.flush(final=True)


def test_each_kind_of_end() -> None:
    assert split(b"a\nb\r\nc\rd") == ["a", "b", "c", "d"]
    assert split(b"\n\n") == ["", ""]
    assert split(b"\r10%\r20%\r\n") == ["10%", "20%"]


def test_return_and_newline_in_two_reads_are_one_end() -> None:
    assert split(b"a\r", b"\nb\n") == ["a", "b"]
    assert split(b"a\r", b"", b"\n\n") == ["a", ""]


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\xff", b"\r\n")), max_size=12))
def test_pieces_do_not_matter(chunks: list[bytes]) -> None:
    assert split(*chunks) == split(b"".join(chunks))


@given(st.text(alphabet=st.sampled_from("aé€😀\n"), max_size=60), st.data())
def test_flush_never_breaks_a_character(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cut = data.draw(st.integers(0, len(raw)))
    splitter = LineSplitter()
    lines = splitter.feed(raw[:cut]) + splitter.flush() + splitter.feed(raw[cut:]) + splitter.flush(final=True)
    assert "\ufffd" not in "".join(lines)
    assert "".join(lines) == text.replace("\n", "")


def test_long_lines_are_cut_between_characters() -> None:
    text = "a" + "é" * MAX_LINE
    for chunks in ([text.encode() + b"\n"], [text.encode()], [text.encode(), b"\n"]):
        lines = split(*chunks)
        assert "".join(lines) == text
        assert all(len(line.encode()) <= MAX_LINE for line in lines)


def test_a_long_open_line_after_a_return_costs_linear_time() -> None:
    began = time.process_time()
    assert len(split(b"x\r" + b"y" * 250_000)) == 2
    assert time.process_time() - began < 1.0
