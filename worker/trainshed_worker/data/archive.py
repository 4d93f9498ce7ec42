"""Unpacking a user's source archive: nothing of it can land, link or grow outside its directory.

Refused with a sentence: absolute names, `..`, links that lead out, devices and FIFOs, more bytes or members than the
limits. Set-id bits and owners are dropped. The tree is unpacked beside its place and renamed, so it is whole or absent.
"""

import os
import shutil
import stat
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from trainshed_worker.data.errors import Cancelled, DataError, disk_error
from trainshed_worker.data.store import Cancellation
from trainshed_worker.data.tree import link_stays_inside
from trainshed_worker.protocol import FailureCause

MAX_BYTES = 20 << 30
MAX_MEMBERS = 500_000
CHUNK = 1 << 20


def unpack(
    archive: Path,
    directory: Path,
    uri: str,
    cancellation: Cancellation,
    *,
    max_bytes: int = MAX_BYTES,
    max_members: int = MAX_MEMBERS,
) -> None:
    """Unpack a .tar.gz into `directory`, which is replaced. `uri` is named in errors. DataError (USER_INPUT)."""
    fresh = directory.with_name(f".{directory.name}.unpacking")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            _extract(tar, fresh, uri, cancellation, max_bytes, max_members)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(
            FailureCause.USER_INPUT, f"{uri} is not a valid .tar.gz archive ({error}); pack it with tar -czf"
        ) from error
    except (DataError, Cancelled):
        raise
    except OSError as error:
        if isinstance(error, tarfile.ReadError) or "gzip" in str(error):
            raise DataError(
                FailureCause.USER_INPUT, f"{uri} is not a valid .tar.gz archive ({error}); pack it with tar -czf"
            ) from error
        raise disk_error(error, f"/opt/ml/code (from {uri})", FailureCause.USER_INPUT) from error
    shutil.rmtree(directory, ignore_errors=True)
    os.replace(fresh, directory)


def member_path(name: str, uri: str) -> PurePosixPath:
    """A member's relative path; DataError where it is absolute or has `..` or NUL."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise DataError(
            FailureCause.USER_INPUT, f"{uri} has a member {name!r} that would be placed outside the archive"
        )
    return path


def _extract(
    tar: tarfile.TarFile, root: Path, uri: str, cancellation: Cancellation, max_bytes: int, max_members: int
) -> None:
    total = members = 0
    modes: list[tuple[Path, int]] = []
    for member in tar:
        cancellation.check()
        members += 1
        total += max(0, member.size)
        if members > max_members or total > max_bytes:
            raise DataError(
                FailureCause.USER_INPUT,
                f"{uri} unpacks to more than {max_members} members or {max_bytes >> 20} MB, the limits for source code",
            )
        path = member_path(member.name, uri)
        if not path.parts:
            continue
        target = root / path
        _make_parents(root, path, uri)
        if member.isdir():
            if target.is_symlink() or (target.exists() and not target.is_dir()):
                raise _clash(uri, member.name)
            target.mkdir(exist_ok=True)
            modes.append((target, 0o755))
        elif member.isreg():
            _clear(target, uri, member.name)
            _write(tar, member, target, cancellation)
            target.chmod((stat.S_IMODE(member.mode) & 0o755) | 0o444)
        elif member.issym():
            if not link_stays_inside(str(path), member.linkname):
                raise DataError(
                    FailureCause.USER_INPUT,
                    f"{uri} has a link {member.name!r} to {member.linkname!r}, which is outside the archive",
                )
            _clear(target, uri, member.name)
            target.symlink_to(member.linkname)
        elif member.islnk():
            source = root / member_path(member.linkname, uri)
            if source.is_symlink() or not source.is_file() or not source.resolve().is_relative_to(root.resolve()):
                raise DataError(
                    FailureCause.USER_INPUT, f"{uri} has a hard link {member.name!r} to no file of the archive"
                )
            _clear(target, uri, member.name)
            os.link(source, target, follow_symlinks=False)
        else:
            raise DataError(
                FailureCause.USER_INPUT, f"{uri} has a member {member.name!r} that is neither file, folder nor link"
            )
    for directory, mode in modes:
        directory.chmod(mode)


def _clash(uri: str, name: str) -> DataError:
    return DataError(FailureCause.USER_INPUT, f"{uri} has the member {name!r} twice, as a file or link and as a folder")


def _make_parents(root: Path, path: PurePosixPath, uri: str) -> None:
    """Directories above a member, none of which may be a link (else a later member could leave through it)."""
    current = root
    for part in path.parts[:-1]:
        current = current / part
        if current.is_symlink() or (current.exists() and not current.is_dir()):
            raise _clash(uri, str(path))
        current.mkdir(exist_ok=True)


def _clear(target: Path, uri: str, name: str) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.exists():
        raise _clash(uri, name)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, cancellation: Cancellation) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise tarfile.ReadError(f"{member.name} has no content")
    with source, target.open("xb") as out:
        while chunk := source.read(CHUNK):
            cancellation.check()
            out.write(chunk)
