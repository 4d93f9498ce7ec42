"""Model and output: from the instances' trees into the job's artifacts, streamed, never copied on disk.

A host that is not the lead writes each non-empty tree as one tar (`…/model.tar`, `…/output.tar`) to the parts prefix;
the lead merges them with its own into `model.tar.gz` and `output.tar.gz` (GZIP), or into object trees `model/` and
`output/` (NONE), and deletes the parts. Where hosts have a file of the same name, the lowest rank's is kept and the
clash is noted. Links stay links in archives; those that lead out of the tree, sockets and devices are left out, with a
note; in an object tree a link to a file of the tree becomes a copy of it.
Repeating any call gives the same objects: nothing depends on what an interrupted one left.
"""

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from trainshed_worker.data.errors import DataError, disk_error
from trainshed_worker.data.multipart import ObjectWriter, object_writer
from trainshed_worker.data.store import Location, ObjectStore, parse_uri
from trainshed_worker.data.tree import Entry, link_stays_inside, open_file, walk
from trainshed_worker.protocol import FailureCause

OUTPUT = FailureCause.OUTPUT
CHUNK = 1 << 20
GZIP_LEVEL = 1
"""Weights hardly compress; the fastest level costs a fifth of the default's time."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class Tree:
    """One of the two artifacts on this host. `label` is its path as the user knows it."""

    name: str
    """model or output."""
    root: Path
    relative: str
    label: str

    @property
    def part_name(self) -> str:
        return f"{self.name}.tar"


@dataclass
class Upload:
    """What all uploads of one host share. `progress` gets (label, bytes so far)."""

    store: ObjectStore
    note: Note
    waiting: Note
    progress: Callable[[str, int], None]
    clashes: set[str] = field(default_factory=set)


def trees(ml: Path) -> list[Tree]:
    """The artifacts of the instance whose /opt/ml is `ml`."""
    return [
        Tree("model", ml, "model", "/opt/ml/model"),
        Tree("output", ml, "output/data", "/opt/ml/output/data"),
    ]


def is_empty(tree: Tree) -> bool:
    """True where the tree has nothing that would be uploaded."""
    return not any(entry.kind in ("file", "link") for entry in walk(tree.root, tree.relative))


def upload_parts(upload: Upload, ml: Path, parts_uri: str, host: str) -> list[str]:
    """Write this host's non-empty trees below `parts_uri` and return their URIs, model first."""
    base = parse_uri(parts_uri)
    uris: list[str] = []
    for tree in trees(ml):
        if is_empty(tree):
            continue
        location = base.below(f"{host}/{tree.part_name}")
        with _object(upload, location, tree.label) as out, tarfile.open(fileobj=out, mode="w|") as tar:
            _add_tree(upload, tar, tree, seen={})
        uris.append(location.uri)
    return uris


def assemble(
    upload: Upload, ml: Path, base_uri: str, compression: str, parts: list[str], keep_empty_model: bool
) -> None:
    """Write the job's artifacts from the lead's own trees and the other hosts' parts, then delete the parts.

    `keep_empty_model`: write model.tar.gz even with nothing in it (a job that succeeded has a model artifact).
    """
    base = parse_uri(base_uri)
    for tree in trees(ml):
        own = [uri for uri in parts if uri.endswith(f"/{tree.part_name}")]
        if not own and is_empty(tree) and not (tree.name == "model" and keep_empty_model):
            continue
        if compression == "NONE":
            _assemble_objects(upload, tree, base.below(tree.name), own)
        else:
            _assemble_archive(upload, tree, base.below(f"{tree.name}.tar.gz"), own)
    delete_parts(upload, parts)


def delete_parts(upload: Upload, parts: list[str]) -> None:
    """Delete the parts; an already deleted one is fine."""
    for uri in parts:
        place = parse_uri(uri)
        upload.store.call(
            lambda p=place: upload.store.client.delete_object(Bucket=p.bucket, Key=p.key),  # type: ignore[misc]
            f"deleting {uri}",
            OUTPUT,
            upload.waiting,
        )


def _object(upload: Upload, location: Location, label: str) -> Any:
    total = 0

    def moved(size: int) -> None:
        nonlocal total
        total += size
        upload.progress(label, total)

    return object_writer(upload.store, location, OUTPUT, upload.waiting, moved)


def _assemble_archive(upload: Upload, tree: Tree, location: Location, parts: list[str]) -> None:
    seen: dict[str, str] = {}
    with (
        _object(upload, location, tree.label) as out,
        gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=out, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", bufsize=CHUNK) as tar,
    ):
        _add_tree(upload, tar, tree, seen)
        for uri in parts:
            for member, content in _members(upload, uri):
                if _first(upload, tree, seen, member.name, uri, directory=member.isdir()):
                    tar.addfile(member, content)


