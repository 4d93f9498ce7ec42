"""The inside of a sandbox: its network link, its file system and its names. Runs in the sandbox's first process.

Invariant: the new root holds the system read-only, the paths that the spec binds, and nothing else of the machine; the
old root is gone (not hidden) before any right is given up. Needs the rights of `privileges`; raises OSError.
"""

import contextlib
import os
import socket
import stat
from pathlib import Path, PurePosixPath

from trainshed_worker.sandbox import layers, privileges, syscalls
from trainshed_worker.sandbox.environment import SYSTEM_ROOTS
from trainshed_worker.sandbox.netlink import Netlink
from trainshed_worker.sandbox.netplan import CREDENTIALS_ADDRESS, INTERFACE, PREFIX_LENGTH
from trainshed_worker.sandbox.spec import Bind, SandboxError, SandboxSpec

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
USER = "sagemaker"
HOME = f"/home/{USER}"
BRIDGE = "br0"
_ETC_SHOWN = (
    "ssl", "ca-certificates", "pki", "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "mime.types", "openmpi", "protocols", "services", "gai.conf", "fonts",
)  # fmt: skip
_NSSWITCH = "passwd: files\ngroup: files\nhosts: {hosts}\nservices: files\nprotocols: files\n"
_KIB = 1024


def unshare_all(spec: SandboxSpec, bridge_holder: int) -> None:
    """New mount, IPC, UTS, cgroup and (unless shared) network namespaces; in a cluster, a link to its bridge.

    `bridge_holder` is the process that holds the bridge's namespace; 0 where the mode is not "cluster"."""
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWCGROUP
    if spec.network == "host":
        syscalls.unshare(flags)
        return
    if spec.network == "none":
        syscalls.unshare(flags | syscalls.CLONE_NEWNET)
        with Netlink() as inside:
            inside.up("lo")
        return
    privileges.enter_namespace_of(bridge_holder, "net", syscalls.CLONE_NEWNET)
    with Netlink() as outside:
        syscalls.unshare(flags | syscalls.CLONE_NEWNET)
        with Netlink() as inside:
            _link_to_bridge(spec, outside, inside)
    with contextlib.suppress(OSError):  # read-only in some containers; then low ports stay closed to the job
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")


def _link_to_bridge(spec: SandboxSpec, outside: Netlink, inside: Netlink) -> None:
    address = spec.hosts.get(spec.hostname)
    if address is None:
        raise SandboxError(f"hosts names no address for {spec.hostname}")
    link = f"slot{spec.slot}"  # of this slot alone, whatever its instances are called
    own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        outside.delete(link)  # of an earlier instance whose namespace the kernel has not yet taken down
        outside.add_veth(link, INTERFACE, own)
    finally:
        os.close(own)
    inside.up("lo")
    inside.add_address(INTERFACE, address, PREFIX_LENGTH)
    inside.up(INTERFACE)
    inside.add_route(CREDENTIALS_ADDRESS, INTERFACE)
    outside.up(link, master=BRIDGE)


def begin_root(spec: SandboxSpec, uid: int) -> None:
    """Make the part of the new root that is the same for every instance of a slot: the system, devices, names, common
    binds. Needs the new mount and PID namespaces to be entered."""
    socket.sethostname(spec.hostname)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    root = spec.path / "root"
    root.mkdir(exist_ok=True, mode=0o755)
    syscalls.mount(
        "tmpfs", str(root), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=16m,nr_inodes=65536"
    )
    for name in SYSTEM_ROOTS:
        _show_system(root, Path(name))
    _write_etc(root, spec, uid)
    _make_devices(root, spec)
    (root / "proc").mkdir()
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", str(root / "proc"), "proc", flags)
    for name in ("devices/system/cpu", "devices/system/node") if not spec.devices else ("",):
        if (Path("/sys") / name).is_dir():
            _bind(root, Bind(f"/sys/{name}", f"/sys/{name}"))
    if not would_hide(spec):
        for bind in _in_order([bind for bind in spec.binds if bind.common]):
            _bind(root, bind)


