"""What this machine can do for the sandbox, found by really trying it in a child process. For `doctor` and the agent.

Invariant: a probe leaves nothing behind; each finding says what is missing and how to get it.
"""

import json
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed_worker.sandbox import cgroups, layers, privileges, syscalls
from trainshed_worker.sandbox.netlink import Netlink
from trainshed_worker.sandbox.removal import remove_tree
from trainshed_worker.sandbox.spec import SandboxError


@dataclass(frozen=True)
class Finding:
    """`name` is one of privileges, namespaces, mount, network, cgroup-memory, cgroup-pids, cgroup-cpu, fuse."""

    name: str
    ok: bool
    detail: str
    cure: str = ""


_MOUNT_CURE = (
    "use Linux 5.12 or newer; where a container engine masks /proc or forbids mounts, run it with "
    "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN"
)
_NAMESPACE_CURE = (
    "run the agent as root, or allow user namespaces (sysctl user.max_user_namespaces > 0, "
    "kernel.unprivileged_userns_clone = 1, kernel.apparmor_restrict_unprivileged_userns = 0); in a container add "
    "SYS_ADMIN and NET_ADMIN and relax seccomp and AppArmor"
)


def probe() -> list[Finding]:
    """All findings, in the order in which they matter. Takes some tens of milliseconds."""
    findings = [
        _attempt("privileges", _try_privileges, _NAMESPACE_CURE),
        _attempt("namespaces", _try_namespaces, _NAMESPACE_CURE),
        _attempt("mount", _try_mounts, _MOUNT_CURE),
        _attempt("network", _try_network, "load the kernel modules bridge and veth (modprobe bridge veth)"),
    ]  # fmt: skip
    return [*findings, *_cgroup_findings(), _fuse()]


def overlay(folder: Path) -> Finding:
    """Whether overlays can be mounted of folders in `folder`, which is made where it is absent."""

    def attempt() -> str:
        _become_capable()
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        layers.prepare(place)
        (place / layers.LOWER / "file").write_text("below")
        shown = place / "shown"
        shown.mkdir()
        layers.show(place, shown)
        (shown / "file").write_text("above")
        (shown / "file").unlink()
        if (place / layers.LOWER / "file").read_text() != "below" or any(shown.iterdir()):
            raise OSError("an overlay's lower layer changed")
        return f"the jobs of this node share the files of their channels, in {folder}"

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = Path(tempfile.mkdtemp(prefix=".overlay-", dir=folder))
    try:
        return _attempt(
            "overlay",
            attempt,
            "channels are copied for each job; to save that, put the home on a disk of the machine itself (ext4, xfs), "
            "not on an overlay of a container",
        )
    finally:
        remove_tree(place)


def isolation() -> str:
    """'full', or 'none: <what is missing>' as the agent reports it."""
    for finding in probe():
        if finding.name in ("namespaces", "mount", "network") and not finding.ok:
            return f"none: {finding.detail}; {finding.cure}"
    return "full"


def _attempt(name: str, action: Callable[[], str], cure: str) -> Finding:
    """Run `action` in a child; its answer is the detail, its OSError the finding."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer: dict[str, Any] = {"ok": True, "detail": action()}
        except (OSError, SandboxError) as error:
            answer = {"ok": False, "detail": str(error)}
        try:
            os.write(write_end, json.dumps(answer).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    result: dict[str, Any] = json.loads(data) if data else {"ok": False, "detail": "the probing process died"}
    return Finding(name, result["ok"], result["detail"], "" if result["ok"] else cure)


def _become_capable() -> str:
    if privileges.is_privileged():
        return "root"
    privileges.enter_new_user_namespace()
    return "user namespace"


def _try_privileges() -> str:
    return f"isolation by {_become_capable()}"


def _try_namespaces() -> str:
    _become_capable()
    syscalls.unshare(
        syscalls.CLONE_NEWPID
        | syscalls.CLONE_NEWNS
        | syscalls.CLONE_NEWIPC
        | syscalls.CLONE_NEWUTS
        | syscalls.CLONE_NEWNET
    )
    return "PID, mount, IPC, UTS and network namespaces"


def _in_child(action: Callable[[], None]) -> None:
    """Run in the first process of the unshared PID namespace; raises what it raised."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except OSError as error:
            os.write(write_end, str(error).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    if text:
        raise OSError(text)


def _try_mounts() -> str:
    _try_namespaces()

    def build() -> None:
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        root = "/tmp"  # only in this namespace: a tmpfs covers it
        syscalls.mount("tmpfs", root, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755")
        for name in ("usr", "proc", "pts"):
            os.mkdir(f"{root}/{name}")
        syscalls.mount("/usr", f"{root}/usr", None, syscalls.MS_BIND | syscalls.MS_REC)
        syscalls.restrict_mount(f"{root}/usr", syscalls.MOUNT_ATTR_RDONLY)
        syscalls.mount("proc", f"{root}/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)
        syscalls.mount("devpts", f"{root}/pts", "devpts", syscalls.MS_NOSUID, "newinstance,ptmxmode=0666")
        os.chdir(root)
        syscalls.pivot_root(".", ".")
        syscalls.unmount_lazily(".")

    _in_child(build)
    return "tmpfs, read-only binds, proc, devpts and pivot_root"


def _try_network() -> str:
    _become_capable()
    syscalls.unshare(syscalls.CLONE_NEWNET)
    with Netlink() as outside:
        outside.add_bridge("br0")
        syscalls.unshare(syscalls.CLONE_NEWNET)
        namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        outside.add_veth("probe", "eth0", namespace)
        outside.up("probe", master="br0")
        with Netlink() as inside:
            inside.up("eth0")
    return "bridge and veth in a network namespace"


def _cgroup_findings() -> list[Finding]:
    own = cgroups.controllers()
    version = "2" if "memory" not in own and "unified" in own else "1"
    groups = cgroups.create(f"trainshed-probe-{secrets.token_hex(4)}", 1 << 30, 64, 512)
    try:
        files = {
            "cgroup-memory": ("memory.limit_in_bytes", "memory.max"),
            "cgroup-pids": ("pids.max",),
            "cgroup-cpu": ("cpu.shares", "cpu.weight"),
        }
        cure = "run the agent as root, or as a systemd service with Delegate=yes"
        findings = []
        for name, candidates in files.items():
            ok = any(Path(path, file).exists() for path in groups.paths for file in candidates)
            detail = f"version {version}" if ok else "; ".join(groups.notices) or "no writable cgroup"
            findings.append(Finding(name, ok, detail, "" if ok else cure))
        return findings
    finally:
        cgroups.remove(groups.paths)


def _fuse() -> Finding:
    ok = os.path.exists("/dev/fuse") and os.access("/dev/fuse", os.R_OK | os.W_OK)
    detail = "/dev/fuse can be opened" if ok else "/dev/fuse is absent or may not be opened"
    return Finding("fuse", ok, detail, "" if ok else "modprobe fuse; in a container --device /dev/fuse")
