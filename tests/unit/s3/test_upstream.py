"""The gateway's HTTP towards the store, over real sockets, with a store that misbehaves by script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.wait import wait_until_async
from trainshed_service.clock import SystemClock
from trainshed_service.s3.upstream import OnceBody, Store, StoreGone
from trainshed_service.settings import Settings
from trainshed_service.wire.errors import ApiError

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def store_that(serve: Serve, *, patience: float = 0.3) -> AsyncIterator[Store]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(
        home=Path("/nowhere"), store_endpoint=f"http://127.0.0.1:{port}", store_access_key="a", store_secret_key="s"
    )
    store = Store(settings, SystemClock(), patience=patience)
    try:
        async with asyncio.timeout(20):
            yield store
    finally:
        await store.close()
        server.close()


async def ask(store: Store, method: str = "GET", body: bytes | OnceBody | None = None) -> tuple[int, bytes]:
    headers = {"content-length": "1000000"} if isinstance(body, OnceBody) else {}
    answer = await store.request(
        method, "/b/k", [], headers, payload="UNSIGNED-PAYLOAD", body=body, wait_for_continue=isinstance(body, OnceBody)
    )
    try:
        return answer.status, await answer.read()
    finally:
        answer.release()


async def test_connections_are_kept_and_used_again() -> None:
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)

    async with store_that(serve) as store:
        assert [await ask(store) for _ in range(20)] == [(200, b"ok")] * 20
        assert opened == 1
        assert await asyncio.gather(*(ask(store) for _ in range(5))) == [(200, b"ok")] * 5
        assert opened == 5


async def test_answers_without_bodies_leave_the_connection_in_step() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"HEAD"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
            elif head.startswith(b"DELETE"):
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")

    async with store_that(serve) as store:
        for _ in range(3):
            assert await ask(store, "HEAD") == (200, b"")
            assert await ask(store, "DELETE") == (204, b"")
            assert await ask(store, "GET") == (200, b"ok")


async def test_kept_connection_that_the_store_closed_is_replaced() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        if len(seen) == 1:
            await reader.readuntil(b"\r\n\r\n")  # takes the second request, and closes unanswered

    async with store_that(serve) as store:
        assert await ask(store) == (200, b"ok")
        assert await ask(store) == (200, b"ok")
        assert len(seen) == 2


async def test_what_is_not_repeatable_is_not_repeated() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        while await reader.readuntil(b"\r\n\r\n"):
            requests += 1
            if requests == 2:
                return
            writer.write(OK)

    async with store_that(serve) as store:
        assert await ask(store) == (200, b"ok")
        with pytest.raises(ApiError) as caught:
            await ask(store, "POST", b"")
        assert (caught.value.code, caught.value.status, requests) == ("SlowDown", 503, 2)


async def pieces(started: list[str], count: int = 10) -> AsyncIterator[bytes]:
    for _ in range(count):
        started.append("piece")
        yield b"x" * 100_000


async def test_body_is_not_begun_where_the_store_refuses() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"expect: 100-continue" in head
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    async with store_that(serve) as store:
        taken: list[str] = []
        assert await ask(store, "PUT", OnceBody(pieces(taken))) == (404, b"no")
        assert taken == []


async def test_refusal_in_the_middle_of_a_body_is_passed_on() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readexactly(150_000)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad")
        await reader.read()

    async with store_that(serve) as store:
        taken: list[str] = []
        assert await ask(store, "PUT", OnceBody(slowly(pieces(taken, 1000)))) == (400, b"bad")
        assert len(taken) < 1000


async def slowly(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in source:
        yield piece
        await asyncio.sleep(0.005)


async def test_body_that_fails_breaks_the_connection() -> None:
    ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            ended.set_result(await reader.readexactly(1_000_000))
        except (asyncio.IncompleteReadError, ConnectionError):
            ended.set_result(b"not whole")

    async def lies() -> AsyncIterator[bytes]:
        yield b"x" * 100_000
        raise ApiError("XAmzContentSHA256Mismatch", "not what was signed", 400)

    async with store_that(serve) as store:
        with pytest.raises(ApiError, match="not what was signed"):
            await ask(store, "PUT", OnceBody(lies()))
        assert await ended == b"not whole"


async def test_answer_that_ends_early_is_an_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async with store_that(serve) as store:
        with pytest.raises(StoreGone):
            await ask(store)


async def test_more_than_was_announced_is_never_another_answer() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await reader.readuntil(b"\r\n\r\n"):
            asked += 1
            writer.write(OK + (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil" if asked == 1 else b""))

    async with store_that(serve) as store:
        for _ in range(3):
            with suppress(ApiError, StoreGone):
                assert await ask(store) == (200, b"ok")
        assert await ask(store) == (200, b"ok")


async def test_store_that_is_away_is_waited_for_and_then_503() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with store_that(serve) as store:
        store._port = 1
        with pytest.raises(ApiError) as caught:
            await ask(store)
        assert caught.value.status == 503


async def test_silent_store_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with store_that(serve) as store:
        waiting = asyncio.create_task(ask(store))
        await wait_until_async(lambda: any(c._head is not None for c in store._all), what="the request is out")
        (connection,) = store._all
        connection.check_silence(asyncio.get_running_loop().time() + 299)
        assert not connection.transport.is_closing()
        connection.check_silence(asyncio.get_running_loop().time() + 301)
        with pytest.raises(ApiError) as caught:
            await waiting
        assert caught.value.status == 503