def finish_root(spec: SandboxSpec, root: Path) -> None:
    """Make the rest of the root that `begin_root` began, `root` on the machine, and move into it."""
    _make_scratch(root, spec)
    hidden = would_hide(spec)
    for bind in _in_order([bind for bind in spec.binds if hidden or not bind.common]):
        _bind(root, bind)
    os.chdir(root)
    syscalls.pivot_root(".", ".")
    syscalls.unmount_lazily(".")
    os.chdir("/")
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("none", "/", None, flags)


def _in_order(binds: list[Bind]) -> list[Bind]:
    """Outer folders first."""
    return sorted(binds, key=lambda bind: bind.target.count("/"))


def would_hide(spec: SandboxSpec) -> bool:
    """Whether a bind that is made later would hide a common one, which lies below it."""
    own = ["/tmp", HOME, "/var", "/run", *(bind.target for bind in spec.binds if not bind.common)]
    common = [bind.target for bind in spec.binds if bind.common]
    return any(f"{inner}/".startswith(f"{outer.rstrip('/')}/") for outer in own for inner in common)


def check_binds(spec: SandboxSpec) -> None:
    """Refuse binds that would show the instance's own records or give an odd target. Before anything is made."""
    own = {_identity(folder) for folder in (spec.path, *spec.path.resolve().parents)}
    for bind in spec.binds:
        if not os.path.isabs(bind.source) or not os.path.isabs(bind.target) or ".." in bind.target.split("/"):
            raise SandboxError(f"bind {bind.source} → {bind.target}: both paths must be absolute and without '..'")
        with contextlib.suppress(FileNotFoundError):  # what is not there shows nothing
            if _identity(bind.source) in own:
                raise SandboxError(f"bind {bind.source} would show {spec.directory} to the job; choose another folder")


def _identity(path: str | Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _show_system(root: Path, path: Path) -> None:
    if path.is_symlink():
        (root / path.relative_to("/")).symlink_to(os.readlink(path))
    elif path.is_dir():
        _bind(root, Bind(str(path), str(path)))


def _bind(root: Path, bind: Bind, device: bool = False) -> None:
    try:
        is_folder = stat.S_ISDIR(os.stat(bind.source).st_mode)
    except FileNotFoundError as error:
        if bind.optional:
            return
        raise FileNotFoundError(f"{bind.source}, to be shown at {bind.target}, does not exist") from error
    target = os.path.join(root, bind.target.strip("/"))
    _make_parents(root, bind.target)
    if os.path.islink(target):  # the folders above it are none, by now
        inside = os.path.realpath(target)
        if inside != str(root) and not inside.startswith(f"{root}/"):
            raise SandboxError(f"{bind.target} leads out of the sandbox by a symbolic link")
    if is_folder:
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)
    elif not os.path.exists(target):
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    if bind.layered:
        layers.show(Path(bind.source), Path(target))
    else:
        syscalls.mount(bind.source, target, None, syscalls.MS_BIND | syscalls.MS_REC)
    attributes = syscalls.MOUNT_ATTR_NOSUID
    attributes |= 0 if device else syscalls.MOUNT_ATTR_NODEV
    attributes |= 0 if bind.writable else syscalls.MOUNT_ATTR_RDONLY
    syscalls.restrict_mount(target, attributes)


def _make_parents(root: Path, target: str) -> None:
    """mkdir -p of what is above `target`, never leaving the root by a link that an earlier process of the job may have
    left."""
    step = str(root)
    for part in PurePosixPath(target).parent.parts[1:]:
        step = f"{step}/{part}"
        try:
            found = os.lstat(step)
        except FileNotFoundError:
            os.mkdir(step, 0o755)
            continue
        if stat.S_ISLNK(found.st_mode):
            raise SandboxError(f"{os.path.relpath(step, root)} is a symbolic link; it cannot hold a bind")


