"""What keeps a browser safe here: headers of every answer, the session cookie, CSRF tokens of every form.

Invariants: a page loads and sends nothing beyond this origin and runs no inline script or style; a form is accepted
only with a token that was made for the very session (before the login: for the very browser) that sends it, and never
from another site's page.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from trainshed_service.identity import SESSION_SECONDS
from trainshed_service.rest.cookies import login_cookie, session_cookie
from trainshed_service.services import Services
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.http import AsgiApp, Message, Receive, Scope, Send

MAX_FORM_BYTES = 64 * 1024
CSRF_FIELD = "csrf"
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
)


class SecureHeaders:
    """Puts `HEADERS` on whatever the application answers, errors included."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                if not any(name == b"cache-control" for name, _ in given):
                    given.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*given, *HEADERS]}
            await send(message)

        await self._app(scope, receive, with_headers)


class Csrf:
    """Tokens are a MAC over the cookie that they go with, so nothing has to be kept."""

    def __init__(self, services: Services) -> None:
        self._key = services.identity.derive_key("dashboard-csrf")

    def token(self, cookie: str) -> str:
        mac = hmac.digest(self._key, cookie.encode("utf-8", "surrogateescape"), hashlib.sha256)
        return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()

    def check(self, request: Request, cookie: str | None, form: dict[str, str]) -> None:
        """ApiError 403 where the form does not come from a page that we gave to this browser."""
        given = form.get(CSRF_FIELD, "").encode("utf-8", "surrogateescape")
        if not cookie or not hmac.compare_digest(given, self.token(cookie).encode()) or _is_foreign(request):
            raise ApiError("Forbidden", "This form is from another session. Reload the page and try again.", 403)


def _is_foreign(request: Request) -> bool:
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = request.headers.get("origin")
    return origin not in (None, "null") and urlsplit(origin).netloc != request.headers.get("host")


async def read_form(request: Request, most: int = MAX_FORM_BYTES) -> dict[str, str]:
    """The fields of a form of at most `most` bytes. ApiError 413, 400."""
    return dict(await read_fields(request, most))


async def read_fields(request: Request, most: int = MAX_FORM_BYTES) -> list[tuple[str, str]]:
    """`read_form`, where a name may come more than once."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > most:
            raise ApiError("RequestEntityTooLarge", f"A form has at most {most} bytes.", 413)
    text = parts.decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise ApiError("BadRequest", "A form has at most 100 fields.", 400) from None


def set_session(response: Response, services: Services, token: str) -> None:
    _set(response, services, session_cookie(services), token, int(SESSION_SECONDS), "lax")


def clear_session(response: Response, services: Services) -> None:
    _set(response, services, session_cookie(services), "", 0, "lax")


def browser_mark(request: Request, services: Services) -> tuple[str, bool]:
    """The random value that ties login forms to a browser, and whether it is new (and has to be set)."""
    known = request.cookies.get(login_cookie(services))
    return (known, False) if known and 20 <= len(known) <= 100 else (secrets.token_urlsafe(24), True)


def set_browser_mark(response: Response, services: Services, mark: str) -> None:
    _set(response, services, login_cookie(services), mark, 24 * 3600, "strict")


def _set(response: Response, services: Services, name: str, value: str, seconds: int, same_site: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        path="/",
        httponly=True,
        secure=services.settings.resolved_public_url.startswith("https:"),
        samesite="strict" if same_site == "strict" else "lax",
    )
