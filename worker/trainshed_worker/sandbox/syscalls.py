"""The few Linux calls that Python 3.11 does not offer, by ctypes. Each raises OSError with what was tried.

Invariant: no policy here; numbers and flags are the kernel's own, named as in its manual pages.
"""

import ctypes
import errno
import os
import platform
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 0x1, 0x2, 0x4, 0x8, 0x20
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 0x1, 0x2, 0x4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_CAPBSET_DROP = 1, 4, 15, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAP_CHOWN, CAP_SETGID, CAP_SETUID, CAP_NET_ADMIN, CAP_SYS_ADMIN = 0, 6, 7, 12, 21

_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


def _check(result: int, what: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), f"setns({kind:#x})")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        flags,
        options.encode() if options else None,
    )
    _check(result, f"mount {source} on {target}")


def unmount_lazily(target: str) -> None:
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"unmount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"pivot_root is not known for {platform.machine()}")
    result = _libc.syscall(ctypes.c_long(number), os.fsencode(new_root), os.fsencode(put_old))
    _check(int(result), f"pivot_root {new_root}")


def restrict_mount(target: str, attributes: int) -> None:
    """Set MOUNT_ATTR_* on the mount and all below it (Linux 5.12)."""
    attr = _MountAttr(attributes, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )
    _check(int(result), f"restrict mount {target}")


def prctl(option: int, argument: int = 0, third: int = 0) -> None:
    result = _libc.prctl(
        ctypes.c_int(option), ctypes.c_ulong(argument), ctypes.c_ulong(third), ctypes.c_ulong(0), ctypes.c_ulong(0)
    )
    _check(result, f"prctl({option}, {argument})")


def set_name(name: str) -> None:
    """The name that `ps` and `top` show; cut to 15 bytes."""
    prctl_pointer(PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def prctl_pointer(option: int, *arguments: Any) -> None:
    """prctl with arguments that point to structures (ctypes objects)."""
    _check(_libc.prctl(ctypes.c_int(option), *arguments), f"prctl({option})")


def drop_bounding_set() -> None:
    """Take every capability from the bounding set, so that no exec can ever gain one."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # above the kernel's last capability
                return
            raise


def clear_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient sets."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def has_capabilities(*capabilities: int) -> bool:
    """Whether this process holds all of them effectively."""
    with open("/proc/self/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("CapEff:"):
                effective = int(line.split()[1], 16)
                return all(effective >> capability & 1 for capability in capabilities)
    return False
