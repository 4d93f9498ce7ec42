"""The dashboard as an ASGI application: its routes, who may see them, and its errors as pages.

Invariant: every page but the login runs only for a person with a session; whoever has none is sent to the login and
comes back to where they wanted to go.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from trainshed_service.dashboard.files import FilesPage
from trainshed_service.dashboard.job import JobPage
from trainshed_service.dashboard.jobs import JobsPage
from trainshed_service.dashboard.live import Live
from trainshed_service.dashboard.login import Login, login_url
from trainshed_service.dashboard.new_job import NewJobPage
from trainshed_service.dashboard.nodes import NodesPages
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.pools import PoolsPages
from trainshed_service.dashboard.queue import QueuePage
from trainshed_service.dashboard.security import Csrf, SecureHeaders
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.rest.cookies import session_cookie
from trainshed_service.services import Services
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.http import AsgiApp

_log = structlog.get_logger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
PageHandler = Callable[[Request, Visitor], Awaitable[Response]]


def create_dashboard(services: Services) -> AsgiApp:
    """Serves what `routing.claims` gives it."""
    pages = Pages()
    csrf = Csrf(services)
    login = Login(services, pages, csrf)
    live = Live(services, pages)
    nodes = NodesPages(services, live, csrf)
    pools = PoolsPages(services, live, csrf)
    queue = QueuePage(services, live)
    jobs = JobsPage(services, pages, csrf)
    new_job = NewJobPage(services, pages, csrf)
    job = JobPage(services, pages, csrf)
    files = FilesPage(services, pages)

    def seen(handler: PageHandler) -> Handler:
        async def page(request: Request) -> Response:
            token = request.cookies.get(session_cookie(services))
            sessions = services.identity.sessions
            principal = (
                await services.database.read(lambda session: sessions.authenticate(session, token)) if token else None
            )
            if token is None or principal is None:
                if "x-live" in request.headers or "text/event-stream" in request.headers.get("accept", ""):  # a script
                    return Response(status_code=401)
                return RedirectResponse(login_url(request) if request.method != "POST" else "/login", 303)
            request.state.visitor = Visitor(principal, token, csrf.token(token))
            return await handler(request, request.state.visitor)

        return page

    async def home(_request: Request) -> Response:
        return RedirectResponse("/jobs", 303)

    async def static(request: Request) -> Response:
        return pages.static(request.path_params["version"], request.path_params["name"])

    async def icon(_request: Request) -> Response:
        return pages.static(pages.version, "icon.svg")

    def failed(request: Request, status: int, message: str) -> Response:
        """The page of an error, with the way to all pages where it is known who looks."""
        visitor = getattr(request.state, "visitor", None)
        known = {} if visitor is None else {"visitor": visitor}
        return pages.render("error.html", status=status, code=status, message=message, **known)

    def refusal(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        is_absent = error.message == "Requested resource not found."
        status = 404 if is_absent else error.status
        text = "There is no such job: it was never there, or it was deleted." if is_absent else error.message
        return failed(request, status, text)

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        words = "There is no such page." if error.status_code == 404 else str(error.detail)
        return failed(request, error.status_code, words)

    def fault(request: Request, error: Exception) -> Response:
        request_id = str(uuid.uuid4())
        _log.error("dashboard.failed", path=request.url.path, request_id=request_id, exc_info=error)
        words = f"Something went wrong in the service. Its log has it under {request_id}."
        return failed(request, 500, words)

    def gone(_request: Request, _error: Exception) -> Response:
        return Response(status_code=400)  # nobody is there to read it

    routes = [
        Route("/", home),
        Route("/login", login.form),
        Route("/login", login.submit, methods=["POST"]),
        Route("/logout", login.logout, methods=["POST"]),
        Route("/jobs", seen(jobs.page)),
        Route("/jobs/stop", seen(jobs.stop), methods=["POST"]),
        Route("/new-job", seen(new_job.page)),
        Route("/new-job", seen(new_job.submit), methods=["POST"]),
        Route("/new-job/check", seen(new_job.check), methods=["POST"]),
        Route("/nodes", seen(nodes.page)),
        Route("/nodes/{id}", seen(nodes.one)),
        Route("/nodes/{id}/drain", seen(nodes.drain), methods=["POST"]),
        Route("/nodes/{id}/undrain", seen(nodes.undrain), methods=["POST"]),
        Route("/pools", seen(pools.page)),
        Route("/pools/{name}", seen(pools.one)),
        Route("/pools/{name}/extend", seen(pools.extend), methods=["POST"]),
        Route("/pools/{name}/end", seen(pools.end), methods=["POST"]),
        Route("/queue", seen(queue.page)),
        Route("/jobs/{name}", seen(job.page)),
        Route("/jobs/{name}/log", seen(job.log)),
        Route("/jobs/{name}/files", seen(files.page)),
        Route("/jobs/{name}/download", seen(files.download)),
        Route("/jobs/{name}/stop", seen(job.stop), methods=["POST"]),
        Route("/static/{version}/{name}", static),
        Route("/favicon.ico", icon),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            ApiError: refusal,
            HTTPException: http_error,
            ClientDisconnect: gone,
            Exception: fault,
        },
    )
    return SecureHeaders(app)
