"""Virtual environments for the real client libraries, one for each, under `.envs/<name>`.

The acceptance tests drive AWS's own clients, whose dependencies contradict each other and ours. Each environment is
described by `requirements/clients/<name>.txt` (what is wanted) and `<name>.lock` (versions of all that it drags in).

Invariants: an environment is used only after its stamp was written, which is the last step, and the stamp is the hash
of everything that it was made from; so a build that was broken off is made anew. Parallel callers (pytest-xdist) build
once: the others wait on a file lock. Torch is never installed here: every lock says `torch<0`, so that a client which
starts to want it is refused by pip instead of bringing gigabytes of CUDA.

Command line: `python scripts/client_env.py [NAME…]` builds (all without names) and prints the path of each Python.
Only the standard library is used, by any Python ≥ 3.11.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "clients"
ENVIRONMENTS = ROOT / ".envs"


class ClientEnvironmentError(Exception):
    """An environment could not be made; the message holds pip's last lines."""


def names() -> list[str]:
    """All environments that are described, sorted."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def ensure(name: str) -> Path:
    """The Python of the environment, which is built first where it is absent or out of date.

    Raises ClientEnvironmentError for an unknown name and where pip fails.
    """
    wanted = REQUIREMENTS / f"{name}.txt"
    if not wanted.is_file():
        raise ClientEnvironmentError(f"no client environment {name!r}; there are: {', '.join(names())}")
    place = ENVIRONMENTS / name
    stamp = place / ".stamp"
    digest = _digest(name)
    ENVIRONMENTS.mkdir(exist_ok=True)
    with _locked(ENVIRONMENTS / f"{name}.lock"):
        if not (stamp.is_file() and stamp.read_text() == digest and (place / "bin" / "python").exists()):
            _build(name, place)
            stamp.write_text(digest)
    return place / "bin" / "python"


def _digest(name: str) -> str:
    parts = [sys.version.encode(), str(ROOT).encode()]
    parts += [path.read_bytes() for path in (REQUIREMENTS / f"{name}.txt", _lock_of(name)) if path.is_file()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _lock_of(name: str) -> Path:
    return REQUIREMENTS / f"{name}.lock"


def _build(name: str, place: Path) -> None:
    if place.exists():
        shutil.rmtree(place)
    print(f"client environment {name}: installing", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", str(place)], name)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command.append("--no-compile")  # of the many files, a client's first start compiles the few that it loads
    command += ["--requirement", str(REQUIREMENTS / f"{name}.txt")]
    if _lock_of(name).is_file():
        command += ["--constraint", str(_lock_of(name))]
    _run(command, name)


def _run(command: list[str], name: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise ClientEnvironmentError(f"client environment {name}: {' '.join(command[:4])} failed:\n{tail}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description="make the client environments of the acceptance tests")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names())}; default: all")
    for name in parser.parse_args().names or names():
        try:
            print(ensure(name))
        except ClientEnvironmentError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
