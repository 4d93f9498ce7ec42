"""Which addresses the egress proxy may connect to, and what it takes for a request."""

import asyncio

import pytest

from trainshed_worker.sandbox.egress import is_public
from trainshed_worker.sandbox.httphead import MAX_HEAD, BadRequest, Head, read_head


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:127.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)  # fmt: skip
def test_not_public(address: str) -> None:
    assert not is_public(address)


async def head_of(data: bytes) -> Head | None:
    reader = asyncio.StreamReader(limit=MAX_HEAD)
    reader.feed_data(data)
    reader.feed_eof()
    return await read_head(reader)


async def test_a_head() -> None:
    head = await head_of(b"CONNECT host:443 HTTP/1.1\r\nHost: host\r\nX: a:b \r\n\r\nrest")
    assert head == Head("CONNECT", "host:443", [("Host", "host"), ("X", "a:b")])
    assert head is not None and head.get("x") == "a:b" and head.get("y") is None
    assert await head_of(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET /\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad\r\n\r\n",
        b"GET / HTTP/1.1\r\n x: y\r\n\r\n",
        b"GET",
        b"x" * 40_000,
    ],
)
async def test_malformed_heads_are_refused(data: bytes) -> None:
    with pytest.raises(BadRequest):
        await head_of(data)
