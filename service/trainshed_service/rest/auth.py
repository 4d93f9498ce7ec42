"""Who calls: a bearer token, or a SigV4 signature over exactly the body that the handler gets.

Invariant: a handler that asks for a `Caller` runs only for a verified principal; a body is bounded before it is kept.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Caller:
    """`body` as it came, byte for byte."""

    principal: Principal
    services: Services
    body: bytes

    @property
    def reach(self) -> Reach:
        """The jobs that the caller may see."""
        return to_see(self.principal, self.services.settings)

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
    if scheme.lower() == "bearer":
        principal = await services.database.read(
            lambda session: services.identity.authenticate_bearer(session, token.strip())
        )
        if principal is None:
            raise Unauthenticated("UnrecognizedClientException", "The bearer token is not known or has run out.")
        return Caller(principal, services, body)
    if not scheme and "X-Amz-Signature" not in request.query_params:
        principal = await _by_session(request, services)
        if principal is not None:
            return Caller(principal, services, body)
        raise Unauthenticated(
            "MissingAuthenticationTokenException",
            "Sign the request with AWS Signature Version 4, or send `Authorization: Bearer <token>`.",
        )
    return Caller(await _verify(request, services, body), services, body)


async def _by_session(request: Request, services: Services) -> Principal | None:
    """The person whose dashboard reads here. Only reads: a cookie comes along with forged requests too."""
    token = request.cookies.get(session_cookie(services))
    if not token or request.method not in ("GET", "HEAD") or request.headers.get("sec-fetch-site") == "cross-site":
        return None
    sessions = services.identity.sessions
    return await services.database.read(lambda session: sessions.authenticate(session, token))


async def _verify(request: Request, services: Services, body: bytes) -> Principal:
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
    return record.principal


async def _body(request: Request) -> bytes:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MAX_BODY_BYTES:
            raise ApiError("RequestEntityTooLarge", f"The request body is larger than {MAX_BODY_BYTES} bytes.", 413)
    return bytes(parts)
