"""doctor: what this machine can and cannot do, and how to mend it. Everything is really tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded import control, health
from trainshed_service.embedded.home import Home, HomeConfig, HomeError, default_home
from trainshed_service.embedded.ports import NAMES, is_free
from trainshed_service.embedded.store import StoreError, find_weed

out = Console(highlight=False)
_NEEDED_BYTES = 3 * 1024**3
# Without these a job cannot run at all; the other findings cost comfort or isolation.
_REQUIRED = ("python", "torch", "object-store", "disk", "home")


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str
    cure: str = ""


def run(folder: Path | None) -> None:
    """Print each check with its cure; exit code 1 where a thing is missing without which no job runs."""
    home = Home(folder or default_home())
    checks = list(all_checks(home))
    width = max(len(check.name) for check in checks)
    for check in checks:
        required = check.name in _REQUIRED
        mark = "[green]ok     [/]" if check.ok else ("[red]missing[/]" if required else "[yellow]without[/]")
        out.print(f"{mark} [bold]{check.name:<{width}}[/]  {escape(check.detail)}", soft_wrap=True)
        if not check.ok and check.cure:
            out.print(f"{'':<{width + 9}} → {escape(check.cure)}", soft_wrap=True)
    missing = [check.name for check in checks if not check.ok and check.name in _REQUIRED]
    if missing:
        raise CommandError(f"no job can run here before this is mended: {', '.join(missing)}")


def all_checks(home: Home) -> Iterator[Check]:
    yield _python()
    yield _torch()
    yield _object_store()
    yield _disk(home)
    yield _home(home)
    yield from _sandbox(home)
    yield _node_caches(home)
    yield _mpirun()
    yield _proxies()
    yield from _service(home)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer and run `make install`")


def _torch() -> Check:
    # In a process of its own: torch stays out of the service's processes, and a broken one may crash.
    code = "import torch; print(torch.__version__, '· CUDA devices:', torch.cuda.device_count())"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return Check("torch", False, "import torch takes more than 120 s", "look at the disk, then run `make install`")
    if done.returncode == 0:
        return Check("torch", True, done.stdout.strip())
    return Check("torch", False, (done.stderr.strip().splitlines() or ["it crashed"])[-1], "run `make install`")


def _object_store() -> Check:
    try:
        program = find_weed()
    except StoreError as error:
        return Check("object-store", False, "SeaweedFS's program is absent", str(error))
    done = subprocess.run([str(program), "version"], capture_output=True, text=True, timeout=60, check=False)
    words = done.stdout.strip().splitlines()[:1] or ["no answer"]
    return Check("object-store", done.returncode == 0, f"SeaweedFS: {words[0]}", "run `make install` again")


def _disk(home: Home) -> Check:
    place = next(path for path in (home.folder, *home.folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / 1e9:.1f} GB free for {home.folder}"
    return Check("disk", free > _NEEDED_BYTES, detail, "make room, or put the home on another disk by --home")


def _home(home: Home) -> Check:
    place = next(path for path in (home.folder, *home.folder.parents) if path.exists())
    ok = os.access(place, os.W_OK | os.X_OK)
    return Check("home", ok, str(home.folder), "give a folder that you may write by --home")


def _sandbox(home: Home) -> Iterator[Check]:
    from trainshed_worker.sandbox.probe import overlay, probe

    place = home.folder / "node" if home.exists() else Path(tempfile.gettempdir())
    for finding in (*probe(), overlay(place)):
        yield Check(finding.name, finding.ok, finding.detail, finding.cure)


def _node_caches(home: Home) -> Check:
    from trainshed_worker.agent.disk import kept_on_disk
    from trainshed_worker.data import default_limit

    node = home.folder / "node"
    kept = [f"{item.bytes / 1e9:.2f} GB in {item.entries} {item.what}" for item in kept_on_disk(node)]
    limit = os.environ.get("TRAINSHED_NODE_CACHE_LIMIT") or f"{default_limit(node) / 1e9:.0f} GB"
    return Check("node caches", True, f"{', '.join(kept)}; at most {limit} of the first and of the second")


def _mpirun() -> Check:
    found = shutil.which("mpirun")
    detail = found or "absent: jobs with the mpi distribution run without an MPI library"
    return Check("mpirun", found is not None, detail, "on Debian and Ubuntu: apt-get install openmpi-bin")


def _proxies() -> Check:
    names = [name for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") if os.environ.get(name)]
    excepted = os.environ.get("NO_PROXY", os.environ.get("no_proxy", ""))
    if not names:
        return Check("proxies", True, "none set")
    ok = "127.0.0.1" in excepted or excepted == "*"
    detail = f"{', '.join(names)} set, NO_PROXY {'names' if ok else 'does not name'} 127.0.0.1"
    return Check("proxies", ok, detail, 'eval "$(trainshed env)" in the shell of your clients')


def _service(home: Home) -> Iterator[Check]:
    if not home.exists():
        yield Check("service", False, f"never started in {home.folder}", "trainshed up")
        return
    try:
        config = home.read()
    except HomeError as error:
        yield Check("service", False, str(error))
        return
    if control.running(home) is None:
        yield Check("service", False, f"not running in {home.folder}", "trainshed up")
        yield from _remembered_ports(config)
        return
    for name in ("main", "gateway", "ingest"):
        port = config.ports.get(name, 0)
        yield Check(
            f"{name} port", health.answers(port), f"127.0.0.1:{port}", f"see the logs in {home.log}; trainshed down, up"
        )


def _remembered_ports(config: HomeConfig) -> Iterator[Check]:
    """Those of a service that does not run: `up` takes others where a stranger has them, unknown to older shells."""
    for name in NAMES:
        port = config.ports.get(name, 0)
        if port and not is_free(port):
            yield Check(
                f"{name} port",
                False,
                f"127.0.0.1:{port}, as last time, is in use by another program",
                'end that program; else `trainshed up` chooses a free port: then eval "$(trainshed env)" again',
            )