def _assemble_objects(upload: Upload, tree: Tree, prefix: Location, parts: list[str]) -> None:
    seen: dict[str, str] = {}
    for entry in walk(tree.root, tree.relative):
        name = entry.path
        if entry.kind == "link":
            resolved = _link_target(entry)
            if resolved is None:
                upload.note(f"{tree.label}/{entry.path} is a link out of the artifact; it was left out")
                continue
            name = resolved
        elif entry.kind != "file":
            if entry.kind == "other":
                upload.note(f"{tree.label}/{entry.path} is no regular file; it was left out")
            continue
        try:
            with open_file(tree.root, f"{tree.relative}/{name}") as fd:
                _first(upload, tree, seen, entry.path, "", directory=False)
                _put(upload, prefix.below(entry.path), tree, os.fdopen(os.dup(fd), "rb"))
        except OSError as error:
            if entry.kind == "link":
                upload.note(f"{tree.label}/{entry.path} is a link to no file of the artifact; it was left out")
                continue
            raise disk_error(error, f"{tree.label}/{entry.path}", OUTPUT) from error
    for uri in parts:
        for member, content in _members(upload, uri):
            if content is not None and _first(upload, tree, seen, member.name, uri, directory=False):
                _put(upload, prefix.below(member.name), tree, content)
            elif member.issym():
                upload.note(f"{tree.label}/{member.name} is a link on another host; it was left out")


def _link_target(entry: Entry) -> str | None:
    target = entry.target or ""
    if not link_stays_inside(entry.path, target):
        return None
    return os.path.normpath(str(PurePosixPath(entry.path).parent / target))


def _put(upload: Upload, location: Location, tree: Tree, content: IO[bytes]) -> None:
    with content, _object(upload, location, tree.label) as out:
        _copy(content, out, upload)


def _copy(source: IO[bytes], out: ObjectWriter, upload: Upload) -> None:
    while chunk := source.read(CHUNK):
        upload.store.cancellation.check()
        out.write(chunk)


def _first(upload: Upload, tree: Tree, seen: dict[str, str], name: str, origin: str, *, directory: bool) -> bool:
    """True where `name` was not there yet. A file that two hosts wrote is noted once."""
    if name not in seen:
        seen[name] = "directory" if directory else origin
        return True
    if not directory and name not in upload.clashes:
        upload.clashes.add(name)
        upload.note(f"{tree.label}/{name} was written by more than one host; the lowest rank's file was kept")
    return False


def _add_tree(upload: Upload, tar: tarfile.TarFile, tree: Tree, seen: dict[str, str]) -> None:
    for entry in walk(tree.root, tree.relative):
        upload.store.cancellation.check()
        member = tarfile.TarInfo(entry.path)
        member.mtime = entry.mtime_ns // 1_000_000_000
        member.mode = entry.mode & 0o777
        try:
            if entry.kind == "directory":
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            elif entry.kind == "link":
                if not link_stays_inside(entry.path, entry.target or ""):
                    upload.note(f"{tree.label}/{entry.path} is a link out of the artifact; it was left out")
                    continue
                member.type = tarfile.SYMTYPE
                member.linkname = entry.target or ""
                tar.addfile(member)
            elif entry.kind == "file":
                with open_file(tree.root, f"{tree.relative}/{entry.path}") as fd:
                    member.size = os.fstat(fd).st_size
                    with os.fdopen(os.dup(fd), "rb") as content:
                        tar.addfile(member, content)
            else:
                upload.note(f"{tree.label}/{entry.path} is no regular file; it was left out")
                continue
        except OSError as error:
            raise disk_error(error, f"{tree.label}/{entry.path}", OUTPUT) from error
        seen[entry.path] = "directory" if entry.kind == "directory" else ""


class _ObjectReader(io.RawIOBase):
    """One object as a stream that goes on where it was after the store was away."""

    def __init__(self, upload: Upload, location: Location) -> None:
        super().__init__()
        self._upload = upload
        self._location = location
        self._what = f"reading {location.uri}"
        head = upload.store.call(
            lambda: upload.store.client.head_object(Bucket=location.bucket, Key=location.key),
            self._what,
            OUTPUT,
            upload.waiting,
        )
        self._size = int(head["ContentLength"])
        self._position = 0
        self._body: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._size:
            return 0
        view = memoryview(buffer).cast("B")

        def read() -> bytes:
            if self._body is None:
                answer = self._upload.store.client.get_object(
                    Bucket=self._location.bucket,
                    Key=self._location.key,
                    Range=f"bytes={self._position}-{self._size - 1}",
                )
                self._body = answer["Body"]
            try:
                data: bytes = self._body.read(len(view))
            except Exception:
                self._body = None
                raise
            if not data:
                self._body = None
                raise ConnectionError("the stream ended early")
            return data

        data = self._upload.store.call(read, self._what, OUTPUT, self._upload.waiting)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def _members(upload: Upload, uri: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Members of a part with their contents, in order; each content must be read before the next is asked for."""
    reader = io.BufferedReader(_ObjectReader(upload, parse_uri(uri)), CHUNK)
    try:
        with tarfile.open(fileobj=reader, mode="r|", bufsize=CHUNK) as tar:
            for member in tar:
                upload.store.cancellation.check()
                yield member, tar.extractfile(member) if member.isreg() else None
    except tarfile.TarError as error:
        raise DataError(OUTPUT, f"the part {uri} is not readable as a tar archive ({error})") from error
