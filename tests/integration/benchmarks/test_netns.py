"""The networks of the runtime's benchmark: limited, counted, and gone with whoever made them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.netns import CannotRun, Network, check
from tests.support.wait import wait_until
from trainshed_worker.sandbox import isolation

pytestmark = [
    pytest.mark.needs("ip"),
    pytest.mark.needs("unshare"),
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces without a user namespace need root"),
]
ROOT = Path(__file__).resolve().parents[3]
SENDS = """
import socket, sys, time
from benchmarks.netns import sent_and_received
with socket.create_server(("", 7000)) as server:
    print("listens", flush=True)
    connection, _ = server.accept()
    while connection.recv(1 << 16):
        pass
print(sent_and_received()[1])
"""
RECEIVES = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as connection:
    connection.sendall(bytes(2_000_000))
"""
MAKES = """
import signal
from benchmarks.netns import Network
with Network(2) as network:
    print(*(holder.pid for holder in network._holders), flush=True)
    signal.pause()
"""


@pytest.fixture(autouse=True)
def needs_isolation() -> None:
    if (found := isolation()) != "full":
        pytest.skip(f"isolation is {found}")


def start(network: Network, node: int, code: str, *args: str) -> subprocess.Popen[str]:
    argv = network.command(node, [sys.executable, "-c", code, *args])
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_links_are_limited_and_counted() -> None:
    with Network(2) as network:
        network.limit(50)
        listener = start(network, 0, SENDS)
        assert listener.stdout is not None and listener.stdout.readline() == "listens\n"
        began = time.monotonic()
        sender = start(network, 1, RECEIVES, network.address(0))
        received = int(listener.communicate(timeout=60)[0])
        took = time.monotonic() - began
        assert sender.wait(60) == 0
    assert 2_000_000 < received < 2_100_000
    assert took > (2_000_000 - 262_144) * 8 / 50e6, "quicker than the link, but for the bucket's burst"


def test_nothing_is_left_when_the_maker_is_killed() -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKES], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert maker.stdout is not None
    holders = [int(pid) for pid in maker.stdout.readline().split()]
    assert len(holders) == 3 and all(alive(pid) for pid in holders)
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    wait_until(lambda: not any(alive(pid) for pid in holders), what="the namespaces' holders ended")


def alive(pid: int) -> bool:
    """Not a zombie that its new parent has yet to wait for, either."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotRun, match="need root"):
        check()
