"""Ranks of a torch.distributed job, forked from a parent that has torch imported: a rank costs milliseconds of a core.

    losses = run_ranks(4, training.train, case, ranks_per_node=2)      # a module-level function, or "module:function"

Each rank runs `function(*args)` in a process of its own over gloo on loopback and gives back a picklable result. The
process that asks need not import torch: name the function as text where its module imports torch, and give back plain
numbers and lists. Invariants: the parent is one thread and never runs a tensor operation; every rank has ended at the
deadline at the latest; no rank outlives its parent and the parent does not outlive the processes that ask it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import hashlib
import importlib
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.wait import patient

_REPOSITORY = Path(__file__).resolve().parents[2]
_PRELOADED = (
    *("numpy", "torch", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch._dynamo"),
    *("torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.checkpoint.state_dict"),
    *("torch.distributed.checkpoint", "torch.utils.checkpoint", "torch.testing"),
)
_GRACE = 10.0  # for the others, once a rank has failed: their own errors tell more than being killed
_TAIL = 4000
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """How a rank ended: with `value`; with `error`, its traceback; or by `signal` (at its deadline: SIGKILL)."""

    rank: int
    value: Any = None
    error: str | None = None
    signal: int | None = None
    output: str = ""

    @property
    def ok(self) -> bool:
        return self.error is None and self.signal is None


class RanksFailed(AssertionError):
    """Not all ranks returned; `outcomes` has every rank's."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = list(outcomes)
        parts = []
        for outcome in outcomes:
            if not outcome.ok:
                why = outcome.error or f"ended by signal {outcome.signal} (SIGKILL: at its deadline)"
                parts.append(f"rank {outcome.rank}: {why}\n{outcome.output[-_TAIL:]}")
        super().__init__("\n".join(parts))


def run_ranks(
    world: int,
    function: Callable[..., Any] | str,
    *args: Any,
    timeout: float = 60.0,
    per_rank: Sequence[tuple[Any, ...]] | None = None,
    ranks_per_node: int | None = None,
    env: Mapping[str, str] | None = None,
    group: bool = True,
    collective_timeout: float | None = None,
) -> list[Any]:
    """The results of `world` ranks in order; RanksFailed where one raised, died or was late (`timeout` in seconds).

    `per_rank[i]` are further arguments of rank i. `ranks_per_node` makes nodes by LOCAL_RANK and LOCAL_WORLD_SIZE (one
    node if absent). `group=False` leaves init_process_group to the function: MASTER_ADDR and MASTER_PORT are set.
    """
    outcomes = try_ranks(
        world,
        function,
        *args,
        timeout=timeout,
        per_rank=per_rank,
        ranks_per_node=ranks_per_node,
        env=env,
        group=group,
        collective_timeout=collective_timeout,
        grace=_GRACE,
    )
    if not all(outcome.ok for outcome in outcomes):
        raise RanksFailed(outcomes)
    return [outcome.value for outcome in outcomes]


def try_ranks(
    world: int,
    function: Callable[..., Any] | str,
    *args: Any,
    timeout: float = 60.0,
    per_rank: Sequence[tuple[Any, ...]] | None = None,
    ranks_per_node: int | None = None,
    env: Mapping[str, str] | None = None,
    group: bool = True,
    collective_timeout: float | None = None,
    grace: float | None = None,
) -> list[Outcome]:
    """As `run_ranks`, but tells how each rank ended; `grace`: seconds that are left after the first failure."""
    name = function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"
    per_node = ranks_per_node or world
    if world % per_node:
        raise ValueError(f"{world} ranks are not whole nodes of {per_node}")
    folder = Path(tempfile.mkdtemp(prefix="ranks-"))
    try:
        answer = _PARENT.ask(
            {
                "world": world,
                "function": name,
                "args": pickle.dumps((args, per_rank)),
                "per_node": per_node,
                "env": dict(env or {}),
                "group": group,
                "collective_timeout": patient(collective_timeout or timeout),
                "timeout": patient(timeout),
                "grace": None if grace is None else patient(grace),
                "folder": str(folder),
                "path": sys.path,
            }
        )
        return [_outcome(folder, rank, code) for rank, code in enumerate(answer)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def end_rank_parent() -> None:
    """Leave the parent; it ends when all processes of the test run have left it."""
    _PARENT.end()


def _outcome(folder: Path, rank: int, code: int) -> Outcome:
    output = (folder / f"output.{rank}").read_text(errors="replace")
    result = folder / f"result.{rank}"
    if code == 0 and result.exists():
        return Outcome(rank, value=pickle.loads(result.read_bytes()), output=output)
    error = folder / f"error.{rank}"
    if error.exists():
        return Outcome(rank, error=error.read_text(), output=output)
    if code < 0:
        return Outcome(rank, signal=-code, output=output)
    return Outcome(rank, error=f"ended with exit code {code} and without a result", output=output)


class _Parent:
    """The asking side; one run at a time. All workers of a test run share one parent, which the first starts.

    Each keeps a connection open; the parent ends with the last of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def ask(self, request: dict[str, Any]) -> list[int]:
        with self._lock:
            if self._connection is None:
                self._connection = _connect()
            with self._connection.makefile("rwb") as stream:
                _write(stream, request)
                codes: list[int] = _read(stream)
            return codes

    def end(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


_PARENT = _Parent()


def _connect() -> socket.socket:
    folder = Path(tempfile.gettempdir())
    with (folder / f"ranks-{os.getuid()}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / f"ranks-{os.getuid()}-{_version()}.sock"
        try:
            return _connected(path)
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(64)
            single = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
            subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno())],
                cwd=_REPOSITORY,
                env={**os.environ, **single},
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
            return _connected(path)


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def _version() -> str:
    """A parent of other code is not to be used: outside of a test run the folder outlives it."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]


def _read(stream: Any) -> Any:
    head = stream.read(8)
    if len(head) < 8:
        raise EOFError
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))


