"""The ingest application: takes the agents' log lines and metric points, nothing else.

Invariants: an answer of 200 or 204 means that what was sent is durable; sending it again is harmless, so an agent that
got no answer sends again. Bodies are bounded before they are read into memory.
"""

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainshed_service.clock import Clock, SystemClock
from trainshed_service.logs.access import AgentAccess, Refused
from trainshed_service.logs.errors import UnknownStream
from trainshed_service.logs.store import LogStore
from trainshed_service.metrics import MetricStore
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_worker.protocol import LogBatch, LogBatchAck, MetricBatch

MAX_BODY_BYTES = 16 * 1024 * 1024
_log = logging.getLogger(__name__)
Message = TypeVar("Message", bound=BaseModel)


class Ingest:
    """The endpoints, over the two databases that they need."""

    def __init__(self, control: Database, logs: Database, clock: Clock) -> None:
        self._access = AgentAccess(control, clock)
        self._lines = LogStore(logs, clock)
        self._metrics = MetricStore(logs)
        self._logs = logs

    async def post_logs(self, request: Request) -> Response:
        agent_id = await self._access.authenticate(request.headers.get("authorization"))
        batch = await _read(request, LogBatch)
        share = await self._access.check(agent_id, batch.job_name, batch.attempt_id, batch.source)
        try:
            next_seq = await self._lines.append(batch, stream_epoch=share.stream_epoch)
        except UnknownStream as error:
            raise Refused(503, "StreamNotReady", f"{error}; it is made when the job is placed: send again") from error
        return JSONResponse(LogBatchAck(next_seq=next_seq).model_dump())

    async def post_metrics(self, request: Request) -> Response:
        agent_id = await self._access.authenticate(request.headers.get("authorization"))
        batch = await _read(request, MetricBatch)
        await self._access.check(agent_id, batch.job_name, batch.attempt_id, batch.source)
        await self._metrics.append(batch)
        return Response(status_code=204)

    async def healthz(self, _request: Request) -> Response:
        await self._logs.read(lambda session: session.connection().exec_driver_sql("SELECT 1").scalar_one())
        return JSONResponse({"status": "ok"})


async def _read(request: Request, kind: type[Message]) -> Message:
    """The body as `kind`. Refused: 413 where it is too long, 400 where it is not what it should be."""
    too_long = Refused(413, "BodyTooLarge", f"a batch has at most {MAX_BODY_BYTES} bytes: send fewer lines at once")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise too_long
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise too_long
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise Refused(400, "BadBatch", f"{where}: {first['msg']}") from error


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"code": error.code, "message": error.message}, status_code=error.status)


async def _disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    body = {"code": "InternalError", "message": "the batch was not stored, see the log of the ingest: send it again"}
    return JSONResponse(body, status_code=500)


def create_app(settings: Settings, clock: Clock | None = None) -> Starlette:
    """The application; it opens its databases when it starts and closes them, all accepted writes done, at its end."""
    control = Database(settings.resolved_database_url, readers=2)
    logs = Database(settings.resolved_logs_database_url, readers=2)
    ingest = Ingest(control, logs, clock or SystemClock())

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            logs.close()
            control.close()

    return Starlette(
        routes=[
            Route("/ingest/v1/logs", ingest.post_logs, methods=["POST"]),
            Route("/ingest/v1/metrics", ingest.post_metrics, methods=["POST"]),
            Route("/healthz", ingest.healthz),
        ],
        exception_handlers={Refused: _refused, ClientDisconnect: _disconnected, Exception: _failed},
        lifespan=lifespan,
    )
