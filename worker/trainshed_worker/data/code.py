"""The user's code: `sagemaker_submit_directory` becomes /opt/ml/code, and the entry point is known to be there.

Errors come within seconds and name the URI, since a job that waits for minutes on a mistyped path is the most common
first experience.
"""

import shutil
from pathlib import Path, PurePosixPath

from trainshed_worker.contract.hyperparameters import PROGRAM, SUBMIT_DIRECTORY, raw_hyperparameters, text
from trainshed_worker.contract.layout import ML, InstanceLayout
from trainshed_worker.data.archive import unpack
from trainshed_worker.data.cache import RoleCache
from trainshed_worker.data.download import Downloader, Note
from trainshed_worker.data.errors import DataError
from trainshed_worker.data.listing import RemoteObject
from trainshed_worker.data.store import ObjectStore, is_missing, parse_uri
from trainshed_worker.protocol import Assignment, FailureCause

USER = FailureCause.USER_INPUT
MAX_ARCHIVE = 5 << 30
LISTED = 20


def _not_an_archive(uri: str, why: str) -> DataError:
    return DataError(
        USER, f"{SUBMIT_DIRECTORY} {uri} {why}; it must be a .tar.gz object with the source directory in it"
    )


def fetch_code(
    store: ObjectStore, assignment: Assignment, layout: InstanceLayout, note: Note, cache: RoleCache | None = None
) -> None:
    """Fill /opt/ml/code where the job names a source archive. Blocking; safe to repeat. Raises DataError, Cancelled."""
    raw = raw_hyperparameters(assignment.request)
    uri = text(raw, SUBMIT_DIRECTORY)
    if uri:
        if uri.startswith("s3://"):
            _fetch_archive(store, uri, layout, note, cache)
        else:
            _use_local(uri, layout, store)


def check_entry_point(assignment: Assignment, layout: InstanceLayout) -> None:
    """DataError, with the archive's top level, where `sagemaker_program` is not in the code that was fetched."""
    request = assignment.request
    program = text(raw_hyperparameters(request), PROGRAM)
    if not program or (request.get("AlgorithmSpecification") or {}).get("ContainerEntrypoint"):
        return
    path = PurePosixPath(program)
    if path.is_absolute():
        if not path.is_relative_to(ML):
            return
        place = layout.host(path)
    else:
        if ".." in path.parts:
            raise DataError(USER, f"the entry point {program} is outside the source directory")
        place = layout.code / path
    if place.is_file():
        return
    names = sorted(item.name + ("/" if item.is_dir() else "") for item in layout.code.iterdir())
    shown = ", ".join(names[:LISTED]) or "nothing"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    raise DataError(
        USER, f"the entry point {program} is not in the source directory; at its top there is: {shown}{more}"
    )


def needs_channels(assignment: Assignment) -> bool:
    """True where the code is, or may be, in a channel, so that channels are brought first."""
    raw = raw_hyperparameters(assignment.request)
    uri = text(raw, SUBMIT_DIRECTORY)
    program = text(raw, PROGRAM)
    absolute = program is not None and PurePosixPath(program).is_absolute()
    return absolute or not (uri and uri.startswith("s3://"))


def _fetch_archive(store: ObjectStore, uri: str, layout: InstanceLayout, note: Note, cache: RoleCache | None) -> None:
    if uri.endswith("/"):
        raise _not_an_archive(uri, "is a folder")
    if not uri.endswith((".tar.gz", ".tgz")):
        raise _not_an_archive(uri, "does not end in .tar.gz")
    try:
        location = parse_uri(uri)
    except ValueError as error:
        raise _not_an_archive(uri, f"is no valid URI ({error})") from error
    from botocore.exceptions import ClientError

    def head() -> dict[str, object] | None:
        try:
            answer: dict[str, object] = store.client.head_object(Bucket=location.bucket, Key=location.key)
        except ClientError as error:
            if is_missing(error):
                return None
            raise
        return answer

    found = store.call(head, f"reading the source archive {uri}", USER, note)
    if found is None:
        raise _not_an_archive(uri, "does not exist")
    size = int(str(found["ContentLength"]))
    if size > MAX_ARCHIVE:
        raise _not_an_archive(uri, f"has {size >> 20} MB, more than {MAX_ARCHIVE >> 20} MB")
    etag = str(found["ETag"]).strip('"')
    inbox = layout.state / "code"
    item = RemoteObject(location.bucket, location.key, size, etag, "source.tar.gz")
    Downloader(
        store,
        inbox,
        scratch=layout.state / "download-code",
        record=layout.state / "download-code.done",
        label="source archive",
        progress=lambda done, total: None,
        note=note,
        cache=cache,
    ).run([item])
    unpack(inbox / item.path, layout.code, uri, store.cancellation)


def _use_local(uri: str, layout: InstanceLayout, store: ObjectStore) -> None:
    """A path below /opt/ml: an archive in a channel, or a directory that is the code already."""
    path = PurePosixPath(uri.removeprefix("file://"))
    if not path.is_relative_to(ML) or ".." in path.parts:
        raise _not_an_archive(uri, "is neither an s3:// URI nor a path below /opt/ml")
    place: Path = layout.host(path)
    if place == layout.code:
        return
    if place.is_file():
        unpack(place, layout.code, uri, store.cancellation)
    elif place.is_dir():
        fresh = layout.ml / ".code.copying"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(place, fresh, symlinks=True)
        shutil.rmtree(layout.code, ignore_errors=True)
        fresh.rename(layout.code)
    else:
        raise _not_an_archive(uri, "does not exist in the instance")
