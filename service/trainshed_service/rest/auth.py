"""Who calls: a bearer token, or a SigV4 signature over exactly the body that the handler gets.

Invariants: a handler that asks for a `Caller` runs only for a verified principal; a body is bounded before it is kept;
what goes on for long asks `reach_now` again and again, so that it ends with the credential that it was opened with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from fastapi import Request

from trainshed_service.identity import Principal, allows
from trainshed_service.jobs.reach import Reach, to_see
from trainshed_service.rest.cookies import session_cookie
from trainshed_service.services import Services
from trainshed_service.wire import sigv4
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.http import MAX_BODY_BYTES
from trainshed_service.wire.signature_errors import Framing, SignatureError


class Unauthenticated(ApiError):
    """Answered with 401, whatever AWS's own status is."""


Renew = Callable[[], Awaitable[Principal | None]]


@dataclass(frozen=True)
class Caller:
    """`body` as it came, byte for byte. `renew`: whom the same credential stands for now; None: for nobody any more."""

    principal: Principal
    services: Services
    body: bytes
    renew: Renew | None = None

    @property
    def reach(self) -> Reach:
        """The jobs that the caller may see."""
        return to_see(self.principal, self.services.settings)

    async def reach_now(self) -> Reach | None:
        """`reach` by what the credential is worth at this moment; None where it was revoked or has run out."""
        principal = await self.renew() if self.renew is not None else self.principal
        return to_see(principal, self.services.settings) if principal is not None else None

    def require_admin(self, what: str) -> None:
        """AccessDeniedException for everybody else. `what` they would do, in words."""
        if self.principal.kind != "user" or not self.principal.is_admin:
            raise ApiError(
                "AccessDeniedException", f"Only an administrator may {what}; {self.principal.arn} is none.", 403
            )

    def require(self, action: str) -> None:
        """AccessDeniedException where the principal may not do `action`, e.g. `sagemaker:StopTrainingJob`."""
        if not allows(self.principal, action):
            raise ApiError("AccessDeniedException", f"{self.principal.arn} is not authorized to perform: {action}", 403)


async def authenticate(request: Request) -> Caller:
    """The dependency of every route that is not public."""
    services: Services = request.app.state.services
    body = await _body(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    renew: Renew
    if scheme.lower() == "bearer":
        renew = partial(_by_token, services, token.strip())
        principal = await renew()
        if principal is None:
            raise Unauthenticated("UnrecognizedClientException", "The bearer token is not known or has run out.")
        return Caller(principal, services, body, renew)
    if not scheme and "X-Amz-Signature" not in request.query_params:
        renew = partial(_by_session, request, services)
        principal = await renew()
        if principal is not None:
            return Caller(principal, services, body, renew)
        raise Unauthenticated(
            "MissingAuthenticationTokenException",
            "Sign the request with AWS Signature Version 4, or send `Authorization: Bearer <token>`.",
        )
    key_id, principal = await _verify(request, services, body)
    return Caller(principal, services, body, partial(_by_key, services, key_id))


async def _by_token(services: Services, token: str) -> Principal | None:
    return await services.database.read(lambda session: services.identity.authenticate_bearer(session, token))


async def _by_key(services: Services, key_id: str) -> Principal | None:
    """Whom the key stands for, where it may still be used: the signature was checked before."""
    record = await services.identity.find_key(services.database, key_id)
    if record is None or not record.active:
        return None
    is_over = record.expires_at is not None and record.expires_at <= services.clock.now()
    return None if is_over else record.principal


async def _by_session(request: Request, services: Services) -> Principal | None:
    """The person whose dashboard reads here. Only reads: a cookie comes along with forged requests too."""
    token = request.cookies.get(session_cookie(services))
    if not token or request.method not in ("GET", "HEAD") or request.headers.get("sec-fetch-site") == "cross-site":
        return None
    sessions = services.identity.sessions
    return await services.database.read(lambda session: sessions.authenticate(session, token))


async def _verify(request: Request, services: Services, body: bytes) -> tuple[str, Principal]:
    """The key that signed, and whose it is."""
    scope = request.scope
    try:
        signed = sigv4.parse(
            scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], framing=Framing.JSON
        )
        record = await services.identity.find_key(services.database, signed.access_key_id)
        digest = hashlib.sha256(body).hexdigest()
        sigv4.verify(signed, record, body_sha256=digest, now=services.clock.now(), services={"sagemaker"})
    except SignatureError as error:
        framed = error.framed(Framing.JSON)
        raise Unauthenticated(framed.code, framed.message) from None
    assert record is not None  # verify refuses unknown keys
    return signed.access_key_id, record.principal


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MAX_BODY_BYTES:
            raise ApiError("RequestEntityTooLarge", f"The request body is larger than {MAX_BODY_BYTES} bytes.", 413)
    return bytes(parts)
