"""The object store as a job's data sees it: short-lived credentials that can be replaced under way, retries with words.

Invariant: each request is signed with the newest credentials known at that moment, so a transfer outlives any single
set. A store that is away is waited for, at most `stall_seconds` without a single success; every wait is told to
`on_wait` in a sentence for the report.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
import botocore.loaders
import botocore.session
from botocore.config import Config
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as NotConnected
from urllib3.exceptions import HTTPError as TransportError

from trainshed_worker.data.errors import Cancelled, DataError
from trainshed_worker.protocol import FailureCause, ObjectStoreAccess

Result = TypeVar("Result")

STALL_SECONDS = 300.0
"""A transfer that has had no success for this long is given up."""
FIRST_WAIT = 0.2
LONGEST_WAIT = 10.0
CONNECTIONS = 32
_TRANSIENT_CODES = frozenset(
    {"SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Throttling", "ThrottlingException"}
)
# botocore's NotConnected (refused, no route, handshake) is no HTTPClientError and no OSError.
_AWAY = (TransportError, HTTPClientError, NotConnected, IncompleteReadError, ConnectionError, TimeoutError)
_NO_PROFILE = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_CONFIG = Config(
    signature_version="s3v4",
    s3={"addressing_style": "path"},
    retries={"total_max_attempts": 1},
    max_pool_connections=CONNECTIONS,
    connect_timeout=10,
    read_timeout=60,
    proxies={},
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
_EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})


class _Newest:
    """The newest set of credentials of one assignment."""

    def __init__(self, access: ObjectStoreAccess) -> None:
        self.access = access


class _CurrentCredentials(Credentials):
    """botocore credentials that read the newest set at each signature. `source` is set once, for good: a client never
    goes from one assignment to another, whose requests an old thread of the first could then sign."""

    def __init__(self) -> None:
        self.source: _Newest | None = None
        super().__init__("", "")

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        if self.source is None:
            raise RuntimeError("a spare client was used before an assignment had it")
        access = self.source.access
        return ReadOnlyCredentials(access.access_key_id, access.secret_access_key, access.session_token or None)


class _Spares:
    """At most one unused client per place, made while nobody waits: making one takes some tens of milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], tuple[Any, _CurrentCredentials]] = {}

    def make(self, endpoint: str, region: str) -> None:
        with self._lock:
            if (endpoint, region) in self._clients:
                return
        made = _new_client(endpoint, region)
        with self._lock:
            self._clients = {(endpoint, region): made}  # the place changes with the gateway's address alone

    def take(self, endpoint: str, region: str) -> tuple[Any, _CurrentCredentials]:
        with self._lock:
            spare = self._clients.pop((endpoint, region), None)
        return spare or _new_client(endpoint, region)


_spares = _Spares()


def make_spare_client(endpoint: str, region: str) -> None:
    """Have a client ready for the next assignment's store. Blocking; for times when nobody waits."""
    _spares.make(endpoint, region)


@dataclass(frozen=True)
class Location:
    """An s3:// URI taken apart; `key` has no leading slash and may be empty."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def below(self, name: str) -> "Location":
        """The object `name` in this prefix."""
        return Location(self.bucket, f"{self.key.rstrip('/')}/{name}".lstrip("/"))


def parse_uri(uri: str) -> Location:
    """ValueError for anything but s3://bucket[/key]. `?` and `#` belong to the key."""
    if not uri.startswith("s3://"):
        raise ValueError(f"{uri!r} is not an s3:// URI")
    bucket, _, key = uri[len("s3://") :].partition("/")
    if not bucket:
        raise ValueError(f"{uri!r} names no bucket")
    return Location(bucket, key)


