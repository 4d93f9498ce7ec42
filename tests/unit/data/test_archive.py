"""Source archives can place nothing outside their directory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainshed_worker.data.archive import unpack
from trainshed_worker.data.errors import DataError
from trainshed_worker.data.store import Cancellation

URI = "s3://bucket/code/sourcedir.tar.gz"


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def device(name: str) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.devmajor, member.devminor = tarfile.CHRTYPE, 1, 3
    return member, b""


def test_files_folders_links_and_modes(tmp_path: Path) -> None:
    script = tarfile.TarInfo("./run.sh")
    script.mode = 0o6775
    source = archive(
        tmp_path / "a", file("train.py", b"print()"), file("sub/x.py"), (script, b"#!"), link("l", "sub/x.py")
    )
    target = tmp_path / "code"
    target.mkdir()
    (target / "old").write_text("of an earlier try")
    unpack(source, target, URI, Cancellation())
    assert sorted(path.name for path in target.iterdir()) == ["l", "run.sh", "sub", "train.py"]
    assert (target / "l").read_bytes() == b"x"
    assert (target / "run.sh").stat().st_mode & 0o7777 == 0o755
    unpack(source, target, URI, Cancellation())


@pytest.mark.parametrize(
    "members",
    [
        [file("/etc/evil")],
        [file("../evil")],
        [file("a/../../evil")],
        [link("l", "/etc/passwd")],
        [link("l", "../../x")],
        [link("d", ".."), file("d/evil")],
        [link("d", "."), file("d/inside")],
        [link("h", "../x", tarfile.LNKTYPE)],
        [link("h", "missing", tarfile.LNKTYPE)],
        [device("null")],
        [link("f", "", tarfile.FIFOTYPE)],
        [file("a"), file("a/b")],
    ],
    ids=lambda members: "+".join(member.name for member, _ in members),
)
def test_hostile_members_are_refused_and_leave_nothing(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    inner = tmp_path / "root"
    inner.mkdir()
    with pytest.raises(DataError) as caught:
        unpack(archive(tmp_path / "a", *members), inner / "code", URI, Cancellation())
    assert URI in caught.value.message
    assert not (inner / "code").exists()
    assert not (tmp_path / "evil").exists()
    assert not (inner / "evil").exists()


def test_limits(tmp_path: Path) -> None:
    source = archive(tmp_path / "a", file("big", b"0" * 5000), file("b"))
    with pytest.raises(DataError, match="more than"):
        unpack(source, tmp_path / "code", URI, Cancellation(), max_bytes=4000)
    with pytest.raises(DataError, match="more than"):
        unpack(source, tmp_path / "code", URI, Cancellation(), max_members=1)


@pytest.mark.parametrize(
    "spoil",
    [lambda data: b"not an archive", lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"\x1f\x8bxx"],
)
def test_broken_archives_are_named(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    source = archive(tmp_path / "a", file("big", bytes(range(256)) * 400))
    source.write_bytes(spoil(source.read_bytes()))
    with pytest.raises(DataError, match=r"not a valid \.tar\.gz"):
        unpack(source, tmp_path / "code", URI, Cancellation())