def _write_etc(root: Path, spec: SandboxSpec, uid: int) -> None:
    etc = root / "etc"
    etc.mkdir()
    hosts = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    hosts += [f"{address} {name}" for name, address in spec.hosts.items()]
    if spec.hostname not in spec.hosts:
        hosts.append(f"127.0.1.1 {spec.hostname}")
    texts = {
        "hosts": "\n".join(hosts) + "\n",
        "hostname": spec.hostname + "\n",
        "passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER}:x:{uid}:{uid}::{HOME}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\ntty:x:5:\n{USER}:x:{uid}:\nnogroup:x:65534:\n",
        # no name server is to be reached from a cluster: to ask one would only turn "no such name" into "try again"
        "nsswitch.conf": _NSSWITCH.format(hosts="files"),
        "resolv.conf": "",
    }
    if spec.network == "host":  # a cluster over machines resolves as its machine does
        texts["nsswitch.conf"] = _NSSWITCH.format(hosts="files dns")
        texts.pop("resolv.conf")
        _bind(root, Bind(os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf", optional=True))
    for name, text in texts.items():
        (etc / name).write_text(text)
        (etc / name).chmod(0o644)
    for name in _ETC_SHOWN:
        _bind(root, Bind(f"/etc/{name}", f"/etc/{name}", optional=True))


def _make_devices(root: Path, spec: SandboxSpec) -> None:
    dev = root / "dev"
    dev.mkdir()
    syscalls.mount("tmpfs", str(dev), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NOEXEC, "mode=755,size=64k")
    for path in (*(f"/dev/{name}" for name in DEVICES), *spec.devices):
        _bind(root, Bind(path, path, writable=True), device=True)
    (dev / "pts").mkdir()
    flags = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", str(dev / "pts"), "devpts", flags, "newinstance,ptmxmode=0666,mode=620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(target if name == "fd" else f"/proc/self/{target}")
    (dev / "shm").mkdir()
    size = f",size={max(1, spec.shm_bytes // _KIB)}k" if spec.shm_bytes else ""
    syscalls.mount("tmpfs", str(dev / "shm"), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, f"mode=1777{size}")


def _make_scratch(root: Path, spec: SandboxSpec) -> None:
    """/tmp and the user's home: on disk in the instance's folder (training jobs put gigabytes there), so deleted with
    it."""
    scratch = spec.path / "scratch"
    if spec.tmp_bytes:
        (root / "tmp").mkdir()
        size = f"mode=1777,size={max(1, spec.tmp_bytes // _KIB)}k"
        syscalls.mount("tmpfs", str(root / "tmp"), "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, size)
    else:
        _bind(root, Bind(str(scratch / "tmp"), "/tmp", writable=True))
    _bind(root, Bind(str(scratch / "home"), HOME, writable=True))
    for name in ("var", "run"):
        (root / name).mkdir()
    _bind(root, Bind(str(root / "tmp"), "/var/tmp", writable=True))  # no link: an installation may lie below it


def prepare_files(spec: SandboxSpec, uid: int, user_namespace: bool) -> None:
    """Scratch folders, and the files that the job is given. Before the namespaces are made."""
    owner = None if user_namespace else uid
    for name, mode in (("tmp", 0o1777), ("home", 0o755)):
        folder = spec.path / "scratch" / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        if owner is not None:
            os.chown(folder, owner, owner)
    for bind in spec.binds:
        if bind.layered:
            layers.prepare(bind.source)
        if bind.give and owner is not None and os.path.exists(bind.source):
            give(bind.source, owner)


def give(path: str, uid: int) -> None:
    """Make `uid` the owner of the tree, its links themselves and all; files with other hard links stay as they are."""
    if not os.path.isdir(path):
        if os.lstat(path).st_nlink == 1:
            os.chown(path, uid, uid, follow_symlinks=False)
        return
    for _, _, files, folder in os.fwalk(path):
        os.fchown(folder, uid, uid)
        for name in [*files, *(entry.name for entry in os.scandir(folder) if entry.is_symlink())]:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if status.st_uid != uid and status.st_nlink == 1:
                os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
