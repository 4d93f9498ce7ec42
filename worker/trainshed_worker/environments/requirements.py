"""A job's requirements.txt as a shared, read-only layer: built once per (requirements, role, base), inside a sandbox.

Invariants: a layer's name appears only when it is complete (built aside, sealed, renamed); two jobs that want the same
layer build it once; a layer is never shared between roles, since a requirement may be private to one. pip sees the base
as installed and is held to the base's versions, so torch is never fetched again.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trainshed_worker.contract import OVERLAY, InstanceLayout, ml_binds, raw_hyperparameters, text
from trainshed_worker.contract.hyperparameters import PROGRAM
from trainshed_worker.data.errors import Cancelled, DataError
from trainshed_worker.data.store import Cancellation
from trainshed_worker.environments.base import BaseEnvironment
from trainshed_worker.environments.layers import LayerStore
from trainshed_worker.environments.pip_settings import pip_settings
from trainshed_worker.environments.provide import Installed
from trainshed_worker.environments.sealing import seal
from trainshed_worker.environments.skeleton import make_skeleton, site_packages
from trainshed_worker.logs import last_lines
from trainshed_worker.protocol import Assignment, FailureCause, MachineFacts
from trainshed_worker.sandbox import (
    Bind,
    Command,
    ExitRecord,
    SandboxError,
    SandboxSpec,
    attach,
    python_binds,
    remove_tree,
    start,
)

LAYER = Path("/opt/requirements")
"""Where a layer is mounted, while it is built and when it is used: console scripts name it."""
PIP_TIMEOUT = 1800.0
KILL_TIMEOUT = 15.0
MAX_REASON = 900
_SHOWN_LINES = 100
_OWN = ("trainshed",)
_ALWAYS_HELD = re.compile(r"^(torch|torchvision|torchaudio|triton|nvidia[-_].*|trainshed)$", re.IGNORECASE)
_CONFLICT = ("ResolutionImpossible", "conflicting dependencies", "Cannot install")


@dataclass(frozen=True)
class Requirements:
    """A requirements file of a job: on the node, as the job sees it, and a hash of all that it depends on."""

    file: Path
    inside: PurePosixPath
    digest: str

    @property
    def shown(self) -> str:
        return self.file.name


def requirements_of(assignment: Assignment, layout: InstanceLayout) -> Requirements | None:
    """The file that the job wants installed before it starts, None where there is none. Blocking.

    SDK v2: requirements.txt beside the entry point in the source archive. SDK v3: the file that its own driver would
    install from the `code` channel; installed beforehand, so that the driver finds it satisfied without a network.
    """
    if text(raw_hyperparameters(assignment.request), PROGRAM):
        candidate = layout.code / "requirements.txt"
    else:
        name = _driver_requirements(layout)
        if name is None:
            return None
        candidate = layout.input_data / "code" / name
    if not candidate.is_file() or candidate.is_symlink():
        return None
    if not [line for line in candidate.read_text("utf-8", "replace").splitlines() if _meaningful(line)]:
        return None
    return Requirements(candidate, layout.inside(candidate), _digest(candidate))


def in_channels(assignment: Assignment) -> bool:
    """True where `requirements_of` looks into channels."""
    return not text(raw_hyperparameters(assignment.request), PROGRAM)


def _driver_requirements(layout: InstanceLayout) -> str | None:
    try:
        document: Any = json.loads((layout.input_data / "sm_drivers" / "sourcecode.json").read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    name = document.get("requirements") if isinstance(document, dict) else None
    if name == "auto":
        name = "requirements.txt"
    if not isinstance(name, str) or not name:
        return None
    path = PurePosixPath(name)
    return None if path.is_absolute() or ".." in path.parts else name


def _meaningful(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _digest(file: Path) -> str:
    """Hash of the file; of its whole folder where a line refers to other files."""
    content = file.read_bytes()
    digest = hashlib.sha256(content)
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines() if _meaningful(line)]
    if any(re.match(r"^(-|\.|/)|.*(file:|\.whl|\.tar\.gz)", line) for line in lines):
        for path in sorted(file.parent.rglob("*")):
            if path.is_file() and not path.is_symlink():
                digest.update(str(path.relative_to(file.parent)).encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class Installer:
    """Builds layers of a store. Calls block."""

    def __init__(
        self,
        layers: LayerStore,
        base: BaseEnvironment,
        network: Any,
        facts: MachineFacts,
        say: Callable[[str], None],
    ) -> None:
        self._layers = layers
        self._directory = layers.directory
        self._base = base
        self._network = network
        self._facts = facts
        self._say = say

    def install(
        self,
        wanted: Requirements,
        assignment: Assignment,
        layout: InstanceLayout,
        slot: int,
        cancellation: Cancellation,
    ) -> Installed:
        """The layer, built now or before. DataError (USER_INPUT) with pip's own words; Cancelled; SandboxError."""
        settings = pip_settings(self._base, assignment.request.get("Environment") or {})
        identity = [wanted.digest, assignment.request.get("RoleArn"), self._base.fingerprint, settings.variables]
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock(key, cancellation):
            layer = self._layers.use(key, assignment.id)
            if layer is not None:
                self._say(f"Requirements of {wanted.shown} are already installed on this node")
                return Installed(layer, LAYER)
            self._remove_old_builds(key)
            build = self._directory / f".build-{key}-{secrets.token_hex(4)}"
            try:
                self._say(f"Installing {wanted.shown}")
                self._build(build, wanted, assignment, layout, slot, cancellation)
                seal(str(build / "layer"))
                layer = self._layers.add(key, build / "layer", assignment.id)
            finally:
                _delete(build)
        return Installed(layer, LAYER)

    @contextlib.contextmanager
    def _lock(self, key: str, cancellation: Cancellation) -> Iterator[None]:
        descriptor = os.open(self._directory / f".{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    cancellation.wait(0.2)
            yield
        finally:
            os.close(descriptor)

    def _remove_old_builds(self, key: str) -> None:
        """What a crash left; the lock says that nobody is at it."""
        for path in self._directory.glob(f".build-{key}-*"):
            _remove_build(path)

    def _build(
        self,
        build: Path,
        wanted: Requirements,
        assignment: Assignment,
        layout: InstanceLayout,
        slot: int,
        cancellation: Cancellation,
    ) -> None:
        for strict in (True, False):
            _delete(build)
            layer = build / "layer"
            layer.mkdir(parents=True)
            make_skeleton(layer, PurePosixPath(LAYER), self._base, self._base.site, [])
            constraints = build / "constraints.txt"
            constraints.write_text("\n".join(self._constraints(strict)) + "\n")
            constraints.chmod(0o644)
            cancellation.check()
            lines, code = self._pip(build, layer, constraints, wanted, assignment, layout, slot, cancellation)
            if code == 0:
                for line in lines:
                    if line.startswith("Successfully installed"):
                        self._say(line)
                (site_packages(layer, self._base) / "_below.pth").unlink(missing_ok=True)
                return
            if not strict or not any(mark in line for line in lines for mark in _CONFLICT):
                for line in lines[-_SHOWN_LINES:]:
                    self._say(line)
                raise DataError(FailureCause.USER_INPUT, _reason(wanted, lines, code))
            self._say(f"{wanted.shown} asks for other versions than the environment's; only torch is held fast now")

    def _constraints(self, strict: bool) -> list[str]:
        return [
            f"{name}=={version}"
            for name, version in self._base.distributions
            if name.lower() not in _OWN and (strict or _ALWAYS_HELD.match(name))
        ]

    def _pip(
        self,
        build: Path,
        layer: Path,
        constraints: Path,
        wanted: Requirements,
        assignment: Assignment,
        layout: InstanceLayout,
        slot: int,
        cancellation: Cancellation,
    ) -> tuple[list[str], int]:
        settings = pip_settings(self._base, assignment.request.get("Environment") or {})
        environment = {
            "PATH": f"{LAYER}/bin:{self._base.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "PIP_NO_INPUT": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            **settings.variables,
        }
        proxy = self._network.egress_proxy
        if proxy:
            for name in ("HTTP_PROXY", "HTTPS_PROXY"):
                environment[name] = environment[name.lower()] = proxy
        # An environment variable would replace the constraints of the node's configuration; options add to them.
        extra = environment.pop("PIP_CONSTRAINT", "").split()
        options = [word for path in (*extra, "/opt/constraints.txt") for word in ("--constraint", path)]
        argv = [f"{LAYER}/bin/python3", "-m", "pip", "install", "--no-warn-script-location"]
        argv += [*options, "--requirement", str(wanted.inside)]
        binds = [
            *ml_binds(layout, layered=OVERLAY in self._facts.features),  # a package in the source builds where it lies
            Bind(str(layer), str(LAYER), writable=True, give=True),
            Bind(str(constraints), "/opt/constraints.txt"),
            *python_binds(self._base.prefix),
            *(Bind(str(path), str(path), optional=True) for path in settings.paths if not _system(path)),
        ]
        spec = SandboxSpec(
            directory=str(build / "sandbox"),
            hostname=assignment.host.name,
            commands=[Command(argv=argv, env=environment, cwd=str(wanted.inside.parent), stream=assignment.host.name)],
            hosts=self._network.hosts,
            binds=binds,
            slot=slot,
            network="cluster" if self._network.mode == "cluster" else "host",
            network_dir=str(self._network.directory) if self._network.directory else "",
            isolation="full" if self._facts.isolation == "full" else "none",
            deadline=time.time() + PIP_TIMEOUT,
            instance_id=f"{assignment.id}-requirements",
        )
        record = _run(spec, cancellation)
        lines = [line.text for line in last_lines(build / "sandbox" / "spool" / "lines.jsonl", limit=2000)]
        if record.reason in ("sandbox-failed", "supervisor-lost"):
            raise SandboxError(f"pip could not be run: {record.message or record.reason}")
        if record.reason == "deadline":
            return [*lines, f"ERROR: pip did not end within {PIP_TIMEOUT:.0f} s"], 1
        return lines, record.exit_code


def _run(spec: SandboxSpec, cancellation: Cancellation) -> ExitRecord:
    """Start and wait for the end; a cancelled one is killed first."""
    handle = start(spec)
    while (record := handle.wait(0.2)) is None:
        if cancellation.cancelled:
            handle.kill()
            handle.wait(KILL_TIMEOUT)
            raise Cancelled
    return record


def remove_stale_builds(directory: Path) -> None:
    """End and delete what an agent that was killed left half built. Call before any layer is built."""
    for build in directory.glob(".build-*"):
        _remove_build(build)


def _remove_build(build: Path) -> None:
    handle = attach(build / "sandbox")
    if handle is not None and handle.is_alive():
        handle.kill()
        handle.wait(KILL_TIMEOUT)
    _delete(build)


def _delete(build: Path) -> None:
    """Whatever a package's build has left. What cannot be deleted now is tried again at the agent's next start."""
    with contextlib.suppress(OSError):
        remove_tree(build)


def _system(path: Path) -> bool:
    return path.is_relative_to("/usr") or path.is_relative_to("/etc/ssl")


def _reason(wanted: Requirements, lines: list[str], code: int) -> str:
    """pip's own error lines, else its last lines."""
    errors = [line.strip() for line in lines if "ERROR" in line] or [line.strip() for line in lines[-5:]]
    words = " ".join(dict.fromkeys(errors))
    if len(words) > MAX_REASON:
        words = words[:MAX_REASON] + "…"
    return f"pip could not install {wanted.shown} (exit code {code}): {words}"
