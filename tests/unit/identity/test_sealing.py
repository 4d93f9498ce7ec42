"""The key file and what is sealed with it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed_service.identity.sealing import SealError, SecretBox, load_or_create_key

BOX = SecretBox(b"k" * 32)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_round_trip_under_its_label_only(label: str, secret: str) -> None:
    sealed = BOX.seal(label, secret)
    assert BOX.open(label, sealed) == secret
    with pytest.raises(SealError):
        BOX.open(label + "x", sealed)
    assert BOX.seal(label, secret) != sealed


@given(st.data())
def test_a_changed_byte_does_not_open(data: st.DataObject) -> None:
    sealed = bytearray(BOX.seal("a", "secret"))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SealError):
        BOX.open("a", bytes(sealed))


@pytest.mark.parametrize("sealed", [b"", b"short", b"x" * 12])
def test_garbage_does_not_open(sealed: bytes) -> None:
    with pytest.raises(SealError):
        BOX.open("a", sealed)


def test_the_key_file_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "a home" / "secret.key"
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: load_or_create_key(path), range(32)))
    assert len(keys) == 1
    assert len(keys.pop()) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["secret.key"]


@pytest.mark.parametrize("text", ["", "zz", "ab" * 31])
def test_a_damaged_key_file_is_told_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secret.key"
    path.write_text(text)
    with pytest.raises(SealError, match="damaged"):
        load_or_create_key(path)
    assert path.read_text() == text
