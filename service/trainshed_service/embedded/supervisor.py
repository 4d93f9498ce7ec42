"""`trainshed up`: one process per home that starts all parts, watches them and ends them in order.

Invariants:

* One supervisor per home: it holds a lock on `<home>/run/lock` for as long as it lives, whatever ends it.
* A part never outlives its supervisor. Job instances outlive a supervisor that dies: they belong to the node, and the
  next agent takes them up. An ordinary end (SIGTERM, SIGINT) ends them too; SIGUSR1 is an end that leaves them running.
* Parts that an earlier supervisor left (the kernel had not ended them yet) are gone before new ones start.
* `up` has succeeded only when every part answers; a start that fails ends what it started.
* Ending: the agent first, then api, ingest, gateway, and the store last, so that nobody loses what it talks to.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainshed_service.embedded import health, pids, plan
from trainshed_service.embedded.external_store import ExternalStore
from trainshed_service.embedded.forked import ForkServer, ForkServerEnded
from trainshed_service.embedded.home import Home, HomeConfig, UpError
from trainshed_service.embedded.parts import Part, describe_exit, tail
from trainshed_service.embedded.plan import PARTS
from trainshed_service.embedded.ports import PortClaims, PortTakenError, is_free
from trainshed_service.embedded.sdk_config import write_sdk_config
from trainshed_service.embedded.store import EmbeddedStore, StoreError
from trainshed_service.embedded.sweeping import sweep
from trainshed_service.settings import Settings

log = logging.getLogger("trainshed.supervisor")

_START_SECONDS = 120.0
_PORT_ATTEMPTS = 5


@contextmanager
def home_lock(home: Home) -> Iterator[None]:
    """Hold the home for this process. Raises UpError where another supervisor has it."""
    fd = os.open(home.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UpError(
                f"Trainshed is already running in {home.folder}; end it first with `trainshed down`, or give another "
                "--home"
            ) from None
        yield
    finally:
        os.close(fd)


class Supervisor:
    """`run` blocks until SIGTERM or SIGINT. `main_port`: 0 lets it choose; `with_agent`: also this machine's slots.

    Without an agent it is the service for other machines: it listens where TRAINSHED_* variables say, and uses the
    object store that they name, if they name one.
    """

    def __init__(self, home: Home, config: HomeConfig, *, main_port: int = 0, with_agent: bool = True) -> None:
        self._home = home
        self._config = config
        self._named_ports = {"main": main_port} if main_port else {}
        self._with_agent = with_agent
        self._store: EmbeddedStore | ExternalStore = EmbeddedStore(home.folder, die_with_thread=True)
        if not with_agent:
            settings = Settings(home=home.folder)
            named = {"main": settings.port, "gateway": settings.gateway_port, "ingest": settings.ingest_port}
            self._named_ports = {name: port for name, port in named.items() if port} | self._named_ports
            if settings.store_endpoint:
                self._store = ExternalStore(settings.store_endpoint)
        modules = plan.MODULES if with_agent and config.nodes else plan.SERVICE_MODULES
        self._forks = ForkServer(modules, environment=plan.base_environment(), log=home.log_path("fork-server"))
        self._parts: list[Part] = []
        self._claims = PortClaims()
        self._asked_to_end = False
        self._keep_jobs = True
        self._wakeup_read, self._wakeup_write = socket.socketpair()

    def run(self, on_ready: Callable[[HomeConfig], None]) -> None:
        """Start, call `on_ready` when everything answers, and watch. Raises UpError where the start fails."""
        self._listen_to_signals()
        os.umask(0o077)
        self._home.prepare()
        with home_lock(self._home):
            pids.note(self._home.pid_path("supervisor"), os.getpid())
            try:
                self._end_leftovers()
                try:
                    self._start()
                except ForkServerEnded as error:
                    raise UpError(f"{error}:\n{tail(self._home.log_path('fork-server'))}") from error
                if not self._asked_to_end:
                    log.info("ready at %s", self._config.main_url)
                    on_ready(self._config)
                    self._watch()
            finally:
                self._stop()
                self._home.pid_path("supervisor").unlink(missing_ok=True)

    # -- start ---------------------------------------------------------------------------------------------------

    def _end_leftovers(self) -> None:
        for name in PARTS[:-1]:  # the store ends its own
            left = pids.living(self._home.pid_path(name))
            if left is not None:
                log.warning("%s of an earlier start still runs (pid %d); ending it", name, left.pid)
                pids.end(left, grace=5.0)
            self._home.pid_path(name).unlink(missing_ok=True)

    def _start(self) -> None:
        self._forks.begin()
        self._run_once("bootstrap", plan.BOOTSTRAP)
        self._config = self._home.read()
        log.info("starting the object store")
        try:
            self._store.start()
        except StoreError as error:
            raise UpError(str(error)) from error
        for attempt in range(_PORT_ATTEMPTS):
            self._choose_ports()
            self._parts = self._service_parts()
            for part in self._parts:
                part.start()
            if self._wait_for_service() or self._asked_to_end:
                break
            for part in self._parts:
                part.stop()
            if self._named_ports or attempt + 1 == _PORT_ATTEMPTS:
                raise UpError("a port was taken by another program during the start; try again")
        if self._asked_to_end:
            return
        self._run_once("default-bucket", plan.DEFAULT_BUCKET)
        write_sdk_config(self._home, self._config)
        self._store.supervise(self._store_came_back)
        if self._with_agent and self._config.nodes:
            agent = Part(
                "agent",
                self._home,
                self._forks,
                plan.agent_command(self._home, self._config),
                plan.agent_environment(),
                grace=30.0,
                report=log.warning,
            )
            self._parts.append(agent)
            agent.start()

    def _choose_ports(self) -> None:
        try:
            chosen = self._claims.choose(self._config.ports, self._named_ports)
        except PortTakenError as error:
            raise UpError(str(error)) from error
        ports = chosen | {f"store_{name}": port for name, port in self._store.named_ports().items()}
        self._config = self._config.model_copy(update={"ports": ports})
        with self._home.changing():
            self._home.write(self._config)

    def _service_parts(self) -> list[Part]:
        environment = plan.service_environment(
            self._home, self._config, self._store.environment(), for_others=not self._with_agent
        )
        return [
            Part(name, self._home, self._forks, plan.service_command(name), environment, report=log.warning)
            for name in plan.SERVICE_PARTS
        ]

    def _wait_for_service(self) -> bool:
        """True when all answer; False when one could not have its port. Raises UpError for everything else."""
        waiting = list(self._parts)
        deadline = time.monotonic() + _START_SECONDS
        while waiting and not self._asked_to_end:
            for part in list(waiting):
                port = self._config.ports[plan.PORT_OF[part.name]]
                if not part.alive:
                    code = part.process.returncode if part.process else None
                    if not is_free(port):
                        return False
                    path = self._home.log_path(part.name)
                    raise UpError(f"{part.name} ended at its start ({describe_exit(code)}):\n{tail(path)}")
                # A stranger may have taken the port while our part was loading: its answer does not count.
                if health.answers(port) and health.listens(part.process, port):
                    waiting.remove(part)
            if time.monotonic() > deadline:
                late = waiting[0].name
                raise UpError(
                    f"{late} does not answer after {_START_SECONDS:.0f} s:\n{tail(self._home.log_path(late))}"
                )
            self._wait(0.05)
        return True

    def _run_once(self, name: str, module: str) -> None:
        """Run what a start needs once, in a process of its own. Raises UpError with its words where it fails."""
        path = self._home.log_path(name)
        path.unlink(missing_ok=True)
        environment = plan.preparing_environment()
        process = self._forks.fork(module, [str(self._home.folder)], environment, log=path, folder=self._home.folder)
        code = process.wait()
        if code != 0:
            raise UpError(tail(path) or f"{name} {describe_exit(code)}")

    # -- while it runs -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._asked_to_end:
            due = [seconds for part in self._parts if (seconds := part.poll()) is not None]
            self._wait(min([1.0, *due]))

    def _store_came_back(self, endpoint: str) -> None:
        """Called from the store's thread. A gateway that was told another endpoint has to be started again."""
        gateway = next(part for part in self._parts if part.name == "gateway")
        if gateway.environment["TRAINSHED_STORE_ENDPOINT"] != endpoint:
            gateway.environment = {**gateway.environment, **self._store.environment()}
            process = gateway.process
            if process is not None:
                process.terminate()

    def _wait(self, seconds: float) -> None:
        """Until a signal comes (a child's end is one), or the time is over."""
        readable, _, _ = select.select([self._wakeup_read], [], [], seconds)
        if readable:
            self._wakeup_read.recv(4096)

    # -- end -----------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        by_name = {part.name: part for part in self._parts}
        for name in PARTS[:-1]:
            if name in by_name:
                by_name[name].stop()
        if not self._keep_jobs and self._home.node.is_dir():
            sweep(self._home)
        self._forks.end()
        self._store.stop()
        self._claims.close()
        log.info("all parts have ended")

    def _listen_to_signals(self) -> None:
        self._wakeup_read.setblocking(False)
        self._wakeup_write.setblocking(False)
        signal.set_wakeup_fd(self._wakeup_write.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._on_end_signal)

    def _on_end_signal(self, number: int, _: object) -> None:
        self._asked_to_end = True
        self._keep_jobs = number == signal.SIGUSR1


__all__ = ["Supervisor", "home_lock"]
