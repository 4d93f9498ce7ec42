"""Limits and accounting by control groups, version 1 or 2, below the group that the caller itself runs in.

Invariant: a group is always nested in the caller's own, so no process escapes a limit that was set above us; what a
machine does not offer is left out with a notice, never an error. Sizes are bytes.
"""

import contextlib
import errno
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from trainshed_worker.sandbox.spec import Usage

V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct", "freezer")
REMOVE_TIMEOUT = 2.0


@dataclass
class Groups:
    """The groups of one instance. `paths` are folders, of which any may hold several controllers."""

    paths: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def add(self, pid: int) -> None:
        """Move a process in; its later children are born there."""
        for path in self.paths:
            Path(path, "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """How many of its processes the kernel has killed for memory."""
        return sum(_counter(Path(path), "memory.oom_control", "oom_kill") for path in self.paths) + sum(
            _counter(Path(path), "memory.events", "oom_kill") for path in self.paths
        )


def controllers() -> dict[str, Path]:
    """Controller name → folder of this process's own group ("unified" for version 2)."""
    mounts: dict[str, tuple[Path, str]] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _, options = [*right.split(), "", "", ""][:3]
            fields = left.split()
            point = Path(fields[4].replace("\\040", " "))
            if kind == "cgroup2":
                mounts["unified"] = (point, fields[3])
            elif kind == "cgroup":
                for name in options.split(","):
                    mounts[name] = (point, fields[3])
    found: dict[str, Path] = {}
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            for name in names.split(",") if names else ["unified"]:
                if name in mounts:
                    point, root = mounts[name]
                    relative = os.path.relpath(path, root)
                    if not relative.startswith(".."):
                        found[name] = Path(os.path.normpath(point / relative))
    return found


def create(name: str, memory_bytes: int, pids: int, cpu_shares: int) -> Groups:
    """Make the groups `name` with these limits (0: none)."""
    groups = Groups()
    own = controllers()
    if _is_v2(own):
        _create_v2(own["unified"], name, memory_bytes, pids, cpu_shares, groups)
        return groups
    for controller in V1_CONTROLLERS:
        parent = own.get(controller)
        if parent is None:
            groups.notices.append(f"no {controller} cgroup on this machine: not limited or accounted")
            continue
        folder = parent / name
        if str(folder) in groups.paths:
            continue
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            groups.notices.append(
                f"the {controller} cgroup cannot be made ({error.strerror}): not limited or accounted"
            )
            continue
        groups.paths.append(str(folder))
    paths = [Path(path) for path in groups.paths]
    if memory_bytes:
        _limit(paths, "memory.limit_in_bytes", str(memory_bytes), groups)
        _limit(paths, "memory.memsw.limit_in_bytes", str(memory_bytes), groups, quiet=True)
    if pids:
        _limit(paths, "pids.max", str(pids), groups)
    if cpu_shares:
        _limit(paths, "cpu.shares", str(cpu_shares), groups)
    return groups


def candidates(name: str) -> list[str]:
    """Folders of which `create` may make some."""
    own = controllers()
    if _is_v2(own):
        return [str(_v2_parent(own["unified"]) / name)]
    return [str(own[controller] / name) for controller in V1_CONTROLLERS if controller in own]


def _is_v2(own: dict[str, Path]) -> bool:
    return "unified" in own and "memory" not in own and "pids" not in own


def _v2_parent(own: Path) -> Path:
    return own.parent if own.name == AGENT_LEAF else own


def _create_v2(own: Path, name: str, memory_bytes: int, pids: int, cpu_shares: int, groups: Groups) -> None:
    parent = _v2_parent(own)
    folder = parent / name
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        groups.notices.append(f"cgroup {parent} is not ours to use ({error.strerror}): no limits, no accounting")
        return
    groups.paths.append(str(folder))
    if memory_bytes:
        _limit([folder], "memory.max", str(memory_bytes), groups)
        _limit([folder], "memory.swap.max", "0", groups, quiet=True)
    if pids:
        _limit([folder], "pids.max", str(pids), groups)
    if cpu_shares:
        weight = max(1, min(10_000, 1 + (max(cpu_shares, 2) - 2) * 9_999 // 262_142))
        _limit([folder], "cpu.weight", str(weight), groups)


AGENT_LEAF = "trainshed-agent"


def delegate() -> str:
    """Version 2 only: make the agent's group able to hold limited children, by moving the agent's own processes to a
    leaf and switching the controllers on (a group with processes of its own cannot). Once, at the agent's start.

    Returns a notice, empty where all is well or version 1 is in use."""
    own = controllers()
    unified = own.get("unified")
    if unified is None or "memory" in own or unified.name == AGENT_LEAF:
        return ""
    leaf = unified / AGENT_LEAF
    try:
        leaf.mkdir(exist_ok=True)
        Path(leaf, "cgroup.procs").write_text(str(os.getpid()))
        wanted = set(Path(unified, "cgroup.controllers").read_text().split()) & {"memory", "pids", "cpu"}
        Path(unified, "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(wanted)))
    except OSError as error:
        return (
            f"cgroup {unified} cannot hold limited groups ({error.strerror}): jobs run without memory limits. Run the "
            "agent as a systemd service with Delegate=yes, alone in its group"
        )
    return ""


def usage(paths: list[str]) -> Usage:
    cpu: float | None = None
    now = peak = count = None
    for folder in map(Path, paths):
        nanoseconds = _number(folder / "cpuacct.usage")
        if nanoseconds is not None:
            cpu = nanoseconds / 1e9
        elif (folder / "cpu.stat").exists() and (folder / "cgroup.controllers").exists():
            cpu = _counter(folder, "cpu.stat", "usage_usec") / 1e6
        now = _first(now, _number(folder / "memory.usage_in_bytes"), _number(folder / "memory.current"))
        peak = _first(peak, _number(folder / "memory.max_usage_in_bytes"), _number(folder / "memory.peak"))
        count = _first(count, _number(folder / "pids.current"))
    return Usage(cpu, now, peak, count)


def remaining(paths: list[str]) -> list[int]:
    """Processes still in the groups."""
    found: set[int] = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found.update(int(line) for line in Path(path, "cgroup.procs").read_text().split())
    return sorted(found)


def remove(paths: list[str]) -> None:
    """Remove the empty groups. The kernel may need a moment after the last process: tried for two seconds."""
    end = time.monotonic() + REMOVE_TIMEOUT
    for path in paths:
        while True:
            try:
                os.rmdir(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < end:
                    time.sleep(0.01)
                    continue
                raise
            break


def _limit(paths: list[Path], file: str, value: str, groups: Groups, quiet: bool = False) -> None:
    for path in paths:
        target = path / file
        if target.exists():
            try:
                target.write_text(value)
                return
            except OSError as error:
                if not quiet:
                    groups.notices.append(f"{file} cannot be set ({error.strerror}): not limited")
                return
    if not quiet:
        groups.notices.append(f"{file} is not offered by this machine: not limited")


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError, PermissionError):
        return None


def _counter(folder: Path, file: str, key: str) -> int:
    try:
        lines = (folder / file).read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        return 0
    for line in lines:
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
