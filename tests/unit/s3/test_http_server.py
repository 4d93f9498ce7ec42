"""The gateway's HTTP towards clients, over real sockets: order, framing, limits, ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.support.wait import wait_until_async
from trainshed_service.s3 import http_server
from trainshed_service.s3.flow import STREAM_LIMIT, WRITE_LIMIT
from trainshed_service.s3.http_server import HttpServer, Request

Handler = Callable[[Request], Awaitable[None]]


@asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, HttpServer]]:
    server = HttpServer(handler)
    port = await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            yield reader, writer, server
    finally:
        writer.close()
        await server.close(5)


async def echo(request: Request) -> None:
    body = b"" if request.body is None else await request.body.whole()
    request.respond(200, {"x-target": request.target}, request.method.encode() + b":" + body)


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers.get("content-length", "0")))


async def test_pipelined_requests_are_answered_in_order() -> None:
    gate = asyncio.Event()

    async def slow_first(request: Request) -> None:
        if request.target == "/0":
            await gate.wait()
        await echo(request)

    async with connected(slow_first) as (reader, writer, _):
        for number in range(50):
            writer.write(b"PUT /%d HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n%03d" % (number, number))
        await writer.drain()
        gate.set()
        for number in range(50):
            status, headers, body = await answer(reader)
            assert (status, headers["x-target"], body) == (200, f"/{number}", b"PUT:%03d" % number)


@pytest.mark.parametrize("size", [1, 1000, 300_000, 3_000_000])
async def test_bodies_of_any_size_in_both_framings(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    async with connected(echo) as (reader, writer, _):
        writer.write(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + data)
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in (data[: size // 2], data[size // 2 :]) if c)
        writer.write(b"PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        writer.write(b"GET /c HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await answer(reader))[2] == b"PUT:" + data
        assert (await answer(reader))[2] == b"PUT:" + data
        assert (await answer(reader))[2] == b"GET:"


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_could_be_read_in_two_ways_is_refused(raw: bytes) -> None:
    handled = []

    async def note(request: Request) -> None:
        handled.append(request.target)
        await echo(request)

    async with connected(note) as (reader, writer, _):
        writer.write(raw)
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert await reader.read() == b""
    assert handled == []


async def test_endless_heads_are_cut_off() -> None:
    async with connected(echo) as (reader, writer, _):
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n")
        for _ in range(http_server.MAX_HEAD // 1000 + 2):
            writer.write(b"X-A: " + b"a" * 1000 + b"\r\n")
        status, _, _ = await answer(reader)
        assert status == 431


async def test_unread_body_is_never_taken_for_a_request() -> None:
    async def refuse(request: Request) -> None:
        request.respond(403, {}, b"no")

    async with connected(refuse) as (reader, writer, _):
        inner = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
        writer.write(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + inner)
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (403, "close")
        writer.write(b"x" * 500_000)  # the client goes on for a while; no reset may take the answer away
        await writer.drain()
        assert await reader.read() == b""


async def test_slow_reader_stops_the_writer_and_slow_handler_the_client() -> None:
    piece, written, go_on = b"p" * 65536, 0, asyncio.Event()

    async def flood(request: Request) -> None:
        nonlocal written
        await go_on.wait()
        assert request.body is not None and request.received <= STREAM_LIMIT + 512 * 1024
        request.begin(200, {}, None, has_body=True)
        for _ in range(1000):
            await request.write(piece)
            written += len(piece)
        request.end()

    async with connected(flood) as (reader, writer, server):
        writer.write(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 64000000\r\n\r\n")
        writer.write(b"b" * 64_000_000)
        await wait_until_async(lambda: any(c.held for c in server.connections), what="the client is stopped")
        go_on.set()
        connection = next(iter(server.connections))
        await wait_until_async(lambda: connection._write_paused, what="the handler is stopped")
        assert connection.transport.get_write_buffer_size() <= WRITE_LIMIT + 2 * len(piece)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        got = 0
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            got += size
        assert got == written == 1000 * len(piece)


async def test_handler_that_breaks_off_breaks_the_connection() -> None:
    async def half(request: Request) -> None:
        request.begin(200, {}, 100, has_body=True)
        await request.write(b"only this")

    async with connected(half) as (reader, writer, _):
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer(reader)


async def test_end_waits_for_the_request_in_progress() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> None:
        began.set()
        await go_on.wait()
        await echo(request)

    async with connected(slow) as (reader, writer, server):
        writer.write(b"GET /last HTTP/1.1\r\nHost: h\r\n\r\n")
        await began.wait()
        ending = asyncio.create_task(server.close(10))
        await asyncio.sleep(0)
        go_on.set()
        _, headers, body = await answer(reader)
        assert (headers["connection"], body) == ("close", b"GET:")
        await ending
        assert await reader.read() == b""


async def test_idle_connections_are_closed() -> None:
    async with connected(echo) as (reader, writer, server):
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await answer(reader)
        connection = next(iter(server.connections))
        connection.sweep(asyncio.get_running_loop().time() + http_server.IDLE_SECONDS - 1)
        assert not connection.transport.is_closing()
        connection.sweep(asyncio.get_running_loop().time() + http_server.IDLE_SECONDS + 1)
        assert await reader.read() == b""
