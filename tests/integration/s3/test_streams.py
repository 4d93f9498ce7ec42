"""Bodies on the wire: aws-chunked in all its forms, Expect, early ends, early errors."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import socket
from urllib.parse import urlsplit

import pytest

from tests.support.gateway import REGION, GatewayUnderTest
from tests.support.s3_raw import Answer, plain, send, signed_headers
from tests.support.wait import wait_until
from trainshed_service.identity import Credentials

SIGNED = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


def crc32(data: bytes) -> str:
    return base64.b64encode(binascii.crc32(data).to_bytes(4, "big")).decode()


def chunk_key(secret: str, date: str) -> bytes:
    key = ("AWS4" + secret).encode()
    for part in (date, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def put_signed_chunks(
    gateway: GatewayUnderTest, path: str, chunks: list[bytes], *, checksum: str | None = None, spoil: bool = False
) -> Answer:
    """PUT as the CRT and the Java SDK do over plain HTTP; `spoil` changes a byte of the last chunk after signing."""
    who, kind = gateway.admin, SIGNED + ("-TRAILER" if checksum else "")
    size = sum(map(len, chunks))
    extra = {"x-amz-decoded-content-length": str(size), "content-encoding": "aws-chunked"}
    if checksum:
        extra["x-amz-trailer"] = "x-amz-checksum-crc32"
    headers = signed_headers(who, "PUT", gateway.endpoint + path, kind, extra)
    stamp = headers["X-Amz-Date"]
    previous = headers["Authorization"].rpartition("Signature=")[2]
    key, scope = chunk_key(who.secret_access_key, stamp[:8]), f"{stamp[:8]}/{REGION}/s3/aws4_request"
    empty = hashlib.sha256(b"").hexdigest()
    body = b""
    for number, chunk in enumerate([*chunks, b""]):
        digest = hashlib.sha256(chunk).hexdigest()
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{stamp}\n{scope}\n{previous}\n{empty}\n{digest}"
        previous = hmac.new(key, text.encode(), "sha256").hexdigest()
        sent = b"?" + chunk[1:] if spoil and number == len(chunks) - 1 else chunk
        body += f"{len(chunk):x};chunk-signature={previous}\r\n".encode() + sent + (b"\r\n" if chunk else b"")
    if checksum:
        digest = hashlib.sha256(f"x-amz-checksum-crc32:{checksum}\n".encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256-TRAILER\n{stamp}\n{scope}\n{previous}\n{digest}"
        final = hmac.new(key, text.encode(), "sha256").hexdigest()
        body += f"x-amz-checksum-crc32:{checksum}\r\nx-amz-trailer-signature:{final}\r\n".encode()
    return plain("PUT", gateway.endpoint, path, body + b"\r\n", headers)


CHUNKS = [b"a" * 70_000, b"b" * 66_000, b"c" * 10]


def stored(gateway: GatewayUnderTest, bucket: str) -> dict[str, bytes]:
    s3 = gateway.client()
    found = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
    return {o["Key"]: s3.get_object(Bucket=bucket, Key=o["Key"])["Body"].read() for o in found}


def test_signed_chunks(gateway: GatewayUnderTest, bucket: str) -> None:
    assert put_signed_chunks(gateway, f"/{bucket}/k", CHUNKS).status == 200
    assert stored(gateway, bucket) == {"k": b"".join(CHUNKS)}
    assert "ContentEncoding" not in gateway.client().head_object(Bucket=bucket, Key="k")


def test_signed_chunks_with_trailer(gateway: GatewayUnderTest, bucket: str) -> None:
    answer = put_signed_chunks(gateway, f"/{bucket}/k", CHUNKS, checksum=crc32(b"".join(CHUNKS)))
    assert (answer.status, answer.headers["x-amz-checksum-crc32"]) == (200, crc32(b"".join(CHUNKS)))
    assert stored(gateway, bucket) == {"k": b"".join(CHUNKS)}


@pytest.mark.parametrize("checksum", [None, crc32(b"".join(CHUNKS))])
def test_spoilt_chunk_stores_nothing(gateway: GatewayUnderTest, bucket: str, checksum: str | None) -> None:
    answer = put_signed_chunks(gateway, f"/{bucket}/k", CHUNKS, checksum=checksum, spoil=True)
    assert (answer.status, answer.code) == (403, "SignatureDoesNotMatch")
    assert stored(gateway, bucket) == {}


def unsigned(data: bytes, checksum: str) -> bytes:
    return b"%x\r\n" % len(data) + data + f"\r\n0\r\nx-amz-checksum-crc32:{checksum}\r\n\r\n".encode()


@pytest.mark.parametrize("good", [True, False])
def test_unsigned_trailer(gateway: GatewayUnderTest, bucket: str, good: bool) -> None:
    data = b"z" * 200_000
    headers = {
        "x-amz-decoded-content-length": str(len(data)),
        "content-encoding": "aws-chunked",
        "x-amz-trailer": "x-amz-checksum-crc32",
        "x-amz-server-side-encryption": "aws:kms",
    }
    answer = send(
        gateway.admin,
        "PUT",
        gateway.endpoint,
        f"/{bucket}/k",
        unsigned(data, crc32(data if good else b"other")),
        payload="STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        headers=headers,
    )
    if good:
        assert (answer.status, answer.headers["x-amz-server-side-encryption"]) == (200, "aws:kms")
        assert stored(gateway, bucket) == {"k": data}
        assert "ContentEncoding" not in gateway.client().head_object(Bucket=bucket, Key="k")
    else:
        assert answer.status == 400
        assert stored(gateway, bucket) == {}


def expecting(
    gateway: GatewayUnderTest, path: str, size: int, payload: str, who: Credentials | None = None
) -> tuple[socket.socket, bytes]:
    """Send the head of a PUT with `Expect: 100-continue` and return the first bytes that come back."""
    headers = signed_headers(who or gateway.admin, "PUT", gateway.endpoint + path, payload)
    headers |= {"Host": urlsplit(gateway.endpoint).netloc, "Content-Length": str(size), "Expect": "100-continue"}
    connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    connection.sendall(f"PUT {path} HTTP/1.1\r\n{lines}\r\n".encode())
    return connection, connection.recv(65536)


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_expect_continue(gateway: GatewayUnderTest, bucket: str, size: int) -> None:
    connection, first = expecting(gateway, f"/{bucket}/k", size, hashlib.sha256(b"e" * size).hexdigest())
    with connection:
        assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"e" * size)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200
    assert stored(gateway, bucket) == {"k": b"e" * size}


def test_refusal_is_answered_before_the_body(gateway: GatewayUnderTest, bucket: str) -> None:
    stranger = gateway.job_credentials(f"stranger-{bucket}", write=[(bucket, "mine/")])
    connection, first = expecting(gateway, f"/{bucket}/k", 1 << 30, "UNSIGNED-PAYLOAD", stranger)
    with connection:
        assert first.startswith(b"HTTP/1.1 403 ")
        assert b"connection: close" in first.lower()


def test_upload_that_ends_early_stores_nothing(gateway: GatewayUnderTest, bucket: str) -> None:
    for size in (1000, 1_000_000):
        connection, first = expecting(gateway, f"/{bucket}/k{size}", size, "UNSIGNED-PAYLOAD")
        assert b"100 Continue" in first
        connection.sendall(b"e" * (size - 1))
        connection.close()
    wait_until(lambda: gateway.log_path.read_text().count(f'"bucket": "{bucket}"') >= 2, what="both ends are logged")
    assert stored(gateway, bucket) == {}


def test_transfer_without_length_is_refused(gateway: GatewayUnderTest, bucket: str) -> None:
    headers = signed_headers(gateway.admin, "PUT", f"{gateway.endpoint}/{bucket}/k", "UNSIGNED-PAYLOAD")
    headers["Transfer-Encoding"] = "chunked"
    answer = plain("PUT", gateway.endpoint, f"/{bucket}/k", b"5\r\nhello\r\n0\r\n\r\n", headers)
    assert (answer.status, answer.code) == (411, "MissingContentLength")


def test_requests_on_one_connection(gateway: GatewayUnderTest, bucket: str) -> None:
    """An answer never takes bytes of the next request, whatever came before it."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    for number in range(20):
        body = b"%d" % number * 1000
        path = f"/{bucket}/k"
        stated = hashlib.sha256(body if number % 3 else b"other").hexdigest()
        connection.request("PUT", path, body, signed_headers(gateway.admin, "PUT", gateway.endpoint + path, stated))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == (200 if number % 3 else 400)
    connection.close()
