"""A file-like object whose bytes become one S3 object, with no copy on disk and bounded memory.

Invariant: the object appears only when `close` succeeds, whole; on `abort`, or when the process dies, readers see what
was there before. Memory is at most (IN_FLIGHT + 1) parts. Parts grow, so an object may have 5 TiB within 10,000 parts.
"""

import contextlib
import io
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainshed_worker.data.store import Location, ObjectStore, error_code
from trainshed_worker.protocol import FailureCause

FIRST_PART = 8 << 20
IN_FLIGHT = 3
PARTS_PER_SIZE = 500
"""After this many parts the part size doubles."""


class ObjectWriter(io.RawIOBase):
    """Write-only stream into one object. Not thread-safe. Errors of the store are DataError with `cause`."""

    def __init__(
        self,
        store: ObjectStore,
        location: Location,
        cause: FailureCause,
        note: Callable[[str], None] = lambda _: None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self.store = store
        self.location = location
        self._what = f"writing {location.uri}"
        self._cause = cause
        self._note = note
        self._progress = progress
        self._buffer = bytearray()
        self._upload: str | None = None
        self._futures: list[Future[str]] = []
        self._pool: ThreadPoolExecutor | None = None
        self._room = threading.BoundedSemaphore(IN_FLIGHT)
        self._part_size = FIRST_PART
        self._ended = False
        self.written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take all of `data`; blocks while IN_FLIGHT parts are under way."""
        view = memoryview(data).cast("B")
        self._buffer += view
        self.written += len(view)
        while len(self._buffer) >= self._part_size:
            part = bytes(self._buffer[: self._part_size])
            del self._buffer[: self._part_size]
            self._send(part)
        return len(view)

    def tell(self) -> int:
        return self.written

    def _call(self, action: Callable[[], Any]) -> Any:
        return self.store.call(action, self._what, self._cause, self._note)

    def _send(self, data: bytes) -> None:
        for future in self._futures:
            if future.done():
                future.result()  # raises early instead of sending the rest for nothing
        target = {"Bucket": self.location.bucket, "Key": self.location.key}
        if self._upload is None:
            self._upload = self._call(lambda: self.store.client.create_multipart_upload(**target))["UploadId"]
            self._pool = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="upload")
        assert self._pool is not None
        number = len(self._futures) + 1
        if number % PARTS_PER_SIZE == 0:
            self._part_size *= 2
        upload = self._upload

        def put() -> str:
            try:
                answer = self._call(
                    lambda: self.store.client.upload_part(**target, UploadId=upload, PartNumber=number, Body=data)
                )
                self._progress(len(data))
                return str(answer["ETag"])
            finally:
                self._room.release()

        while not self._room.acquire(timeout=0.5):
            self.store.cancellation.check()
        self._futures.append(self._pool.submit(put))

    def finish(self) -> None:
        """Make the object appear. Call once, after the last write; on any error call `abort`."""
        target = {"Bucket": self.location.bucket, "Key": self.location.key}
        if self._upload is None:
            body = bytes(self._buffer)
            self._call(lambda: self.store.client.put_object(**target, Body=body))
            self._progress(len(body))
        else:
            if self._buffer:
                self._send(bytes(self._buffer))
            parts = [{"PartNumber": n, "ETag": future.result()} for n, future in enumerate(self._futures, 1)]
            self._call(lambda: self._complete(target, parts))
        self._buffer.clear()
        self._end()

    def _complete(self, target: dict[str, str], parts: list[dict[str, Any]]) -> None:
        try:
            self.store.client.complete_multipart_upload(
                **target, UploadId=self._upload, MultipartUpload={"Parts": parts}
            )
        except ClientError as error:
            # A repeated call whose first answer was lost: the object is there.
            if error_code(error) != "NoSuchUpload" or not self._is_there():
                raise

    def _is_there(self) -> bool:
        try:
            head = self.store.client.head_object(Bucket=self.location.bucket, Key=self.location.key)
        except ClientError:
            return False
        return int(head["ContentLength"]) == self.written

    def abort(self) -> None:
        """Drop what was sent; never raises for a store that is away (its own life-cycle rules remove old parts)."""
        if self._ended:
            return
        for future in self._futures:
            future.cancel()
        upload = self._upload
        self._end()
        if upload is not None:
            with contextlib.suppress(ClientError, BotoCoreError, OSError):
                self.store.client.abort_multipart_upload(
                    Bucket=self.location.bucket, Key=self.location.key, UploadId=upload
                )

    def _end(self) -> None:
        self._ended = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self._buffer = bytearray()


@contextlib.contextmanager
def object_writer(
    store: ObjectStore,
    location: Location,
    cause: FailureCause,
    note: Callable[[str], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Any:
    """`with object_writer(…) as out:` — the object appears at the end of the block, or not at all on an exception."""
    writer = ObjectWriter(store, location, cause, note, progress)
    try:
        yield writer
        writer.finish()
    except BaseException:
        writer.abort()
        raise
