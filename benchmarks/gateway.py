"""How much of the store's own speed is left through the S3 gateway, and what memory the gateway takes.

Run: python benchmarks/gateway.py [--size-mib 1024] [--rounds 3] [--objects 300]

Starts a store and a gateway of its own in a temporary home and measures, in one run and in turns (so that both sides
see the same machine), directly at the store and through the gateway:

* up and down of one large object (boto3's managed transfer),
* PUT and GET of 4 KiB objects with 1 and with 8 threads,
* the growth of the gateway's resident memory while 8 streams are up and then down.

Direct requests are signed with the store's key; requests through the gateway with a user's key, encrypted at rest as by
default. A direct request asks for the same encryption, so that both move the same bytes. Prints medians, spreads
(lowest to highest round), the ratio of the time that both took in all and the machine's load. The exit status is 1
where a ratio is below --require (default 0.6) or the memory grew by more than 64 MiB.
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
BATCH = 20


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


def small(s3: Any, verb: str, first: int, count: int, pool: concurrent.futures.ThreadPoolExecutor) -> float:
    """Requests per second of `count` requests, for the objects from number `first` on."""
    body = os.urandom(SMALL)

    def one(number: int) -> None:
        key = f"small/{number}"
        if verb == "put":
            s3.put_object(Bucket=BUCKET, Key=key, Body=body, ServerSideEncryption="AES256")
        else:
            s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    started = time.perf_counter()
    list(pool.map(one, range(first, first + count)))
    return count / (time.perf_counter() - started)


def small_in_turns(sides: dict[str, Any], verb: str, threads: int, objects: int, batch: int) -> dict[str, list[float]]:
    """The rate of each batch: short turns, so that what else the machine does falls on both sides alike."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for s3 in sides.values():
            small(s3, verb, 0, 2 * threads, pool)  # connections are open before the clock runs
        return paired(objects // batch, lambda s3, n: small(s3, verb, n * batch, batch, pool), sides)


def paired(rounds: int, run: Callable[[Any, int], float], sides: dict[str, Any]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            found[name].append(run(sides[name], number))
    return found


def report(title: str, unit: str, found: dict[str, list[float]]) -> float:
    """Print a row; the ratio of what both sides took for the same work in all rounds together."""
    ratio = statistics.harmonic_mean(found["gateway"]) / statistics.harmonic_mean(found["direct"])
    direct, gateway = (
        f"{statistics.median(v):.0f} ({min(v):.0f}–{max(v):.0f}) {unit}" for v in (found["direct"], found["gateway"])
    )
    print(f"{title:24} {direct:>27} {gateway:>27} {ratio:6.2f}  {os.getloadavg()[0]:.1f}", flush=True)
    return ratio


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
                print(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores")
                print(f"{'':24} {'direct':>27} {'gateway':>27} {'ratio':>6}  load", flush=True)
                for threads in (1, 8):
                    for verb in ("put", "get"):
                        found = small_in_turns(sides, verb, threads, options.objects, BATCH)
                        title = f"{verb} 4 KiB, {threads} thread{'s' if threads > 1 else ''}"
                        failed |= report(title, "/s", found) < options.require
                found = paired(options.rounds, lambda s3, _n: upload(s3, "big", size, block), sides)
                failed |= report(f"up {options.size_mib} MiB", "MiB/s", found) < options.require
                found = paired(options.rounds, lambda s3, _n: download(s3, "big", size), sides)
                failed |= report(f"down {options.size_mib} MiB", "MiB/s", found) < options.require
                failed |= growth > MEMORY_LIMIT_MIB
                print(f"memory of the gateway with 8 streams: +{growth:.0f} MiB")
        finally:
            store.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
