"""Can this machine run Trainshed? Checked before anything is installed, in words, by any Python from 3.6 on.

Prints the path of a suitable Python on stdout and everything else on stderr; exit code 1 where something is missing
that the installation cannot do without. Warnings (proxies, no namespaces) do not stop it.
Only the standard library, and no syntax newer than 3.6: it must run where the answer is "your Python is too old".
"""

import os
import platform
import shutil
import subprocess
import sys

OLDEST = (3, 11)
NEWEST_TRIED = (3, 13)
NEEDED_BYTES = 3 * 1024**3
COMPOSE = "use the containers instead: docker compose up (they bring a Linux with all that is needed)"


class Findings(object):
    """Problems stop the installation; warnings do not."""

    def __init__(self):
        self.problems = []
        self.warnings = []


def check_system(findings, system, libc):
    """Linux with glibc: there are no wheels of torch for others that we tried."""
    if system == "Darwin":
        findings.problems.append("this is macOS, and instances need Linux namespaces; " + COMPOSE)
    elif system != "Linux":
        findings.problems.append("this is {0}, and Trainshed runs on Linux; {1}".format(system or "unknown", COMPOSE))
    elif libc != "glibc":
        findings.problems.append(
            "this Linux has no glibc (Alpine and other musl systems), for which torch has no packages; " + COMPOSE
        )


def python_candidates(path=None):
    """This interpreter, then python3.13 … python3.11 on PATH, in order of preference: the running one if new enough."""
    found = [sys.executable] if sys.executable else []
    for minor in range(NEWEST_TRIED[1], OLDEST[1] - 1, -1):
        program = shutil.which("python3.{0}".format(minor), path=path)
        if program:
            found.append(program)
    return found


def python_version(program):
    """(major, minor) of an interpreter, None where it does not start (a pyenv shim without its version, say)."""
    code = "import sys; print(sys.version_info[0], sys.version_info[1])"
    try:
        words = subprocess.check_output([program, "-c", code], stderr=subprocess.DEVNULL).split()
        return int(words[0]), int(words[1])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None


def has_venv(program):
    """Whether `python -m venv` would work: Debian has ensurepip in a package of its own."""
    with open(os.devnull, "w") as null:
        return subprocess.call([program, "-c", "import venv, ensurepip"], stdout=null, stderr=null) == 0


def choose_python(findings, candidates):
    """The first interpreter that is new enough and has venv."""
    too_old, without_venv = [], []
    for program in candidates:
        version = python_version(program)
        if version is None:
            continue
        if version < OLDEST:
            too_old.append("{0} is {1}.{2}".format(program, *version))
        elif not has_venv(program):
            without_venv.append((program, version))
        else:
            return program
    if without_venv:
        program, version = without_venv[0]
        findings.problems.append(
            "{0} has no venv module; on Debian and Ubuntu: apt-get install python{1}.{2}-venv".format(program, *version)
        )
    else:
        findings.problems.append(
            "Python 3.11 or newer is needed ({0}); install it (Debian 12, Ubuntu 24.04 and Fedora have it: "
            "python3, python3-venv) or put a python3.11 … python3.13 on PATH".format(", ".join(too_old) or "none found")
        )
    return None


def check_disk(findings, folder, free_bytes):
    if free_bytes < NEEDED_BYTES:
        findings.problems.append(
            "{0} has {1:.1f} GB free and the installation needs 3 GB; make room, or clone the repository onto a "
            "bigger disk".format(folder, free_bytes / 1e9)
        )


def user_namespaces_allowed():
    """Tried in a child, since a switch in /proc says too little (AppArmor, containers, seccomp)."""
    code = (
        "import ctypes, os, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "sys.exit(0 if libc.unshare(0x10000000 | 0x20000 | 0x40000000) == 0 else 1)\n"
    )
    return subprocess.call([sys.executable, "-c", code], stderr=subprocess.DEVNULL) == 0


def namespaces_as_root():
    code = (
        "import ctypes, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "sys.exit(0 if libc.unshare(0x20000 | 0x40000000) == 0 else 1)\n"
    )
    return subprocess.call([sys.executable, "-c", code], stderr=subprocess.DEVNULL) == 0


def check_namespaces(findings, is_root, works):
    """Without them jobs run one at a time and without isolation, so it is a warning."""
    if works:
        return
    if is_root:
        findings.warnings.append(
            "root may not make namespaces here (a container without SYS_ADMIN?): jobs will run without isolation, one "
            "at a time; cure: run the container with --cap-add SYS_ADMIN --cap-add NET_ADMIN "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
        )
    else:
        findings.warnings.append(
            "you are not root and user namespaces are closed: jobs will run without isolation, one at a time; cure "
            "(as root): sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 "
            "(whichever of the two your system knows), or run as root"
        )


def check_proxies(findings, environment):
    names = [
        name
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        if environment.get(name) or environment.get(name.lower())
    ]
    if not names:
        return
    excepted = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if "127.0.0.1" not in excepted and excepted.strip() != "*":
        findings.warnings.append(
            "{0} is set without 127.0.0.1 in NO_PROXY: Trainshed's own processes and `trainshed env` take care of it, "
            "but a client started without that would go to the proxy".format(" and ".join(names))
        )


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    findings = Findings()
    system = platform.system()
    check_system(findings, system, platform.libc_ver()[0])
    program = choose_python(findings, python_candidates())
    if not os.path.isdir(os.path.join(root, ".venv", "lib")):
        check_disk(findings, root, shutil.disk_usage(root).free)
    if system == "Linux":
        is_root = os.geteuid() == 0
        check_namespaces(findings, is_root, namespaces_as_root() if is_root else user_namespaces_allowed())
    check_proxies(findings, os.environ)
    for text in findings.warnings:
        print("warning: " + text, file=sys.stderr)
    for text in findings.problems:
        print("cannot install: " + text, file=sys.stderr)
    if findings.problems:
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
