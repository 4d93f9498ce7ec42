"""Checks at creation that need the object store: each S3 input has objects, each output has a bucket.

Outside of any transaction, bounded in time. A store that does not answer in time refuses no job: the check is then
left out, and the job's notices say so (its download or upload will tell). What was found is not looked at again for a
few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import structlog

from trainshed_service.jobs.spec import split_s3_uri
from trainshed_service.s3 import ProbeError
from trainshed_service.wire.errors import validation_error

_log = structlog.get_logger(__name__)
_REMEMBER_OBJECTS_SECONDS = 5.0
_REMEMBER_BUCKET_SECONDS = 60.0
_REMEMBER_MOST = 10_000


class ObjectStore(Protocol):
    """What the checks need of an object store. Both raise ProbeError where it does not answer in time."""

    async def object_exists_under(self, bucket: str, prefix: str) -> bool:
        """Whether any key of `bucket` starts with `prefix`. False also where there is no such bucket."""
        ...

    async def bucket_exists(self, bucket: str) -> bool: ...


class InputChecks:
    """`store` null: there is no store to look into (nothing is checked)."""

    def __init__(self, store: ObjectStore | None, region: str) -> None:
        self._store = store
        self._region = region
        self._seen: dict[tuple[str, str | None], float] = {}

    async def check(self, request: Mapping[str, Any]) -> list[str]:
        """ValidationException where objects or a bucket are missing; else notices about what could not be checked."""
        store = self._store
        if store is None:
            return []
        notices: list[str] = []
        for uri in _inputs(request):
            bucket, prefix = split_s3_uri(uri)
            found = await self._ask((bucket, prefix), uri, partial(store.object_exists_under, bucket, prefix))
            if found is False:
                raise validation_error(no_objects(uri, self._region, str(request.get("RoleArn", ""))))
            if found is None:
                notices.append(f"The object store did not answer: the input {uri} is unchecked")
        for member, uri in _outputs(request):
            bucket, _ = split_s3_uri(uri)
            found = await self._ask((bucket, None), uri, partial(store.bucket_exists, bucket))
            if found is False:
                raise validation_error(
                    f'The bucket "{bucket}" of {member} "{uri}" does not exist. Create it, or name one that exists.'
                )
            if found is None:
                notices.append(f"The object store did not answer: the bucket of {member} {uri} is unchecked")
        return notices

    async def _ask(
        self, place: tuple[str, str | None], uri: str, question: Callable[[], Awaitable[bool]]
    ) -> bool | None:
        """The store's answer; None where there is none."""
        now = time.monotonic()
        if self._seen.get(place, 0.0) > now:
            return True
        try:
            found = await question()
        except ProbeError as error:
            _log.warning("jobs.place_not_checked", uri=uri, error=str(error))
            return None
        if found:
            if len(self._seen) >= _REMEMBER_MOST:
                self._seen.clear()
            seconds = _REMEMBER_BUCKET_SECONDS if place[1] is None else _REMEMBER_OBJECTS_SECONDS
            self._seen[place] = now + seconds
        return found


def _inputs(request: Mapping[str, Any]) -> Iterator[str]:
    for channel in request.get("InputDataConfig") or []:
        source = (channel.get("DataSource") or {}).get("S3DataSource")
        if source:
            yield source["S3Uri"]


def _outputs(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "OutputDataConfig.S3OutputPath", request["OutputDataConfig"]["S3OutputPath"]
    checkpoints = request.get("CheckpointConfig")
    if checkpoints:
        yield "CheckpointConfig.S3Uri", checkpoints["S3Uri"]


def no_objects(uri: str, region: str, role: str) -> str:
    """AWS's sentence for an input without objects."""
    bucket, _ = split_s3_uri(uri)
    return (
        f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket exists in '
        f'the selected region ({region}), that objects exist under that S3 prefix, and that the role "{role}" has '
        f'"s3:ListBucket" permissions on bucket "{bucket}".'
    )