def _write(stream: Any, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def _serve(listener: socket.socket) -> None:
    """The parent: import, then for each request a fork that runs its ranks and answers with their exit codes."""
    for module in _PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    connections: list[socket.socket] = []
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks are nobody's to wait for
    while True:
        for ready in select.select([listener, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
                continue
            try:
                with ready.makefile("rb") as stream:
                    request = _read(stream)
            except (EOFError, ConnectionError):
                connections.remove(ready)
                ready.close()
                continue
            threads = len(os.listdir("/proc/self/task"))
            if threads != 1:
                raise RuntimeError(f"the parent of the ranks has {threads} threads; a fork would not be safe")
            if os.fork() == 0:
                _answer(ready, request, [listener, *(other for other in connections if other is not ready)])
        if not connections:
            return


def _answer(connection: socket.socket, request: dict[str, Any], others: Sequence[socket.socket]) -> None:
    """The life of a fork of the parent; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in others:
            other.close()
        codes = _run(request, connection)
        with connection.makefile("wb") as stream:
            _write(stream, codes)
        code = 0
    except ConnectionError:
        pass  # whoever asked is gone
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(request: dict[str, Any], asker: socket.socket) -> list[int]:
    """Fork, wait for all or the deadline, release those that are done together, kill the rest."""
    release, hold = os.pipe()
    done, tell = os.pipe()
    port = free_port()
    pids = []
    for rank in range(request["world"]):
        pid = os.fork()
        if pid == 0:
            os.close(hold)
            os.close(done)
            asker.close()
            _rank(rank, request, port, tell, release)
        pids.append(pid)
    os.close(tell)
    os.close(release)
    codes = _wait(pids, done, hold, request["timeout"], request["grace"], asker)
    os.close(done)
    return codes


def _wait(
    pids: list[int], done: int, hold: int, timeout: float, grace: float | None, asker: socket.socket
) -> list[int]:
    alive = {os.pidfd_open(pid): rank for rank, pid in enumerate(pids)}
    codes: dict[int, int] = {}
    finished = 0
    deadline = time.monotonic() + timeout
    held = True
    listening = [asker]
    while alive:
        watched = [*alive, done] if held else [*alive]
        ready = select.select([*watched, *listening], [], [], max(0.0, deadline - time.monotonic()))[0]
        if asker in ready:  # it says nothing more until it has its answer, so it is gone
            listening = []
            ready = []
        if not ready:
            for pidfd in alive:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            deadline = time.monotonic() + _GRACE  # until the kernel has ended them
        for descriptor in ready:
            if descriptor == done:
                finished += len(os.read(done, 4096))
                continue
            rank = alive.pop(descriptor)
            os.close(descriptor)
            codes[rank] = os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1])
            if codes[rank] != 0 and grace is not None:
                deadline = min(deadline, time.monotonic() + grace)
        if held and finished + len(codes) >= len(pids):
            os.close(hold)
            held = False
    if held:
        os.close(hold)
    return [codes[rank] for rank in range(len(pids))]


def _rank(rank: int, request: dict[str, Any], port: int, tell: int, release: int) -> None:
    """The life of a rank; never returns. Connections stay open until all are done: a peer may still read from them."""
    code = 1
    folder = Path(request["folder"])
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _redirect(folder / f"output.{rank}")
        os.environ.update(_variables(rank, request, port))
        sys.path[:] = request["path"]
        value = _call(rank, request)
        (folder / f"result.{rank}").write_bytes(pickle.dumps(value))
        code = 0
        os.write(tell, b"x")
        os.read(release, 1)
    except BaseException:  # noqa: BLE001 - whatever it is, it is the rank's outcome
        with contextlib.suppress(OSError):
            (folder / f"error.{rank}").write_text(traceback.format_exc())
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _call(rank: int, request: dict[str, Any]) -> Any:
    module, _, name = request["function"].partition(":")
    args, per_rank = pickle.loads(request["args"])
    if request["group"]:
        from datetime import timedelta

        import torch.distributed as dist

        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(Path(request["folder"]) / "store"), request["world"]),
            rank=rank,
            world_size=request["world"],
            timeout=timedelta(seconds=request["collective_timeout"]),
        )
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    return function(*args, *(per_rank[rank] if per_rank else ()))


def _variables(rank: int, request: dict[str, Any], port: int) -> dict[str, str]:
    per_node, world = request["per_node"], request["world"]
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": rank % per_node,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": rank // per_node,
        "NODE_RANK": rank // per_node,
        "MASTER_PORT": port,
    }
    fixed = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**{name: str(number) for name, number in numbers.items()}, **fixed, **request["env"]}


def _redirect(output: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for source, targets in ((nothing, (0,)), (log, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        os.close(source)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
