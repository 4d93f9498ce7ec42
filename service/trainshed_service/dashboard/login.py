"""Login by access key, bearer token or a one-time link, and logout.

Invariants: secrets are compared in constant time, and an unknown key takes the same path as a wrong secret; a failed
login tells nothing but that it failed; every login makes a new session (none is taken over from before it); only
people's keys log in, never the keys of jobs.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlencode

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard.limits import FailureLimiter
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.routing import safe_target
from trainshed_service.dashboard.security import (
    Csrf,
    browser_mark,
    clear_session,
    read_form,
    set_browser_mark,
    set_session,
)
from trainshed_service.identity import key_origin, token_origin
from trainshed_service.rest.cookies import session_cookie
from trainshed_service.services import Services

_log = structlog.get_logger(__name__)
_WRONG = "That key and secret, or token, is not known here."
_USED = "This link was used already or is older than 5 minutes. Get another one with: trainshed dashboard"
_NOTHING = "x" * 40


class Login:
    def __init__(self, services: Services, pages: Pages, csrf: Csrf) -> None:
        self._services = services
        self._pages = pages
        self._csrf = csrf
        self._limiter = FailureLimiter(services.clock)

    async def form(self, request: Request) -> Response:
        """GET /login. With `?once=…` a page that sends the link's token; opening it alone uses nothing up, so that
        what looks at links before people do (chat, mail) does not spend it."""
        if "once" not in request.query_params and await self._is_logged_in(request):
            return RedirectResponse(safe_target(request.query_params.get("next")), 303)
        return self._page(request, request.query_params.get("next"))

    async def submit(self, request: Request) -> Response:
        """POST /login."""
        form = await read_form(request)
        mark, is_new = browser_mark(request, self._services)
        self._csrf.check(request, None if is_new else mark, form)
        address = request.client.host if request.client else ""
        wait = self._limiter.wait_seconds(address)
        if wait > 0:
            message = f"Too many failed logins. Try again in {int(wait) + 1} s."
            answer = self._page(request, form.get("next"), error=message, status=429)
            answer.headers["retry-after"] = str(int(wait) + 1)
            return answer
        session = await self._open(form)
        if session is None:
            self._limiter.failed(address)
            _log.warning("dashboard.login_failed", address=address)
            return self._page(request, form.get("next"), error=_USED if form.get("once") else _WRONG, status=401)
        response = RedirectResponse(safe_target(form.get("next")), 303)
        set_session(response, self._services, session)
        return response

    async def logout(self, request: Request) -> Response:
        """POST /logout."""
        token = request.cookies.get(session_cookie(self._services))
        form = await read_form(request)
        self._csrf.check(request, token, form)
        assert token is not None  # check refuses a form without it
        sessions = self._services.identity.sessions
        await self._services.database.write(lambda session: sessions.close(session, token))
        response = RedirectResponse("/login", 303)
        clear_session(response, self._services)
        return response

    async def _open(self, form: dict[str, str]) -> str | None:
        """A new session; null where what was given is not right."""
        once = form.get("once", "").strip()
        if once:
            return await self._services.database.write(
                lambda session: self._services.identity.sessions.redeem_link(session, once)
            )
        found = await self._by_token(form) if form.get("token", "").strip() else await self._by_key(form)
        if found is None:
            return None
        user_id, origin = found
        return await self._services.database.write(
            lambda session: self._services.identity.sessions.open(session, user_id, origin)
        )

    async def _by_token(self, form: dict[str, str]) -> tuple[int, str] | None:
        token = form["token"].strip()
        identity = self._services.identity
        principal = await self._services.database.read(lambda session: identity.authenticate_bearer(session, token))
        if principal is None or principal.user_id is None:
            return None
        return principal.user_id, token_origin(token)

    async def _by_key(self, form: dict[str, str]) -> tuple[int, str] | None:
        key_id = form.get("key", "").strip()[:128]
        given = form.get("secret", "").strip()
        record = await self._services.identity.find_key(self._services.database, key_id)
        secret = record.secret if record is not None else _NOTHING
        is_right = hmac.compare_digest(secret.encode(), given.encode("utf-8", "surrogateescape"))
        if record is None or not is_right or not record.active or record.principal.user_id is None:
            return None
        if record.expires_at is not None and record.expires_at <= self._services.clock.now():
            return None
        return record.principal.user_id, key_origin(key_id)

    async def _is_logged_in(self, request: Request) -> bool:
        token = request.cookies.get(session_cookie(self._services))
        if not token:
            return False
        sessions = self._services.identity.sessions
        return await self._services.database.read(lambda s: sessions.authenticate(s, token)) is not None

    def _page(self, request: Request, target: str | None, *, error: str = "", status: int = 200) -> Response:
        mark, is_new = browser_mark(request, self._services)
        once = request.query_params.get("once", "") if not error else ""
        response = self._pages.render(
            "login.html",
            status=status,
            csrf=self._csrf.token(mark),
            error=error,
            next=safe_target(target),
            once=once[:100],
        )
        if is_new:
            set_browser_mark(response, self._services, mark)
        return response


def login_url(request: Request) -> str:
    """The login, and then back to this page."""
    query = f"?{request.url.query}" if request.url.query else ""
    return "/login?" + urlencode({"next": request.url.path + query})
