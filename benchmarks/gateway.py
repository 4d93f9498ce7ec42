"""How much of the store's own speed is left through the S3 gateway, and what memory the gateway takes.

Run: python benchmarks/gateway.py [--size-mib 1024] [--rounds 3] [--objects 300]

Starts a store and a gateway of its own in a temporary home and measures, in one run and in turns (so that both sides
see the same machine), directly at the store and through the gateway:

* up and down of one large object (boto3's managed transfer),
* PUT and GET of 4 KiB objects with 1 and with 8 threads,
* the growth of the gateway's resident memory while 8 streams are up and then down.

Direct requests are signed with the store's key; requests through the gateway with a user's key, encrypted at rest as by
default. A direct request asks for the same encryption, so that both move the same bytes. Prints medians, spreads
(lowest to highest round), the ratio of the medians and the machine's load. The exit status is 1 where a ratio is below
--require (default 0.6) or the memory grew by more than 64 MiB.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import psutil
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.gateway import REGION, GatewayUnderTest, running_gateway
from trainshed_service.embedded.store import EmbeddedStore

BUCKET = "bench"
MIB = 1024 * 1024
SMALL = 4096
MEMORY_LIMIT_MIB = 64


class Pattern:
    """A readable, seekable source of `size` pseudo-random bytes that costs no disk."""

    def __init__(self, size: int, block: bytes) -> None:
        self._size, self._block, self._at = size, block, 0

    def read(self, count: int = -1) -> bytes:
        left = self._size - self._at
        count = left if count < 0 else min(count, left)
        start = self._at % len(self._block)
        data = self._block[start : start + count]
        while len(data) < count:
            data += self._block[: count - len(data)]
        self._at += count
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        """Nothing is held."""


def client(endpoint: str, access_key: str, secret_key: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=REGION,
        config=Config(max_pool_connections=32, s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )


def upload(s3: Any, key: str, size: int, block: bytes) -> float:
    """MiB/s of a managed upload."""
    started = time.perf_counter()
    s3.upload_fileobj(Pattern(size, block), BUCKET, key, ExtraArgs={"ServerSideEncryption": "AES256"})
    return size / MIB / (time.perf_counter() - started)


def download(s3: Any, key: str, size: int) -> float:
    """MiB/s of one GET that reads the whole object."""
    started = time.perf_counter()
    body = s3.get_object(Bucket=BUCKET, Key=key)["Body"]
    got = sum(map(len, body.iter_chunks(MIB)))
    if got != size:
        raise RuntimeError(f"{got} of {size} bytes came back")
    return size / MIB / (time.perf_counter() - started)


def small(s3: Any, verb: str, prefix: str, count: int, threads: int) -> float:
    """Requests per second."""
    body = os.urandom(SMALL)

    def one(number: int) -> None:
        key = f"{prefix}/{number % count}"
        if verb == "put":
            s3.put_object(Bucket=BUCKET, Key=key, Body=body, ServerSideEncryption="AES256")
        else:
            s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, range(threads)))  # connections are open before the clock runs
        started = time.perf_counter()
        list(pool.map(one, range(count)))
        return count / (time.perf_counter() - started)


def paired(rounds: int, run: Callable[[Any, int], float], sides: dict[str, Any]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            found[name].append(run(sides[name], number))
    return found


def shown(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f}–{max(values):.0f}) {unit}"


def memory_growth(gateway: GatewayUnderTest, s3: Any, block: bytes, streams: int = 8, mib: int = 64) -> float:
    """MiB by which the gateway's resident memory rose over its idle state at most, with `streams` up, then down."""
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    idle = process.memory_info().rss
    peak = idle
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    single = TransferConfig(multipart_threshold=1 << 40, use_threads=False)
    try:
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            list(
                pool.map(
                    lambda n: s3.upload_fileobj(Pattern(mib * MIB, block), BUCKET, f"mem/{n}", Config=single),
                    range(streams),
                )
            )
            list(pool.map(lambda n: download(s3, f"mem/{n}", mib * MIB), range(streams)))
    finally:
        done.set()
        watcher.join()
    return (peak - idle) / MIB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--objects", type=int, default=300)
    parser.add_argument("--require", type=float, default=0.6)
    options = parser.parse_args()
    block = os.urandom(8 * MIB)
    size = options.size_mib * MIB
    failed = False
    with tempfile.TemporaryDirectory(prefix="trainshed-bench-") as folder:
        store = EmbeddedStore(Path(folder) / "home", die_with_thread=True)
        store.start()
        try:
            with running_gateway(store, Path(folder) / "home") as gateway:
                sides = {
                    "direct": client(store.endpoint, store.access_key, store.secret_key),
                    "gateway": client(gateway.endpoint, gateway.admin.access_key_id, gateway.admin.secret_access_key),
                }
                sides["direct"].create_bucket(Bucket=BUCKET)
                growth = memory_growth(gateway, sides["gateway"], block)
                rows: list[tuple[str, str, Callable[[Any, int], float]]] = []
                for threads in (1, 8):
                    for verb in ("put", "get"):
                        rows.append(
                            (
                                f"{verb} 4 KiB, {threads} thread{'s' if threads > 1 else ''}",
                                "/s",
                                lambda s3, _n, v=verb, t=threads: small(s3, v, "small", options.objects, t),
                            )
                        )
                rows.append((f"up {options.size_mib} MiB", "MiB/s", lambda s3, _n: upload(s3, "big", size, block)))
                rows.append((f"down {options.size_mib} MiB", "MiB/s", lambda s3, _n: download(s3, "big", size)))
                print(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, {options.rounds} rounds")
                print(f"{'':24} {'direct':>25} {'gateway':>25} {'ratio':>7}  load")
                for title, unit, run in rows:
                    found = paired(options.rounds, run, sides)
                    direct, through = (statistics.median(found[name]) for name in ("direct", "gateway"))
                    ratio = through / direct
                    failed |= ratio < options.require
                    sides_shown = " ".join(f"{shown(found[name], unit):>25}" for name in ("direct", "gateway"))
                    print(f"{title:24} {sides_shown} {ratio:7.2f}  {os.getloadavg()[0]:.1f}", flush=True)
                failed |= growth > MEMORY_LIMIT_MIB
                print(f"memory of the gateway with 8 streams: +{growth:.0f} MiB")
        finally:
            store.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
