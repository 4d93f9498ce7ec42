"""The REST application: routes, errors as `{"code", "message"}`, the OpenAPI document and an index of it.

Invariant: whatever a client sends, it gets a JSON error with a code; a fault of ours is logged whole under the id that
the client sees, and tells nothing of its nature.
"""

from __future__ import annotations

import html
import uuid
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from trainshed_service.rest import (
    jobs,
    log_windows,
    logs,
    notifications,
    planning,
    pools,
    queue,
    quotas,
    resources,
    roles,
    users,
)
from trainshed_service.rest.auth import Unauthenticated
from trainshed_service.rest.calls import rest_status
from trainshed_service.rest.documents import SCHEMAS
from trainshed_service.services import Services
from trainshed_service.wire.errors import ApiError

_log = structlog.get_logger(__name__)
_DESCRIPTION = (
    "Training jobs over plain JSON: the same objects and the same validation as SageMaker's own API. "
    "Authenticate with `Authorization: Bearer <token>` (see `trainshed env`) or with AWS Signature Version 4, service "
    "`sagemaker`. Errors are `{code, message}`; unknown members and parameters are refused by name."
)
_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "sigv4": {"type": "apiKey", "in": "header", "name": "Authorization", "description": "AWS Signature Version 4"},
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


def create_rest_app(services: Services) -> FastAPI:
    """Serves `/v1/…`, `/openapi.json` and `/docs`; the paths are whole, nothing is stripped before."""
    app = FastAPI(title="Trainshed", version="1", description=_DESCRIPTION, docs_url=None, redoc_url=None)
    app.state.services = services
    for part in (jobs, logs, log_windows, pools, queue, planning, resources, users, roles, quotas, notifications):
        app.include_router(part.router)
    app.add_api_route("/docs", _index, include_in_schema=False)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _bad_parameters)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _fault)
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {})
        kept = components.setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            kept.pop(unused, None)
        kept.update(SCHEMAS.components)
        components["securitySchemes"] = _SECURITY
        document["security"] = [{"bearer": []}, {"sigv4": []}]
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["4XX"] = {"description": "refused, with the reason", "content": content}
                operation["responses"]["5XX"] = {"description": "a fault of the service", "content": content}
        app.openapi_schema = document
    return app.openapi_schema


async def _index(request: Request) -> Response:
    """A page without scripts or anything from elsewhere."""
    document = request.app.openapi()
    rows = [
        f"<tr><td><b>{method.upper()}</b></td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(operation.get('description') or operation.get('summary', ''))}</td></tr>"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Trainshed API</title>"
        "<style>body{font:16px/1.5 sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
        "td{padding:.3rem .8rem .3rem 0;vertical-align:top}</style>"
        f"<h1>Trainshed API</h1><p>{html.escape(_DESCRIPTION)}</p>"
        f"<p>The whole description: <a href=/openapi.json>openapi.json</a></p><table>{''.join(rows)}</table></html>"
    )
    return HTMLResponse(page, headers={"content-security-policy": _POLICY, "x-content-type-options": "nosniff"})


async def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    body = {**error.detail, "code": error.code, "message": error.message}
    if isinstance(error, Unauthenticated):
        return JSONResponse(body, 401, headers={"www-authenticate": "Bearer"})
    return JSONResponse(body, rest_status(error))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "NotFound", 405: "MethodNotAllowed"}
    message = f"{request.method} {request.url.path[:300]} is not here; see /docs." if error.status_code == 404 else ""
    body = {"code": codes.get(error.status_code, "BadRequest"), "message": message or str(error.detail)}
    return JSONResponse(body, error.status_code, headers=error.headers)


async def _bad_parameters(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"code": "ValidationException", "message": f"{where}: {first['msg']}"}, 400)


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # nobody is there to read it


async def _fault(request: Request, error: Exception) -> Response:
    request_id = str(uuid.uuid4())
    _log.error("rest.failed", method=request.method, path=request.url.path, request_id=request_id, exc_info=error)
    message = f"We encountered an internal error. Please try again. (request {request_id})"
    return JSONResponse({"code": "InternalFailure", "message": message}, 500)