class Cancellation:
    """A flag that threads look at between two pieces of work; `reason` says who asked."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        if self._event.is_set():
            raise Cancelled

    def wait(self, seconds: float) -> None:
        """Pause; raises Cancelled at once where the flag is set meanwhile."""
        if self._event.wait(seconds):
            raise Cancelled


def _ignore(_: str) -> None:
    return None


class ObjectStore:
    """An S3 client of one assignment. Thread-safe. Raises DataError with `cause` where the store refuses for good."""

    def __init__(
        self, access: ObjectStoreAccess, cancellation: Cancellation | None = None, stall_seconds: float = STALL_SECONDS
    ) -> None:
        self._newest = _Newest(access)
        self.cancellation = cancellation or Cancellation()
        self.stall_seconds = stall_seconds
        self.endpoint = access.endpoint_url
        self._region = access.region
        self._made: Any = None
        self._making = threading.Lock()

    @property
    def client(self) -> Any:
        """The boto3 client, made at the first use (it takes long, so in a transfer's own thread)."""
        with self._making:
            if self._made is None:
                self._made, credentials = _spares.take(self.endpoint, self._region)
                credentials.source = self._newest
            return self._made

    def renew(self, access: ObjectStoreAccess) -> None:
        """Use a fresh set of credentials from now on, in running transfers too."""
        self._newest.access = access

    def with_cancellation(self, cancellation: Cancellation) -> "ObjectStore":
        """The same client under another flag (an upload goes on after a download was stopped)."""
        return _Shared(self, cancellation)

    def call(
        self,
        action: Callable[[], Result],
        what: str,
        cause: FailureCause,
        on_wait: Callable[[str], None] = _ignore,
    ) -> Result:
        """Run `action`, again after a pause while the store is away; `what` is e.g. `reading s3://b/k`.

        `action` must be safe to repeat. Raises DataError, or Cancelled.
        """
        deadline = time.monotonic() + self.stall_seconds
        pause = FIRST_WAIT
        while True:
            self.cancellation.check()
            try:
                return action()
            except ClientError as error:
                if not _is_transient(error):
                    raise DataError(cause, _words(error, what)) from error
                trouble = _words(error, what)
            except _AWAY as error:
                trouble = f"{what}: the object store at {self.endpoint} does not answer ({_brief(error)})"
            except BotoCoreError as error:
                raise DataError(cause, f"{what}: {error}") from error
            if time.monotonic() + pause > deadline:
                raise DataError(cause, f"{trouble}; gave up after {self.stall_seconds:.0f} s")
            on_wait(trouble)
            self.cancellation.wait(pause * random.uniform(0.7, 1.3))
            pause = min(pause * 2, LONGEST_WAIT)


class _Shared(ObjectStore):
    """Another store's client and credentials under a flag of its own."""

    def __init__(self, origin: ObjectStore, cancellation: Cancellation) -> None:
        self._origin = origin
        self._newest = origin._newest
        self.cancellation = cancellation
        self.stall_seconds = origin.stall_seconds
        self.endpoint = origin.endpoint

    @property
    def client(self) -> Any:
        return self._origin.client


def _new_client(endpoint: str, region: str) -> tuple[Any, _CurrentCredentials]:
    credentials = _CurrentCredentials()
    return _maker().make(endpoint, region, credentials), credentials


class _ClientMaker:
    """Makes the clients of this process. They share a session, which takes longer to make than a client, and nothing
    that one of them could sign with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The node's own AWS profile must not reach into a job's transfers.
        self._core: Any = botocore.session.Session(session_vars=_NO_PROFILE)
        self._core.register_component("data_loader", botocore.loaders.create_loader())  # it keeps what it has parsed
        self._session = boto3.Session(botocore_session=self._core)

    def make(self, endpoint: str, region: str, credentials: Credentials) -> Any:
        with self._lock:
            self._core._credentials = credentials
            try:
                return self._session.client("s3", endpoint_url=endpoint, region_name=region, config=_CONFIG)
            finally:
                self._core._credentials = None


@cache
def _maker() -> _ClientMaker:
    return _ClientMaker()


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def error_code(error: ClientError) -> str:
    """The S3 error code, `404` for a bodiless HEAD answer."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_missing(error: ClientError) -> bool:
    """True where the object (or its bucket) does not exist."""
    return error_code(error) in ("404", "NoSuchKey", "NotFound", "NoSuchBucket")


def _is_transient(error: ClientError) -> bool:
    code = error_code(error)
    # An expired set is transient: the next desired state brings a fresh one.
    return _status(error) >= 500 or _status(error) == 429 or code in _TRANSIENT_CODES or code in _EXPIRED_CODES


def _brief(error: BaseException) -> str:
    text = str(error).replace("\n", " ")
    return text if len(text) <= 200 else text[:200] + "…"


def _words(error: ClientError, what: str) -> str:
    code = error_code(error)
    if code in ("403", "AccessDenied", "Forbidden"):
        return f"{what}: access denied; the job's role must be allowed to use this bucket and prefix"
    if code == "NoSuchBucket":
        return f"{what}: the bucket does not exist"
    if code in ("404", "NoSuchKey", "NotFound"):
        return f"{what}: there is no such object"
    message = str(error.response.get("Error", {}).get("Message", "")) or str(error)
    return f"{what}: {code} {message}".rstrip()


def host_of(url: str) -> str:
    """Host name of an endpoint, for messages."""
    return urlsplit(url).hostname or url
