"""The gateway holds pieces of what it carries, never the whole: 8 bodies up, then down, at once, in bounded memory."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.depth import size
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.s3_raw import plain, signed_headers
from trainshed_service.embedded.store import EmbeddedStore

MIB = 1024 * 1024
STREAMS, SIZE = 8, size(16, 64) * MIB
LIMIT = 64 * MIB
"""Of all streams together; half of what they carry at once would pass it."""


@contextmanager
def watched(process: psutil.Process) -> Iterator[Callable[[], int]]:
    """Gives by how many bytes the resident memory, its children's too, has grown at most."""

    def resident() -> int:
        return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))

    idle = resident()
    peak, done = [idle], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak.append(max(peak[-1], resident()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: peak[-1] - idle
    finally:
        done.set()
        watcher.join()


def test_eight_streams_each_way(seaweed_store: EmbeddedStore, bucket: str, tmp_path: Path) -> None:
    body = os.urandom(MIB) * (SIZE // MIB)
    with running_gateway(seaweed_store, tmp_path / "home") as gateway, ThreadPoolExecutor(STREAMS) as pool:
        assert gateway.process is not None
        assert up(gateway, f"/{bucket}/first", b"first") == 200  # what the first request loads
        process = psutil.Process(gateway.process.pid)
        paths = [f"/{bucket}/{number}" for number in range(STREAMS)]
        with watched(process) as grown:
            assert list(pool.map(lambda path: up(gateway, path, body), paths)) == [200] * STREAMS
            after_uploads = grown()
            assert all(pool.map(lambda path: came_down(gateway, path, body), paths))
            assert max(after_uploads, grown()) < LIMIT, (after_uploads / MIB, grown() / MIB)


def up(gateway: GatewayUnderTest, path: str, body: bytes) -> int:
    headers = signed_headers(gateway.admin, "PUT", gateway.endpoint + path, "UNSIGNED-PAYLOAD")
    return plain("PUT", gateway.endpoint, path, body, headers).status


def came_down(gateway: GatewayUnderTest, path: str, body: bytes) -> bool:
    """Read in pieces, as a client does that writes them to a file."""
    headers = signed_headers(gateway.admin, "GET", gateway.endpoint + path, "UNSIGNED-PAYLOAD")
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        at, expected = 0, memoryview(body)
        while piece := answer.read(MIB):
            if piece != expected[at : at + len(piece)]:
                return False
            at += len(piece)
        return at == len(body)
    finally:
        connection.close()
