"""The agent protocol over HTTP (see `trainshed_worker.protocol.messages` for the table of endpoints)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainshed_service.nodes.errors import AgentError
from trainshed_service.nodes.service import NodeService
from trainshed_worker.protocol import EnrollRequest, ReportRequest

M = TypeVar("M", bound=BaseModel)
_MAX_BODY_BYTES = 16 * 1024 * 1024


def agent_routes(service: NodeService) -> list[Route]:
    """The routes below /agent/v1."""

    async def enroll(request: Request) -> Response:
        message = await _body(request, EnrollRequest)
        return _json(await service.enroll(_bearer(request), message))

    async def reports(request: Request) -> Response:
        agent_id = await service.authenticate(_bearer(request))
        return _json(await service.report(agent_id, await _body(request, ReportRequest)))

    async def desired(request: Request) -> Response:
        agent_id = await service.authenticate(_bearer(request))
        try:
            version = int(request.query_params.get("version", "0"))
            wait = float(request.query_params.get("wait", "0"))
        except ValueError:
            raise AgentError(400, "BadQuery", "'version' is an integer and 'wait' a number of seconds.") from None
        return _json(await service.desired(agent_id, version, wait))

    return [
        Route("/agent/v1/enroll", _framed(enroll), methods=["POST"]),
        Route("/agent/v1/reports", _framed(reports), methods=["POST"]),
        Route("/agent/v1/desired", _framed(desired), methods=["GET"]),
    ]


def _framed(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def framed(request: Request) -> Response:
        try:
            return await handler(request)
        except AgentError as error:
            return JSONResponse({"code": error.code, "message": error.message}, status_code=error.status)

    return framed


def _json(model: BaseModel) -> Response:
    return Response(model.model_dump_json(), media_type="application/json")


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise AgentError(401, "NoKey", "The request needs 'Authorization: Bearer …'.")
    return token.strip()


async def _body(request: Request, model: type[M]) -> M:
    """The whole body as `model`; 413 and 400 name what is wrong without repeating values (they may be secret)."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            raise AgentError(413, "TooLarge", f"A message may have at most {_MAX_BODY_BYTES} bytes.")
        chunks.append(chunk)
    try:
        return model.model_validate_json(b"".join(chunks))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)[:5]
        )
        raise AgentError(400, "BadMessage", f"The message is not a {model.__name__}: {wrong}") from None
