"""Byte pumps between two TCP connections.

Invariant: bytes are passed on unchanged, with back-pressure (no more than a few buffers are held), and an end of one
direction is passed on as such while the other goes on.
"""

import asyncio
import contextlib

BUFFER = 1 << 18
CONNECT_TIMEOUT = 10.0


async def connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises OSError (TimeoutError included)."""
    async with asyncio.timeout(CONNECT_TIMEOUT):
        return await asyncio.open_connection(host, port, limit=BUFFER)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the reader's end, then end the writer's direction."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(BUFFER):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def join(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter], target: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Pump both ways until both have ended; closes the target."""
    try:
        await asyncio.gather(pump(client[0], target[1]), pump(target[0], client[1]))
    finally:
        target[1].close()


def abort(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, so that the other side sees a failure and no clean end."""
    transport = writer.transport
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()
