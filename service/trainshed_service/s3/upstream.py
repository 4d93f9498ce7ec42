"""The gateway's way to the store: requests are signed with the store's key and sent once.

Invariant: a request whose body is a stream is never sent twice, and an answer is either the store's own or a clean 503
that clients repeat. A store that is just being restarted is waited for, at most `patience` seconds, as long as nothing
of the request was sent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

import structlog

from trainshed_service.clock import Clock
from trainshed_service.s3.answers import store_unavailable
from trainshed_service.s3.signing import StoreSigner, canonical_query
from trainshed_service.s3.store_connection import OnceBody, StoreAnswer, StoreConnection, StoreGone, request_head
from trainshed_service.settings import Settings

__all__ = ["OnceBody", "Store", "StoreAnswer", "StoreGone"]

log = structlog.get_logger(__name__)

_CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 20.0
_SILENCE_SECONDS = 300.0
_SWEEP_SECONDS = 5.0
_DEFAULT_PORTS = {"http": 80, "https": 443}
# What HTTP allows to be sent again when a kept connection turns out to be closed.
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class Store:
    """An open pool of connections to the store. Make it inside the event loop; `close` it."""

    def __init__(
        self, settings: Settings, clock: Clock, *, patience: float = 3.0, silence: float = _SILENCE_SECONDS
    ) -> None:
        endpoint = urlsplit(settings.store_endpoint)
        if endpoint.hostname is None or endpoint.scheme not in _DEFAULT_PORTS:
            raise ValueError("TRAINSHED_STORE_ENDPOINT must be the http(s) URL of an S3 service")
        self._host = endpoint.hostname
        self._port = endpoint.port or _DEFAULT_PORTS[endpoint.scheme]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        port = "" if self._port == _DEFAULT_PORTS[endpoint.scheme] else f":{self._port}"
        self._tls = ssl.create_default_context() if endpoint.scheme == "https" else None
        self._signer = StoreSigner(settings.store_access_key, settings.store_secret_key, settings.region, shown + port)
        self._clock = clock
        self._patience = patience
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._free: deque[StoreConnection] = deque()
        self._all: set[StoreConnection] = set()
        self._closed = False
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    async def close(self) -> None:
        self._closed = True
        self._sweeper.cancel()
        for connection in list(self._all):
            connection.transport.abort()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | list[tuple[str, str]],
        headers: dict[str, str],
        *,
        payload: str,
        body: bytes | OnceBody | None,
        wait_for_continue: bool = False,
    ) -> StoreAnswer:
        """The store's answer, its body still to be read; `release` or `close` it.

        `path` strictly encoded, `headers` lower-case (changed in place). Raises the body's own failure where its stream
        failed, ApiError(SlowDown, 503) where the store is not there.
        """
        raw_query = canonical_query(query.items() if isinstance(query, Mapping) else query)
        self._signer.sign(method, path, raw_query, headers, payload, self._clock.now())
        chunked = False
        if isinstance(body, OnceBody):
            if "content-length" not in headers:
                headers["transfer-encoding"] = "chunked"
                chunked = True
            if wait_for_continue:
                headers["expect"] = "100-continue"
        elif body is not None or method in ("PUT", "POST"):
            headers["content-length"] = str(len(body or b""))
        head = request_head(method, f"{path}?{raw_query}" if raw_query else path, headers)
        deadline = self._loop.time() + self._patience
        while True:
            try:
                connection = self._kept() or await self._connect()
            except (OSError, TimeoutError) as error:
                # Nothing was sent yet.
                if self._loop.time() >= deadline:
                    log.warning("store not reachable", reason=str(error))
                    raise store_unavailable() from error
                await asyncio.sleep(0.1)
                continue
            try:
                return await connection.exchange(
                    method, head, body, chunked=chunked, wait_for_continue=wait_for_continue
                )
            except StoreGone as error:
                unsent = not (isinstance(body, OnceBody) and body.begun) and method in _REPEATABLE
                if connection.used and not connection.heard and unsent:
                    continue  # the store had closed the connection that was kept
                log.warning("store did not answer", method=method, reason=str(error))
                raise store_unavailable() from error

    # -- the pool ------------------------------------------------------------------------------------------------

    def _kept(self) -> StoreConnection | None:
        while self._free:
            connection = self._free.pop()
            if not connection.lost and not connection.transport.is_closing():
                return connection
        return None

    async def _connect(self) -> StoreConnection:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, connection = await self._loop.create_connection(
                lambda: StoreConnection(self._keep, self._drop, silence=self._silence),
                self._host,
                self._port,
                ssl=self._tls,
            )
        if self._closed:
            connection.transport.abort()
            raise ConnectionAbortedError("the gateway ends")
        self._all.add(connection)
        return connection

    def _keep(self, connection: StoreConnection) -> None:
        if self._closed:
            connection.transport.abort()
        else:
            self._free.append(connection)

    def _drop(self, connection: StoreConnection) -> None:
        self._all.discard(connection)
        if connection in self._free:
            self._free.remove(connection)

    def _sweep(self) -> None:
        now = self._loop.time()
        while self._free and now - self._free[0].idle_since > _IDLE_SECONDS:
            self._free.popleft().transport.close()
        for connection in list(self._all):
            connection.check_silence(now)
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
