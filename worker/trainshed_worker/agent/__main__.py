"""`python -m trainshed_worker.agent --home DIR --server URL --token-file FILE --slots N`: one agent per home.

SIGTERM or SIGINT end the agent and leave its jobs running; the next start takes them up. What a home still runs after
its agent has ended for good is ended by `python -m trainshed_worker.sweep`.
"""

import argparse
import asyncio
import fcntl
import logging
import os
import re
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from trainshed_worker.agent.core import Agent
from trainshed_worker.agent.facts import machine_facts
from trainshed_worker.agent.options import AgentOptions
from trainshed_worker.agent.service import Replaced
from trainshed_worker.protocol import MachineFacts

THREADS = 64
EXIT_REPLACED = 3
EXIT_LOCKED = 4


def byte_count(text: str) -> int:
    """`500M`, `10G`, `2T` (powers of 1000) or plain bytes. ArgumentTypeError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes, or 500M, 10G, 2T")
    return int(float(match.group(1)) * 1000 ** ("kmgt".index(match.group(2).lower()) + 1 if match.group(2) else 0))


def address_towards(server: str) -> str:
    """This machine's address on the way to the service. OSError where its name is not known, or no way leads there."""
    parts = urlsplit(server)
    host, port = parts.hostname or "", parts.port or 80
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # nothing is sent
        return str(probe.getsockname()[0])


def parse(arguments: list[str] | None = None) -> AgentOptions:
    parser = argparse.ArgumentParser(prog="python -m trainshed_worker.agent", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--server", required=True, help="URL of the API as reached from this machine")
    parser.add_argument("--token-file", type=Path, required=True, help="file with the enrollment token")
    parser.add_argument("--slots", type=int, default=1, help="instances that this machine holds at once")
    parser.add_argument("--instance-type", action="append", default=[], help="restrict slots to this type (repeatable)")
    parser.add_argument("--name", help="stable name of this agent; default: made up once and kept")
    parser.add_argument(
        "--advertise",
        metavar="ADDRESS",
        help="this machine's address for clusters over several machines; auto: from where it reaches the service; "
        "default: it takes part in none",
    )
    parser.add_argument("--environments", type=Path, help="JSON table: image pattern → Python environment")
    parser.add_argument(
        "--egress-allow", action="append", default=[], help="host:port of a private package index (repeatable)"
    )
    parser.add_argument(
        "--cache-limit",
        type=byte_count,
        default=os.environ.get("TRAINSHED_NODE_CACHE_LIMIT") or None,
        help="most bytes (10G, 500M …) that data and source archives of earlier jobs take, and as many for installed "
        "requirements; 0 keeps none; default: a tenth of the disk each, at most 50 GB ($TRAINSHED_NODE_CACHE_LIMIT)",
    )
    parser.add_argument(
        "--preload",
        action=argparse.BooleanOptionalAction,
        default=os.environ.get("TRAINSHED_PRELOAD", "1").strip().lower() not in {"0", "false", "off", "no"},
        help="start scripts as forks of a process that has torch imported ($TRAINSHED_PRELOAD; default: on)",
    )
    known = parser.parse_args(arguments)
    if known.slots < 1:
        parser.error("--slots must be at least 1")
    advertise = known.advertise
    if advertise == "auto":
        try:
            advertise = address_towards(known.server)
        except OSError as error:
            parser.error(f"--advertise auto: no way to {known.server} was found ({error}); name the address")
    return AgentOptions(
        home=known.home.absolute(),
        server=known.server,
        token_file=known.token_file,
        slots=known.slots,
        instance_types=tuple(known.instance_type),
        name=known.name,
        advertise=advertise,
        environments_file=known.environments,
        egress_allow=tuple(known.egress_allow),
        cache_limit=known.cache_limit,
        preload=known.preload,
    )


SWITCH_SECONDS = 0.0005
"""The event loop waits this long at most for a thread that computes: a start is a dozen short steps in both."""


def main(arguments: list[str] | None = None) -> int:
    sys.setswitchinterval(SWITCH_SECONDS)
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    options.node.mkdir(parents=True, exist_ok=True, mode=0o700)
    with options.lock_file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another agent is running for {options.home}", file=sys.stderr)
            return EXIT_LOCKED
        facts = machine_facts(options.node)
        try:
            asyncio.run(_serve(options, facts))
        except Replaced as error:
            print(f"a newer process of this agent has enrolled; this one ends ({error})", file=sys.stderr)
            return EXIT_REPLACED
    return 0


async def _serve(options: AgentOptions, facts: MachineFacts) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="agent"))
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await Agent(options, facts).run(stopped)


if __name__ == "__main__":
    sys.exit(main())
