"""Checks at creation that need data: does each S3 input have objects? Outside of any transaction, bounded in time.

A store that does not answer in time refuses no job: the check is then left out, and the job's notices say so (its
download will tell). A prefix that had objects is not looked at again for a few seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainshed_service.jobs.spec import split_s3_uri
from trainshed_service.settings import Settings
from trainshed_service.wire.errors import validation_error

_log = structlog.get_logger(__name__)
_LIMIT_SECONDS = 5.0
_REMEMBER_SECONDS = 5.0
_REMEMBER_MOST = 10_000


class ObjectFinder(Protocol):
    """The one thing that a check needs of an object store."""

    def has_objects(self, bucket: str, prefix: str) -> bool:
        """Whether any key of `bucket` starts with `prefix`; blocking. False also where there is no such bucket."""
        ...


class StoreObjects:
    """`ObjectFinder` over the store behind the gateway."""

    def __init__(self, settings: Settings) -> None:
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=settings.store_endpoint,
            aws_access_key_id=settings.store_access_key,
            aws_secret_access_key=settings.store_secret_key,
            region_name=settings.region,
            config=Config(
                connect_timeout=2,
                read_timeout=_LIMIT_SECONDS,
                retries={"total_max_attempts": 2},
                s3={"addressing_style": "path"},
                max_pool_connections=16,
            ),
        )

    def has_objects(self, bucket: str, prefix: str) -> bool:
        try:
            page = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "NoSuchBucket":
                return False
            raise
        return bool(page.get("KeyCount"))


class InputChecks:
    """`finder` null: there is no store to look into (nothing is checked)."""

    def __init__(self, finder: ObjectFinder | None, region: str) -> None:
        self._finder = finder
        self._region = region
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="input-check")
        self._seen: dict[tuple[str, str], float] = {}

    async def check(self, request: Mapping[str, Any]) -> list[str]:
        """ValidationException where an input has no objects; else notices about what could not be checked."""
        if self._finder is None:
            return []
        notices: list[str] = []
        for channel in request.get("InputDataConfig") or []:
            source = (channel.get("DataSource") or {}).get("S3DataSource")
            if not source:
                continue
            uri = source["S3Uri"]
            try:
                found = await asyncio.wait_for(self._has_objects(uri), _LIMIT_SECONDS)
            except (BotoCoreError, ClientError, TimeoutError) as error:
                _log.warning("jobs.input_not_checked", uri=uri, error=f"{type(error).__name__}: {error}")
                notices.append(f"Channel {channel['ChannelName']}: the object store did not answer, {uri} is unchecked")
                continue
            if not found:
                raise validation_error(no_objects(uri, self._region, str(request.get("RoleArn", ""))))
        return notices

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _has_objects(self, uri: str) -> bool:
        place = split_s3_uri(uri)
        now = time.monotonic()
        if self._seen.get(place, 0.0) > now:
            return True
        assert self._finder is not None
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._finder.has_objects, *place)
        if found:
            if len(self._seen) >= _REMEMBER_MOST:
                self._seen.clear()
            self._seen[place] = now + _REMEMBER_SECONDS
        return found


def no_objects(uri: str, region: str, role: str) -> str:
    """AWS's sentence for an input without objects."""
    bucket, _ = split_s3_uri(uri)
    return (
        f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket exists in '
        f'the selected region ({region}), that objects exist under that S3 prefix, and that the role "{role}" has '
        f'"s3:ListBucket" permissions on bucket "{bucket}".'
    )
