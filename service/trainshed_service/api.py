"""The API process: AWS APIs, REST, the agent protocol, the scheduler and the life-cycle of jobs on the main port.

`python -m trainshed_service.api` serves until SIGTERM or SIGINT. The databases must have been migrated and the
installation bootstrapped by the launcher. Killing it at any line loses nothing: `NodeService.start` goes on from the
rows when it comes back.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING

import structlog
import uvicorn
from starlette.applications import Starlette

from trainshed_service.clock import Clock, SystemClock
from trainshed_service.core import Core, build_core
from trainshed_service.dashboard import claims, create_dashboard
from trainshed_service.logging_setup import configure_logging
from trainshed_service.nodes import agent_routes
from trainshed_service.operations import all_operations, load_validators
from trainshed_service.rest import create_rest_app
from trainshed_service.settings import Settings
from trainshed_service.wire.app import create_wire_app
from trainshed_service.wire.http import AsgiApp, Receive, Scope, Send, respond
from trainshed_service.wire.sigv4 import credential_service

if TYPE_CHECKING:
    from trainshed_service.passthrough import S3Passthrough

_log = structlog.get_logger(__name__)
_SWITCH_SECONDS = 0.001
"""How long a database thread may go on while the event loop waits for the interpreter."""
_REST_PATHS = ("/v1/", "/openapi.json", "/docs")


class Api:
    """One ASGI application over all parts; the parts are built when the server starts its lifespan."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._core: Core | None = None
        self._s3: S3Passthrough | None = None
        self._s3_opening = asyncio.Lock()
        self._wire: AsgiApp | None = None
        self._agents: AsgiApp | None = None
        self._rest: AsgiApp | None = None
        self._dashboard: AsgiApp | None = None
        self._warming: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._route(scope)(scope, receive, send)
        else:
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")

    def drain(self) -> None:
        """Answer waiting long-polls now, so that the server can end."""
        if self._core is not None:
            self._core.services.nodes.drain()

    def _route(self, scope: Scope) -> AsgiApp:
        """A bucket may be called `v1` or `agent`: what is signed for S3 is S3's, whatever its path."""
        assert self._wire is not None and self._agents is not None and self._rest is not None
        path: str = scope["path"]
        ours = path == "/healthz" or path.startswith(("/agent/v1/", *_REST_PATHS))
        if not ours and self._dashboard is not None and claims(scope):
            return self._dashboard
        if not ours or _is_s3(scope):
            return self._wire
        if path == "/healthz":
            return self._health
        if path.startswith("/agent/v1/"):
            return self._agents
        return self._rest

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        assert self._core is not None
        healthy = await self._core.is_healthy()
        body = b'{"status": "ok"}' if healthy else b'{"status": "the database does not answer"}'
        await respond(send, 200 if healthy else 503, [(b"content-type", b"application/json")], body)

    async def _hand_on_s3(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Its HTTP client is imported with the first request: most clients know the gateway's own address."""
        async with self._s3_opening:
            if self._s3 is None:
                module = await asyncio.to_thread(import_module, "trainshed_service.passthrough")
                passthrough: S3Passthrough = module.S3Passthrough(self.settings.resolved_gateway_url)
                await passthrough.open()
                self._s3 = passthrough
        await self._s3(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:  # noqa: BLE001 - the server reports it and ends
            _log.exception("api.start_failed")
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        core = await build_core(self.settings, self._clock)
        self._core = core
        services = core.services
        self._wire = create_wire_app(services, all_operations(), s3=self._hand_on_s3)
        self._agents = Starlette(routes=agent_routes(services.nodes))
        self._rest = create_rest_app(services)
        self._dashboard = create_dashboard(services)
        await services.nodes.start()
        services.notifications.start()
        # A second of work that the first caller would wait for; the server answers meanwhile.
        self._warming = asyncio.create_task(asyncio.to_thread(load_validators))
        _log.info("api.started", host=self.settings.host, port=self.settings.port, account=core.account_id)

    async def _stop(self) -> None:
        if self._warming is not None:
            await self._warming
        if self._s3 is not None:
            await self._s3.close()
        if self._core is not None:
            await self._core.close()


def _is_s3(scope: Scope) -> bool:
    headers: Mapping[bytes, bytes] = dict(scope["headers"])
    authorization = headers.get(b"authorization", b"").decode("latin-1")
    return credential_service(scope["query_string"].decode("latin-1"), authorization) == "s3"


class _Server(uvicorn.Server):
    """Lets the long-polls of the agents answer as soon as a signal asks the process to end."""

    def __init__(self, config: uvicorn.Config, api: Api) -> None:
        super().__init__(config)
        self._api = api
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._api.drain)
        super().handle_exit(sig, frame)


def preload() -> None:
    """What takes long and is the same in every process of this kind."""
    load_validators()


def main() -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    settings = Settings()  # type: ignore[call-arg]  # from TRAINSHED_* variables
    configure_logging("api")
    api = Api(settings)
    config = uvicorn.Config(
        api,
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
    )
    _Server(config, api).run()


if __name__ == "__main__":
    main()
