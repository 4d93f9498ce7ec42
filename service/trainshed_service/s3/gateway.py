"""What happens to one S3 request: verify, authorize, edit, re-sign, stream.

Invariants:

* Nothing reaches the store before the signature is verified and every access of the operation is allowed.
* Bodies are streamed both ways with bounded memory; a body that is not what was signed leaves nothing in the store.
* An error that is known before the body is answered before the body: the client's `Expect: 100-continue` is answered
  only when the store wants the body.
* No secret and no query string (it may hold a signature) gets into the log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from urllib.parse import quote

import structlog

from trainshed_service.clock import Clock
from trainshed_service.s3 import answers, bodies, payloads
from trainshed_service.s3.access_log import AccessLog
from trainshed_service.s3.authorization import CallerDirectory, authorize, authorize_deletion
from trainshed_service.s3.exchange import Exchange
from trainshed_service.s3.http_server import ClientGone, Request
from trainshed_service.s3.operations import classify
from trainshed_service.s3.sse import SseEditor
from trainshed_service.s3.target import parse_copy_source, parse_target, query_parameters
from trainshed_service.s3.upstream import OnceBody, Store, StoreAnswer, StoreGone
from trainshed_service.wire import sigv4
from trainshed_service.wire.errors import ApiError
from trainshed_service.wire.signature_errors import Framing, SignatureError

log = structlog.get_logger(__name__)

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


class Gateway:
    """The request handler. `handle` is given to `HttpServer`."""

    def __init__(
        self,
        *,
        store: Store,
        callers: CallerDirectory,
        sse: SseEditor,
        clock: Clock,
        access_log: AccessLog,
        account_id: str,
        region: str,
        base_hosts: Collection[str],
    ) -> None:
        self._store = store
        self._callers = callers
        self._sse = sse
        self._clock = clock
        self._access_log = access_log
        self._account_id = account_id
        self._region = region
        self._base_hosts = tuple(base_hosts)

    async def handle(self, request: Request) -> None:
        started = time.perf_counter()
        raw = request.target
        if not raw.startswith("/"):  # absolute form, as proxies' clients send it
            raw = "/" + raw.partition("://")[2].partition("/")[2]
        path, _, query = raw.partition("?")
        if path == "/-/health":
            request.respond(200, {"content-type": "text/plain"}, b"ok\n")
            return
        exchange = Exchange(request, path, query, answers.new_request_id())
        try:
            await self._serve(exchange)
        except (ApiError, SignatureError) as error:
            self._error(exchange, bodies.framed(error))
        except ConnectionError:
            exchange.error_code = exchange.error_code or "ClientGone"
            raise
        except Exception:
            log.exception("request failed", request_id=exchange.request_id, operation=exchange.operation.name)
            if exchange.status is not None:
                raise  # the head is out: only a broken connection can tell the client
            self._error(exchange, ApiError("InternalError", "We encountered an internal error. Please try again.", 500))
        finally:
            self._access_log.add(
                {
                    "request_id": exchange.request_id,
                    "operation": exchange.operation.name,
                    "bucket": exchange.target.bucket,
                    "key": exchange.target.key,
                    "caller": exchange.caller.name if exchange.caller else None,
                    "status": exchange.status,
                    "error": exchange.error_code,
                    "received": request.received,
                    "sent": exchange.sent_bytes,
                    "ms": round((time.perf_counter() - started) * 1000, 1),
                    "remote": request.connection.remote,
                }
            )

    # -- understanding -------------------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange) -> None:
        request = exchange.request
        signed = sigv4.parse(request.method, exchange.raw_path, exchange.raw_query, request.headers, framing=Framing.S3)
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
                document = await payloads.read_document(exchange, proof)
                authorize_deletion(caller, exchange.target.bucket, document)
            else:
                authorize(caller, exchange.operation)
        self._check_owner(exchange)
        _check_folder_marker(exchange)
        if exchange.operation.name == "CreateBucket" and document is None and request.body is not None:
            document = await payloads.read_document(exchange, proof)
            self._check_location(document)
        await self._forward(exchange, proof, document)

    def _understand(self, exchange: Exchange) -> None:
        """Fill in what the request is about. Parameters that stand for headers become headers."""
        request = exchange.request
        headers = answers.request_headers(request.headers)
        query = query_parameters(exchange.raw_query)
        for name in list(query):
            lower = name.lower()
            if lower in _AUTH_PARAMETERS:
                del query[name]
            elif lower.startswith("x-amz-") or lower in ("content-type", "content-md5"):
                value = query.pop(name)
                answers.check_header(lower, value)
                if headers.setdefault(lower, value) != value:
                    raise ApiError("InvalidArgument", f"'{lower}' differs between the header and the query.", 400)
        exchange.headers, exchange.query = headers, query
        exchange.target = parse_target(exchange.raw_path, request.header("host"), self._base_hosts)
        exchange.operation = classify(request.method, exchange.target, query, headers)

    def _check_owner(self, exchange: Exchange) -> None:
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

    # -- passing on ----------------------------------------------------------------------------------------------

    async def _forward(self, exchange: Exchange, proof: sigv4.Proof, document: bytes | None) -> None:
        headers = answers.forwarded(exchange.headers)
        exchange.asked = self._sse.edit_request(headers, creates=exchange.operation.creates)
        if exchange.operation.name in ("PutObject", "CreateMultipartUpload"):
            headers.setdefault("content-type", "binary/octet-stream")
        if "x-amz-copy-source" in headers:
            headers["x-amz-copy-source"] = _strict_copy_source(headers["x-amz-copy-source"])
        body, payload = await payloads.for_store(exchange, proof, document, headers)
        upstream = await self._store.request(
            exchange.request.method,
            exchange.target.store_path,
            exchange.query,
            headers,
            payload=payload,
            body=body,
            wait_for_continue=isinstance(body, OnceBody),
        )
        if isinstance(body, OnceBody) and not body.begun:
            upstream.reusable = False  # the store refused the body unseen
        try:
            await self._answer(exchange, upstream)
        finally:
            upstream.release()

    async def _answer(self, exchange: Exchange, upstream: StoreAnswer) -> None:
        request, operation = exchange.request, exchange.operation
        headers = answers.answered(upstream.headers)
        headers.pop("content-length", None)
        headers["server"] = answers.SERVER
        length = upstream.content_length
        upload_id = exchange.query.get("uploadId")
        ok = upstream.status < 300
        if ok:
            self._sse.edit_answer(headers, exchange.asked or self._sse.of_upload(upload_id))
        else:
            exchange.error_code = f"store:{upstream.status}"
        body: bytes | None = None
        if request.method != "HEAD" and length is not None and length <= payloads.SMALL:
            body = await _whole(upstream)
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
        exchange.status = upstream.status
        if body is not None:
            request.respond(upstream.status, headers, body)
            exchange.sent_bytes = len(body)
        else:
            await _stream(exchange, upstream, headers, length)

    def _error(self, exchange: Exchange, error: ApiError) -> None:
        exchange.error_code, exchange.status = error.code, error.status
        body = answers.error_xml(error, exchange.raw_path, exchange.request_id)
        headers = {
            "content-type": "application/xml",
            "x-amz-request-id": exchange.request_id,
            "server": answers.SERVER,
        }
        if error.status == 503:
            headers["retry-after"] = "1"
        exchange.request.respond(error.status, headers, b"" if exchange.request.method == "HEAD" else body)


async def _whole(upstream: StoreAnswer) -> bytes:
    try:
        return await upstream.read()
    except StoreGone as error:
        raise answers.store_unavailable() from error


async def _stream(exchange: Exchange, upstream: StoreAnswer, headers: dict[str, str], length: int | None) -> None:
    request = exchange.request
    has_body = request.method != "HEAD" and upstream.status not in (204, 304)
    request.begin(upstream.status, headers, length, has_body=has_body)
    try:
        while has_body and (piece := await upstream.body.piece()):
            await request.write(piece)
            exchange.sent_bytes += len(piece)
    except StoreGone as error:
        # The head is out: only a broken connection can tell the client that this is not all.
        exchange.error_code = "StoreGone"
        raise ClientGone("the store ended its answer early") from error
    request.end()


def _check_folder_marker(exchange: Exchange) -> None:
    """The store keeps a key that ends with a slash as a folder and would drop the bytes, silently: refuse those."""
    if not exchange.target.key.endswith(("/", "\\")) or not exchange.operation.creates:
        return
    headers = exchange.headers
    if exchange.operation.name == "PutObject":
        empty = headers.get("x-amz-decoded-content-length", headers.get("content-length", "0")) == "0"
    else:
        source = headers.get("x-amz-copy-source")
        empty = source is not None and parse_copy_source(source).key.endswith(("/", "\\"))
    if not empty:
        raise ApiError("InvalidArgument", "This store can hold no content under a key that ends with '/'.", 400)


def _strict_copy_source(header: str) -> str:
    source = parse_copy_source(header)
    version = header.split("?versionId=", 1)[1:]
    suffix = f"?versionId={version[0]}" if version else ""
    return f"/{quote(source.bucket)}/{quote(source.key, safe='/-_.~')}{suffix}"
