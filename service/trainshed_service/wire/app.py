"""The AWS side of the main port as one plain ASGI application, without a web framework on the way.

A request's protocol is found in this order: X-Amz-Target (JSON), an `Action` in a form or query (XML), the service of
its SigV4 credential scope, else it is S3 and handed on untouched. Then: body within the limit, signature, permission,
model constraints, operation. An operation that we do not have answers a well-formed error that names it.

Invariant: no operation runs unless the signature was verified over exactly the body that the operation gets.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from trainshed_service.identity.policy import allows
from trainshed_service.wire import constraints, json_protocol, query_protocol, sigv4
from trainshed_service.wire.context import Context, Operations
from trainshed_service.wire.errors import ApiError, internal_error
from trainshed_service.wire.http import AsgiApp, ClientGone, Receive, Scope, Send, read_body, respond
from trainshed_service.wire.models import operation_model, service_model
from trainshed_service.wire.service_table import BY_SIGNING_NAME, BY_TARGET, AwsService
from trainshed_service.wire.signature_errors import Framing, SignatureError

if TYPE_CHECKING:
    from trainshed_service.identity import Principal
    from trainshed_service.services import Services

_log = structlog.get_logger(__name__)
_FORM = b"application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class _Call:
    """One request on its way through the application."""

    scope: Scope
    headers: dict[bytes, bytes]
    request_id: str
    framing: Framing
    service: AwsService | None
    operation: str
    """As the client names it; for REST calls of services that we do not have, method and path."""
    query_mode: bool = False


def create_wire_app(services: Services, operations: Mapping[str, Operations], *, s3: AsgiApp | None = None) -> WireApp:
    """`operations` by botocore's service name (sagemaker, logs, cloudwatch, sts, iam); `s3` gets all that is S3."""
    return WireApp(services, operations, s3)


class WireApp:
    def __init__(self, services: Services, operations: Mapping[str, Operations], s3: AsgiApp | None) -> None:
        self._services = services
        self._operations = operations
        self._s3 = s3

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        headers = {name: value for name, value in scope["headers"]}
        call = self._route(scope, headers)
        if call is None:
            await self._hand_to_s3(scope, receive, send)
            return
        try:
            body = await read_body(receive, headers.get(b"content-length"))
        except ClientGone:
            return
        except ApiError as error:
            await _send_error(send, call, error, close=True)
            return
        try:
            await self._answer(call, body, send)
        except ApiError as error:
            await _send_error(send, call, error)

    # -- routing -----------------------------------------------------------------------------------------------

    def _route(self, scope: Scope, headers: dict[bytes, bytes]) -> _Call | None:
        """None: the request is S3's."""
        request_id = str(uuid.uuid4())
        target = headers.get(b"x-amz-target")
        if target is not None:
            prefix, _, operation = target.decode("latin-1").rpartition(".")
            query_mode = headers.get(b"x-amzn-query-mode", b"").lower() == b"true"
            service = BY_TARGET.get(prefix)
            name = operation if service else target.decode("latin-1")
            return _Call(scope, headers, request_id, Framing.JSON, service, name, query_mode)
        query = scope["query_string"].decode("latin-1")
        signing = sigv4.credential_service(query, headers.get(b"authorization", b"").decode("latin-1"))
        service = BY_SIGNING_NAME.get(signing or "")
        is_form = scope["method"] == "POST" and headers.get(b"content-type", b"").startswith(_FORM)
        if signing != "s3" and (is_form or (service is not None and service.query and "Action=" in query)):
            return _Call(scope, headers, request_id, Framing.QUERY, service, "")
        if signing in (None, "s3"):
            return None
        operation = f"{scope['method']} {scope['path']}"
        return _Call(scope, headers, request_id, Framing.JSON, None, operation)

    async def _hand_to_s3(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._s3 is not None:
            await self._s3(scope, receive, send)
            return
        body = b"<Error><Code>NotImplemented</Code><Message>There is no S3 on this port.</Message></Error>"
        await respond(send, 501, [(b"content-type", b"application/xml")], body)

    # -- one call ----------------------------------------------------------------------------------------------

    async def _answer(self, call: _Call, body: bytes, send: Send) -> None:
        form = _form_of(call, body) if call.framing is Framing.QUERY else {}
        operation = form.get("Action", "") if call.framing is Framing.QUERY else call.operation
        principal = await self._authenticate(call, body)
        handler = self._operations.get(call.service.name, {}).get(operation) if call.service else None
        model = operation_model(call.service.name, operation) if call.service and handler else None
        if call.service is None or handler is None or model is None:
            raise _unknown_operation(call, operation)
        unknown: list[str] = []
        if call.framing is Framing.QUERY:
            request, unknown = query_protocol.decode(form, model.input_shape)
        else:
            request = json_protocol.decode(body)
        validator = constraints.validator(call.service.name, operation)
        report = validator.check(request)
        report.raise_for(call.service.validation_code)
        _authorize(call.service, principal, operation)
        ctx = Context(
            principal=principal,
            services=self._services,
            raw_body=body,
            request_id=call.request_id,
            service=call.service.name,
            operation=operation,
            unknown_members=(*unknown, *report.unknown),
        )
        try:
            response = await handler(ctx, validator.normalize(request))
            if call.framing is Framing.QUERY:
                answer = query_protocol.render(service_model(call.service.name), model, response, call.request_id)
            else:
                answer = json_protocol.encode(response)
        except ApiError:
            raise
        except Exception:  # noqa: BLE001 - the client gets an answer, the log the fault
            _log.exception("operation failed", operation=operation, request_id=call.request_id)
            raise internal_error() from None
        await respond(send, 200, _headers(call), answer)

    async def _authenticate(self, call: _Call, body: bytes) -> Principal:
        scope = call.scope
        names = {call.service.signing_name} if call.service else None
        try:
            signed = sigv4.parse(
                scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], framing=call.framing
            )
            record = await self._services.identity.find_key(self._services.database, signed.access_key_id)
            digest = hashlib.sha256(body).hexdigest()
            sigv4.verify(signed, record, body_sha256=digest, now=self._services.clock.now(), services=names)
        except SignatureError as error:
            raise error.framed(call.framing) from None
        assert record is not None  # verify refuses unknown keys
        return record.principal


