"""Does anything lie under an S3 prefix? Asked by the service when a job is created, with the store's own key.

Bounded in time: the answer comes, or `ProbeError`, within `seconds`.
"""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET

from trainshed_service.clock import Clock, SystemClock
from trainshed_service.s3.signing import UNSIGNED_PAYLOAD
from trainshed_service.s3.upstream import Store, StoreGone
from trainshed_service.settings import Settings
from trainshed_service.wire.errors import ApiError


class ProbeError(RuntimeError):
    """The store gave no answer; nothing is known about the prefix."""


class StoreProbe:
    """Keeps its connections; make it inside the event loop, `close` it at the end."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._store = Store(settings, clock or SystemClock(), patience=2.0)

    async def close(self) -> None:
        await self._store.close()

    async def bucket_exists(self, bucket: str, *, seconds: float = 5.0) -> bool:
        """Raises ProbeError."""
        status, _ = await self._ask("HEAD", f"/{bucket}", [], seconds)
        if status not in (200, 404):
            raise ProbeError(f"the object store answered {status} to the question for the bucket {bucket}")
        return status == 200

    async def object_exists_under(self, bucket: str, prefix: str, *, seconds: float = 5.0) -> bool:
        """Whether at least one object's key starts with `prefix` (may be empty). An unknown bucket: False.

        Raises ProbeError.
        """
        query = [("list-type", "2"), ("max-keys", "1"), ("prefix", prefix)]
        status, body = await self._ask("GET", f"/{bucket}", query, seconds)
        if status == 404:
            return False
        if status != 200:
            raise ProbeError(f"the object store answered {status} to a listing of s3://{bucket}/{prefix}")
        return any(element.tag.rpartition("}")[2] == "Contents" for element in ET.fromstring(body))

    async def _ask(self, method: str, path: str, query: list[tuple[str, str]], seconds: float) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._store.request(method, path, query, {}, payload=UNSIGNED_PAYLOAD, body=None)
                try:
                    return answer.status, await answer.read()
                finally:
                    answer.release()
        except (TimeoutError, StoreGone, ApiError) as error:
            raise ProbeError(f"the object store does not answer: {error}") from error


async def object_exists_under(settings: Settings, bucket: str, prefix: str, *, seconds: float = 5.0) -> bool:
    """`StoreProbe.object_exists_under` for a single question. Raises ProbeError."""
    probe = StoreProbe(settings)
    try:
        return await probe.object_exists_under(bucket, prefix, seconds=seconds)
    finally:
        await probe.close()
