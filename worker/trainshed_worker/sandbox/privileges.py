"""Which rights the sandbox is built with, and how they are given up for good before anything of the user runs.

Invariant: after `drop` the process and all it starts have no capability, cannot gain one by exec, and die with the
supervisor. A failure in any step raises; there is no half-dropped process.
"""

import contextlib
import os
import resource
import signal

from trainshed_worker.sandbox import seccomp, syscalls
from trainshed_worker.sandbox.spec import FIRST_JOB_UID, NAMESPACE_JOB_UID

OPEN_FILES = 1_048_576
OOM_SCORE = 300
_NEEDED = (
    syscalls.CAP_CHOWN,
    syscalls.CAP_SETGID,
    syscalls.CAP_SETUID,
    syscalls.CAP_NET_ADMIN,
    syscalls.CAP_SYS_ADMIN,
)


def is_privileged() -> bool:
    """Whether namespaces can be made without a user namespace (root with its usual capabilities)."""
    return syscalls.has_capabilities(*_NEEDED)


def job_uid(slot: int, user_namespace: bool) -> int:
    """Uid and gid of the job's processes as they see it themselves."""
    return NAMESPACE_JOB_UID if user_namespace else FIRST_JOB_UID + slot


def enter_new_user_namespace() -> None:
    """Become NAMESPACE_JOB_UID of a new user namespace, with all capabilities over what is made in it from now on."""
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{NAMESPACE_JOB_UID} {uid} 1"),
        ("gid_map", f"{NAMESPACE_JOB_UID} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def enter_namespace_of(pid: int, name: str, kind: int) -> None:
    """Join a namespace of another process; `name` as in /proc/<pid>/ns."""
    descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.setns(descriptor, kind)
    finally:
        os.close(descriptor)


def limit_resources() -> None:
    """No core dumps (they would fill the job's disk), as many open files as the machine allows, and first choice of the
    kernel when memory runs out, so that a job dies rather than the agent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    with contextlib.suppress(PermissionError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(OOM_SCORE))


def drop(uid: int, user_namespace: bool) -> None:
    """Give up everything. In a user namespace the uid is already the job's."""
    syscalls.drop_bounding_set()
    if not user_namespace:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.clear_capabilities()
    if seccomp.is_supported():
        seccomp.install()
    die_with_parent()  # a change of credentials had cleared it
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)  # the job may not trace or read init, which has the job's uid


def die_with_parent() -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
