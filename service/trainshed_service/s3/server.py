"""The gateway's process: settings → parts → listener; ends on SIGTERM or SIGINT after the requests in progress.

Invariant: a request that was accepted before the signal is answered, if that takes no longer than `DRAIN_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
import uvloop

from trainshed_service.clock import Clock, SystemClock
from trainshed_service.identity import IdentityService
from trainshed_service.s3.access_log import AccessLog
from trainshed_service.s3.authorization import CACHE_SECONDS, CallerDirectory
from trainshed_service.s3.gateway import Gateway
from trainshed_service.s3.http_server import HttpServer
from trainshed_service.s3.sse import SseEditor, SseMode
from trainshed_service.s3.upstream import Store
from trainshed_service.settings import Settings
from trainshed_service.store import Database

DRAIN_SECONDS = 10.0

log = structlog.get_logger(__name__)


@dataclass
class RunningGateway:
    """A gateway that listens; `close` ends it."""

    port: int
    _server: HttpServer
    _access_log: AccessLog
    _store: Store
    _database: Database

    async def close(self) -> None:
        await self._server.close(DRAIN_SECONDS)
        await self._store.close()
        self._access_log.flush()
        self._database.close()


async def start_gateway(settings: Settings, clock: Clock | None = None) -> RunningGateway:
    """Listen on `settings.host:gateway_port` (0: a free port). Raises ValueError for settings that cannot work."""
    clock = clock or SystemClock()
    if not (settings.store_endpoint and settings.store_access_key and settings.store_secret_key):
        raise ValueError(
            "the gateway needs a store: set TRAINSHED_STORE_ENDPOINT, TRAINSHED_STORE_ACCESS_KEY and"
            " TRAINSHED_STORE_SECRET_KEY"
        )
    try:
        mode = SseMode(settings.sse_mode)
    except ValueError:
        raise ValueError(f"TRAINSHED_SSE_MODE is '{settings.sse_mode}', it must be aes or strip") from None
    database = Database(settings.resolved_database_url, readers=2)
    store = Store(settings, clock)
    access_log = AccessLog(sys.stdout)
    identity = IdentityService(settings.home, clock, cache_seconds=CACHE_SECONDS)
    gateway = Gateway(
        store=store,
        callers=CallerDirectory(identity, database),
        sse=SseEditor(mode, f"arn:aws:kms:{settings.region}:{settings.account_id}:alias/aws/s3"),
        clock=clock,
        access_log=access_log,
        account_id=settings.account_id,
        region=settings.region,
        base_hosts=base_hosts(settings),
    )
    server = HttpServer(gateway.handle)
    port = await server.listen(settings.host, settings.gateway_port)
    return RunningGateway(port, server, access_log, store, database)


def base_hosts(settings: Settings) -> list[str]:
    """Host names before which a bucket's name may stand (virtual-host style)."""
    names = ["localhost"]
    for url in (settings.gateway_url, settings.public_url):
        host = urlsplit(url).hostname if url else None
        if host and not host.replace(".", "").isdigit() and ":" not in host and host not in names:
            names.append(host)
    return names


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running = await start_gateway(settings)
    log.info("gateway listens", host=settings.host, port=running.port, sse=settings.sse_mode)
    await stop.wait()
    log.info("gateway ends")
    await running.close()


def main() -> int:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    try:
        uvloop.run(_run(Settings()))  # type: ignore[call-arg]
    except (ValueError, OSError) as error:
        print(f"trainshed gateway: {error}", file=sys.stderr)
        return 1
    return 0
