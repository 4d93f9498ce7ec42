"""The gateway's connection to the store: requests are signed with the store's key and sent once.

Invariant: a request whose body is a stream is never sent twice, and an answer is either the store's own or a clean 503
that clients repeat. A store that is just being restarted is waited for, at most `patience` seconds, as long as nothing
of the request was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import aiohttp
import structlog
from yarl import URL

from trainshed_service.clock import Clock
from trainshed_service.s3.answers import store_unavailable
from trainshed_service.s3.signing import StoreSigner, canonical_query
from trainshed_service.settings import Settings

log = structlog.get_logger(__name__)

_READ_BUFFER = 256 * 1024
_SKIPPED = frozenset({"Content-Type", "User-Agent", "Accept", "Accept-Encoding"})


class OnceBody:
    """A streamed request body that can be iterated once. `started` is called when the store wants the first byte.

    `failure` keeps what went wrong inside the stream, which the HTTP client would only report as a broken connection.
    """

    def __init__(
        self, pieces: AsyncIterator[bytes], started: Callable[[], Coroutine[Any, Any, None]] | None = None
    ) -> None:
        self._pieces = pieces
        self._started = started
        self.begun = False
        self.failure: Exception | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[bytes]:
        if self.begun:
            raise RuntimeError("a streamed body cannot be sent twice")
        self.begun = True
        try:
            if self._started is not None:
                await self._started()
            async for piece in self._pieces:
                yield piece
        except Exception as error:
            self.failure = error
            raise


class Store:
    """An open pool of connections to the store. Make it inside the event loop; `close` it."""

    def __init__(self, settings: Settings, clock: Clock, *, patience: float = 3.0) -> None:
        endpoint = URL(settings.store_endpoint)
        if endpoint.host is None or endpoint.scheme not in ("http", "https"):
            raise ValueError("TRAINSHED_STORE_ENDPOINT must be the http(s) URL of an S3 service")
        self._base = str(endpoint.origin())
        port = "" if endpoint.is_default_port() else f":{endpoint.port}"
        self._signer = StoreSigner(
            settings.store_access_key, settings.store_secret_key, settings.region, endpoint.host + port
        )
        self._clock = clock
        self._patience = patience
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=20.0, use_dns_cache=True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=300.0),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_SKIPPED,
            read_bufsize=_READ_BUFFER,
            max_line_size=32 * 1024,
            max_field_size=32 * 1024,
        )

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
        *,
        payload: str,
        body: bytes | OnceBody | None,
        wait_for_continue: bool = False,
    ) -> aiohttp.ClientResponse:
        """The store's answer, its body still to be read; `release` or `close` it.

        `path` strictly encoded, `headers` lower-case (changed in place). Raises the body's own failure where its stream
        failed, ApiError(SlowDown, 503) where the store is not there.
        """
        raw_query = canonical_query(query)
        self._signer.sign(method, path, raw_query, headers, payload, self._clock.now())
        url = URL(f"{self._base}{path}?{raw_query}" if raw_query else self._base + path, encoded=True)
        deadline = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                return await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=body,
                    allow_redirects=False,
                    expect100=wait_for_continue,
                )
            except aiohttp.ClientConnectorError as error:
                # Nothing was sent yet.
                if asyncio.get_running_loop().time() >= deadline:
                    log.warning("store not reachable", reason=str(error))
                    raise store_unavailable() from error
                await asyncio.sleep(0.1)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if isinstance(body, OnceBody) and body.failure is not None:
                    raise body.failure from None
                log.warning("store did not answer", method=method, reason=f"{type(error).__name__}: {error}")
                raise store_unavailable() from error
