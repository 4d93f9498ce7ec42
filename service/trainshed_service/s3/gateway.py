"""What happens to one S3 request: verify, authorize, edit, re-sign, stream.

Invariants:

* Nothing reaches the store before the signature is verified and every access of the operation is allowed.
* Bodies are streamed both ways with bounded memory; a body that is not what was signed leaves nothing in the store.
* An error that is known before the body is answered before the body: the client's `Expect: 100-continue` is answered
  only when the store wants the body.
* No secret and no query string (it may hold a signature) gets into the log.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp
import structlog
from aiohttp import web
from multidict import CIMultiDict

from trainshed_service.clock import Clock
from trainshed_service.s3 import answers, bodies
from trainshed_service.s3.authorization import Caller, CallerDirectory, authorize, authorize_deletion
from trainshed_service.s3.operations import Operation, classify
from trainshed_service.s3.signing import UNSIGNED_PAYLOAD
from trainshed_service.s3.sse import Asked, SseEditor
from trainshed_service.s3.target import Target, parse_copy_source, parse_target, query_parameters
from trainshed_service.s3.upstream import OnceBody, Store
from trainshed_service.wire import sigv4
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.signature_errors import Framing, SignatureError

log = structlog.get_logger(__name__)

_SMALL = 64 * 1024
_MAX_DOCUMENT = 2 * 1024 * 1024
_AUTH_PARAMETERS = frozenset(
    [
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-signedheaders",
        "x-amz-signature",
        "x-amz-security-token",
        "x-amz-content-sha256",
        "awsaccesskeyid",
        "signature",
        "expires",
        "x-id",
    ]
)
_UPLOAD_ID = re.compile(rb"<UploadId>([^<]{1,512})</UploadId>")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientGone(ConnectionError):
    """The client closed its connection before the body or the answer was complete."""


@dataclass
class _Exchange:
    """One request, as far as it is understood."""

    request: web.BaseRequest
    raw_path: str
    raw_query: str
    request_id: str
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    operation: Operation = Operation("Unknown")  # noqa: RUF009 -- frozen
    target: Target = Target("", "")  # noqa: RUF009 -- frozen
    caller: Caller | None = None
    asked: Asked | None = None
    continue_sent: bool = False
    sent_bytes: int = 0
    error_code: str | None = None


class Gateway:
    """The request handler. `handle` is given to `aiohttp.web.Server`."""

    def __init__(
        self,
        *,
        store: Store,
        callers: CallerDirectory,
        sse: SseEditor,
        clock: Clock,
        account_id: str,
        region: str,
        base_hosts: Collection[str],
    ) -> None:
        self._store = store
        self._callers = callers
        self._sse = sse
        self._clock = clock
        self._account_id = account_id
        self._region = region
        self._base_hosts = tuple(base_hosts)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        raw = request.raw_path
        if not raw.startswith("/"):  # absolute form, as proxies' clients send it
            raw = "/" + raw.partition("://")[2].partition("/")[2]
        path, _, query = raw.partition("?")
        exchange = _Exchange(request, path, query, answers.new_request_id())
        if path == "/-/health":
            return web.Response(text="ok\n")
        response: web.StreamResponse | None = None
        try:
            response = await self._serve(exchange)
        except (ApiError, SignatureError) as error:
            response = self._error(exchange, bodies.framed(error))
        except ConnectionError:
            exchange.error_code = "ClientGone"
            raise
        except Exception:
            log.exception("request failed", request_id=exchange.request_id, operation=exchange.operation.name)
            response = self._error(
                exchange, ApiError("InternalError", "We encountered an internal error. Please try again.", 500)
            )
        finally:
            log.info(
                "s3",
                request_id=exchange.request_id,
                operation=exchange.operation.name,
                bucket=exchange.target.bucket,
                key=exchange.target.key,
                caller=exchange.caller.name if exchange.caller else None,
                status=response.status if response is not None else None,
                error=exchange.error_code,
                received=request.content.total_bytes,
                sent=exchange.sent_bytes,
                ms=round((time.perf_counter() - started) * 1000, 1),
                remote=request.remote,
            )
        return response

    # -- understanding -------------------------------------------------------------------------------------------

    async def _serve(self, exchange: _Exchange) -> web.StreamResponse:
        request = exchange.request
        signed = sigv4.parse(
            request.method, exchange.raw_path, exchange.raw_query, request.raw_headers, framing=Framing.S3
        )
        found = await self._callers.find(signed.access_key_id)
        proof = sigv4.verify(
            signed, found.record if found else None, body_sha256=None, now=self._clock.now(), services={"s3"}
        )
        assert found is not None  # verify refuses an unknown key
        exchange.caller = caller = found.caller
        self._understand(exchange)
        document: bytes | None = None
        if not caller.unrestricted:
            if exchange.operation.lists_keys_in_body:
                document = await self._document(exchange, proof)
                authorize_deletion(caller, exchange.target.bucket, document)
            else:
                authorize(caller, exchange.operation)
        self._check_owner(exchange)
        _check_folder_marker(exchange)
        if exchange.operation.name == "CreateBucket" and document is None and request.body_exists:
            document = await self._document(exchange, proof)
            self._check_location(document)
        return await self._forward(exchange, proof, document)

    def _understand(self, exchange: _Exchange) -> None:
        """Fill in what the request is about. Parameters that stand for headers become headers."""
        request = exchange.request
        headers = answers.request_headers(request.headers.items())
        query = query_parameters(exchange.raw_query)
        for name in list(query):
            lower = name.lower()
            if lower in _AUTH_PARAMETERS:
                del query[name]
            elif lower.startswith("x-amz-") or lower in ("content-type", "content-md5"):
                value = query.pop(name)
                if headers.setdefault(lower, value) != value:
                    raise ApiError("InvalidArgument", f"'{lower}' differs between the header and the query.", 400)
        exchange.headers, exchange.query = headers, query
        exchange.target = parse_target(exchange.raw_path, request.headers.get("Host", ""), self._base_hosts)
        exchange.operation = classify(request.method, exchange.target, query, headers)

    def _check_owner(self, exchange: _Exchange) -> None:
        for name in ("x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"):
            if exchange.headers.get(name, self._account_id) != self._account_id:
                raise answers.access_denied()

    def _check_location(self, document: bytes) -> None:
        match = re.search(rb"<LocationConstraint[^>]*>\s*([^<]*?)\s*</", document)
        if match and match[1] and match[1].decode("utf-8", "replace") != self._region:
            raise ApiError(
                "IllegalLocationConstraintException",
                f"The {match[1].decode('utf-8', 'replace')[:64]} location constraint is incompatible for the region"
                f" specific endpoint this request was sent to; this installation's region is {self._region}.",
                400,
            )

    async def _document(self, exchange: _Exchange, proof: sigv4.Proof) -> bytes:
        """A small body that the gateway itself must understand, whole and checked."""
        if proof.payload.aws_chunked:
            raise ApiError("NotImplemented", "This request's body may not be sent as aws-chunked.", 501)
        length = exchange.request.content_length
        if length is not None and length > _MAX_DOCUMENT:
            raise ApiError("MaxMessageLengthExceeded", "Your request was too big.", 400)
        await self._send_continue(exchange)
        data = bytearray()
        async for piece in _client_pieces(exchange.request):
            data += piece
            if len(data) > _MAX_DOCUMENT:
                raise ApiError("MaxMessageLengthExceeded", "Your request was too big.", 400)
        if proof.payload is sigv4.Payload.HASHED:
            sigv4.check_body(proof, _sha256(data))
        return bytes(data)

    # -- passing on ----------------------------------------------------------------------------------------------

    async def _forward(self, exchange: _Exchange, proof: sigv4.Proof, document: bytes | None) -> web.StreamResponse:
        headers = answers.forwarded(exchange.headers)
        exchange.asked = self._sse.edit_request(headers, creates=exchange.operation.creates)
        if exchange.operation.name in ("PutObject", "CreateMultipartUpload"):
            headers.setdefault("content-type", "binary/octet-stream")
        if "x-amz-copy-source" in headers:
            headers["x-amz-copy-source"] = _strict_copy_source(headers["x-amz-copy-source"])
        body, payload = await self._body(exchange, proof, document, headers)
        upstream = await self._store.request(
            exchange.request.method,
            exchange.target.store_path,
            list(exchange.query.items()),
            headers,
            payload=payload,
            body=body,
            wait_for_continue=isinstance(body, OnceBody),
        )
        try:
            return await self._answer(exchange, upstream)
        finally:
            if isinstance(body, OnceBody) and not body.begun:
                upstream.close()  # the store refused the body unseen; the connection cannot be used again
            else:
                upstream.release()

    async def _body(
        self, exchange: _Exchange, proof: sigv4.Proof, document: bytes | None, headers: dict[str, str]
    ) -> tuple[bytes | OnceBody | None, str]:
        """The body for the store and the content hash that goes with it; sets the headers that describe it."""
        request, payload = exchange.request, proof.payload
        stated = proof.payload_sha256 or UNSIGNED_PAYLOAD
        if document is not None:
            return document, _sha256(document)
        if request.method in ("GET", "HEAD"):
            return None, UNSIGNED_PAYLOAD
        length = request.content_length
        if payload.aws_chunked:
            return self._chunked_body(exchange, proof, headers)
        if not request.body_exists:
            length = 0
        elif length is None:
            raise ApiError("MissingContentLength", "You must provide the Content-Length HTTP header.", 411)
        if length <= _SMALL:
            # Cheaper to take than to ask the store first whether it wants the body.
            await self._send_continue(exchange)
            data = b"".join([piece async for piece in _client_pieces(request)])
            if payload is sigv4.Payload.HASHED:
                sigv4.check_body(proof, _sha256(data))
            return data, stated
        headers["content-length"] = str(length)
        pieces = _client_pieces(request)
        if payload is sigv4.Payload.HASHED:
            assert proof.payload_sha256 is not None
            pieces = bodies.hashed(pieces, proof.payload_sha256)
        return self._once(exchange, pieces), stated

    def _chunked_body(self, exchange: _Exchange, proof: sigv4.Proof, headers: dict[str, str]) -> tuple[OnceBody, str]:
        request, payload = exchange.request, proof.payload
        decoded = exchange.headers.get("x-amz-decoded-content-length", "")
        if not re.fullmatch(r"\d{1,15}", decoded):
            raise ApiError("MissingContentLength", "You must provide the x-amz-decoded-content-length header.", 411)
        if payload is sigv4.Payload.STREAMING_UNSIGNED_TRAILER:
            if request.content_length is not None:
                headers["content-length"] = str(request.content_length)
            return self._once(exchange, _client_pieces(request)), "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        trailer = payload is sigv4.Payload.STREAMING_SIGNED_TRAILER
        chunks = bodies.SignedChunks(
            _client_pieces(request),
            signing_key=proof.signing_key,
            seed_signature=proof.seed_signature,
            scope=proof.scope,
            timestamp=proof.timestamp,
            decoded_length=int(decoded),
            signed_trailer=trailer,
        )
        if trailer:
            return self._once(exchange, bodies.unsigned_chunks(chunks)), "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        del headers["x-amz-decoded-content-length"]
        headers["content-length"] = decoded
        return self._once(exchange, chunks.data()), UNSIGNED_PAYLOAD

    def _once(self, exchange: _Exchange, pieces: AsyncIterator[bytes]) -> OnceBody:
        return OnceBody(pieces, started=lambda: self._send_continue(exchange))

    async def _send_continue(self, exchange: _Exchange) -> None:
        if not exchange.continue_sent and exchange.headers.get("expect", "").lower() == "100-continue":
            exchange.continue_sent = True
            transport = exchange.request.transport
            if transport is None:
                raise ClientGone("the client is gone")
            transport.write(_CONTINUE)

    # -- answering -----------------------------------------------------------------------------------------------

    async def _answer(self, exchange: _Exchange, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        request, operation = exchange.request, exchange.operation
        headers = answers.answered(upstream.headers.items())
        length = upstream.content_length
        upload_id = exchange.query.get("uploadId")
        ok = upstream.status < 300
        if ok:
            self._sse.edit_answer(headers, exchange.asked or self._sse.of_upload(upload_id))
        body: bytes | None = None
        if request.method != "HEAD" and length is not None and length <= _SMALL:
            body = await self._whole(upstream)
        if ok and operation.name == "HeadBucket":
            headers["x-amz-bucket-region"] = self._region
        elif ok and operation.name == "GetBucketLocation":
            body = answers.location_xml(self._region)
        elif ok and operation.name == "CreateMultipartUpload" and exchange.asked is not None and body is not None:
            match = _UPLOAD_ID.search(body)
            if match:
                self._sse.remember_upload(match[1].decode(), exchange.asked)
        elif ok and operation.name in ("CompleteMultipartUpload", "AbortMultipartUpload") and upload_id:
            self._sse.forget_upload(upload_id)
        headers.pop("content-length", None)
        if not ok:
            exchange.error_code = f"store:{upstream.status}"
        if body is not None:
            return await self._finish(exchange, upstream.status, headers, body)
        return await self._stream(exchange, upstream, headers, length)

    async def _stream(
        self, exchange: _Exchange, upstream: aiohttp.ClientResponse, headers: dict[str, str], length: int | None
    ) -> web.StreamResponse:
        request = exchange.request
        response = web.StreamResponse(status=upstream.status, headers=self._with_server(headers))
        if length is not None:
            response.content_length = length
        elif request.method != "HEAD" and upstream.status not in (204, 304):
            response.enable_chunked_encoding()
        self._close_unless_read(exchange, response)
        await response.prepare(request)
        if request.method != "HEAD":
            try:
                async for piece in bodies.as_received(upstream.content):
                    await response.write(piece)
                    exchange.sent_bytes += len(piece)
            except (aiohttp.ClientError, TimeoutError) as error:
                if isinstance(error, ConnectionError) and request.transport is None:
                    upstream.close()
                    raise
                # The head is out: only a broken connection can tell the client that this is not all.
                upstream.close()
                exchange.error_code = "StoreGone"
                if request.transport is not None:
                    request.transport.abort()
                raise ClientGone("the store ended its answer early") from error
            except ConnectionError:
                upstream.close()
                raise
        await response.write_eof()
        return response

    async def _whole(self, upstream: aiohttp.ClientResponse) -> bytes:
        try:
            return await upstream.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise answers.store_unavailable() from error

    async def _finish(
        self, exchange: _Exchange, status: int, headers: dict[str, str], body: bytes
    ) -> web.StreamResponse:
        response = web.Response(status=status, headers=self._with_server(headers), body=body)
        self._close_unless_read(exchange, response)
        exchange.sent_bytes = len(body)
        return response

    def _error(self, exchange: _Exchange, error: ApiError) -> web.StreamResponse:
        exchange.error_code = error.code
        body = answers.error_xml(error, exchange.raw_path, exchange.request_id)
        headers = {"content-type": "application/xml", "x-amz-request-id": exchange.request_id}
        if error.status == 503:
            headers["retry-after"] = "1"
        response = web.Response(
            status=error.status,
            headers=self._with_server(headers),
            body=b"" if exchange.request.method == "HEAD" else body,
        )
        self._close_unless_read(exchange, response)
        return response

    @staticmethod
    def _close_unless_read(exchange: _Exchange, response: web.StreamResponse) -> None:
        """What is left of an unread body must not be taken for the next request."""
        if exchange.request.can_read_body and not exchange.request.content.is_eof():
            response.force_close()

    @staticmethod
    def _with_server(headers: dict[str, str]) -> CIMultiDict[str]:
        return CIMultiDict({**headers, "server": answers.SERVER})


def _check_folder_marker(exchange: _Exchange) -> None:
    """The store keeps a key that ends with a slash as a folder and would drop the bytes, silently: refuse those."""
    if not exchange.target.key.endswith("/") or not exchange.operation.creates:
        return
    headers = exchange.headers
    if exchange.operation.name == "PutObject":
        empty = headers.get("x-amz-decoded-content-length", headers.get("content-length", "0")) == "0"
    else:
        source = headers.get("x-amz-copy-source")
        empty = source is not None and parse_copy_source(source).key.endswith("/")
    if not empty:
        raise ApiError("InvalidArgument", "This store can hold no content under a key that ends with '/'.", 400)


async def _client_pieces(request: web.BaseRequest) -> AsyncIterator[bytes]:
    if not request.body_exists:  # aiohttp shares one reader of empty bodies, whose iter_chunks never ends a second time
        return
    try:
        async for piece in bodies.as_received(request.content):
            yield piece
    except (aiohttp.ClientPayloadError, ConnectionError, web.RequestPayloadError) as error:
        raise ClientGone("the client ended its request early") from error


def _sha256(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


def _strict_copy_source(header: str) -> str:
    source = parse_copy_source(header)
    version: Any = header.split("?versionId=", 1)[1:] or None
    suffix = f"?versionId={version[0]}" if version else ""
    return f"/{quote(source.bucket)}/{quote(source.key, safe='/-_.~')}{suffix}"