def _form_of(call: _Call, body: bytes) -> dict[str, str]:
    """The parameters: of the query (presigned calls) and of the body, which wins."""
    return query_protocol.parse_form(call.scope["query_string"]) | query_protocol.parse_form(body)


def _authorize(service: AwsService, principal: Principal, operation: str) -> None:
    if operation == "GetCallerIdentity":
        return  # everybody may ask who they are
    action = f"{service.name}:{operation}"
    if not allows(principal, action):
        raise ApiError(
            service.denied_code,
            f"User: {principal.arn} is not authorized to perform: {action}",
            403 if service.query else 400,
        )


def _unknown_operation(call: _Call, operation: str) -> ApiError:
    shown = operation[:200]
    where = f" of {call.service.name}" if call.service else ""
    if call.framing is Framing.QUERY:
        if not operation:
            return ApiError("MissingAction", "The request has no parameter 'Action'.", 400)
        return ApiError(
            "InvalidAction", f"The action {shown} is not valid for this endpoint: it is not provided{where}."
        )
    return ApiError("UnknownOperationException", f"The operation {shown}{where} is not provided by this service.")


def _headers(call: _Call) -> list[tuple[bytes, bytes]]:
    if call.framing is Framing.QUERY:
        kind = b"text/xml"
    elif call.headers.get(b"content-type", b"").startswith(b"application/x-amz-json-1.0"):
        kind = b"application/x-amz-json-1.0"
    else:
        kind = b"application/x-amz-json-1.1"
    return [(b"content-type", kind), (b"x-amzn-requestid", call.request_id.encode())]


async def _send_error(send: Send, call: _Call, error: ApiError, *, close: bool = False) -> None:
    headers = _headers(call)
    if close:  # the rest of the body was not read
        headers.append((b"connection", b"close"))
    if call.framing is Framing.QUERY:
        namespace = query_protocol.namespace_of(service_model(call.service.name) if call.service else None)
        body = query_protocol.render_error(namespace, error, call.request_id)
    else:
        headers.append((b"x-amzn-errortype", error.code.encode("ascii", "replace")))
        if call.query_mode:
            fault = b"Sender" if error.status < 500 else b"Receiver"
            headers.append((b"x-amzn-query-error", error.code.encode("ascii", "replace") + b";" + fault))
        body = json_protocol.encode_error(error)
    await respond(send, error.status, headers, body)
