"""Make `.venv` and install Trainshed in it; nothing to do and quick where nothing has changed.

Invariants: never a CUDA build of torch on a machine without a CUDA device; only versions of
`requirements/constraints.txt`; the stamp, a hash of all that decides what is installed, is written last, so that an
installation that was broken off is done again. pip's own settings (indexes, caches, proxies, certificates) hold.

Run by `make install` with a Python that `check_machine.py` chose. Only the standard library.
"""

import argparse
import compileall
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".trainshed-stamp"
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
PROJECT = ROOT / "pyproject.toml"
EXTRAS = "service,worker,runtime,dev"
SITE = VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
SOURCES = tuple(ROOT / name for name in ("service", "worker", "runtime", "migrations"))
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class InstallError(Exception):
    """The message says what failed and what to do."""


def main() -> int:
    parser = argparse.ArgumentParser(description="install Trainshed in .venv")
    parser.add_argument("--force", action="store_true", help="install even where the stamp says that nothing changed")
    started = time.monotonic()
    try:
        if parser.parse_args().force or not is_current():
            install()
            compile_sources(SITE)
            print(f"installed in {time.monotonic() - started:.0f} s; the command is .venv/bin/trainshed")
        compile_sources(*SOURCES)
    except InstallError as error:
        print(f"installation failed: {error}", file=sys.stderr)
        return 1
    return 0


def digest() -> str:
    """All that decides what is installed."""
    parts = [sys.version.encode(), str(ROOT).encode(), EXTRAS.encode()]
    parts += [path.read_bytes() for path in (PROJECT, CONSTRAINTS, Path(__file__).resolve())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def is_current() -> bool:
    programs = (VENV / "bin" / "python", VENV / "bin" / "trainshed")
    return STAMP.is_file() and STAMP.read_text() == digest() and all(program.exists() for program in programs)


def install() -> None:
    STAMP.unlink(missing_ok=True)
    make_venv()
    install_torch(torch_version())
    say("installing Trainshed and its libraries")
    pip("install", "--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}[{EXTRAS}]")
    STAMP.write_text(digest())


def make_venv() -> None:
    python = VENV / "bin" / "python"
    wanted = sys.version_info[:2]
    if python.exists() and python_version(python) != wanted:
        say("the .venv is of another Python; making it anew")
        shutil.rmtree(VENV)
    if not python.exists():
        say(f"making .venv with Python {wanted[0]}.{wanted[1]}")
        run([sys.executable, "-m", "venv", str(VENV)])


def python_version(python: Path) -> "tuple[int, ...] | None":
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def compile_sources(*folders: Path) -> None:
    """Byte code for what lacks it, also where pip and Python are told to write none: jobs see these folders read-only,
    and without byte code each process that imports torch would start seconds later. What is current stays."""
    for folder in folders:
        compileall.compile_dir(folder, quiet=2)  # a library may hold files for other Pythons


def torch_version() -> str:
    """The one place that names it is pyproject.toml."""
    match = re.search(r'"torch==([0-9.]+)"', PROJECT.read_text())
    if match is None:
        raise InstallError("pyproject.toml names no torch version")
    return match[1]


def install_torch(version: str) -> None:
    """A `+cpu` wheel that pip can already see, else PyTorch's CPU index; the ordinary build only where CUDA is."""
    installed = installed_torch()
    if has_cuda_device():
        if installed is None or installed.split("+")[0] != version:
            say(f"installing torch {version} for this machine's CUDA device")
            pip("install", f"torch=={version}")
        return
    if installed == f"{version}+cpu":
        return
    if sees_cpu_wheel(version):
        say(f"installing torch {version}+cpu")
        pip("install", f"torch=={version}+cpu")
    else:
        say(f"installing torch {version}+cpu from PyTorch's CPU index (about 200 MB)")
        pip("install", f"torch=={version}+cpu", "--extra-index-url", TORCH_CPU_INDEX)


def installed_torch() -> "str | None":
    code = "from importlib.metadata import version; print(version('torch'))"
    done = subprocess.run([str(VENV / "bin" / "python"), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def has_cuda_device() -> bool:
    """A device that the driver has: the user's CUDA_VISIBLE_DEVICES does not matter for what to install."""
    return any(Path("/proc/driver/nvidia/gpus").glob("*")) or any(Path("/dev").glob("nvidia[0-9]*"))


def sees_cpu_wheel(version: str) -> bool:
    """Whether pip, with the user's own indexes and folders, finds the wheel. Nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [*pip_command(), "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
        done = subprocess.run(
            [*command, "--report", str(report), f"torch=={version}+cpu"], capture_output=True, check=False
        )
        if done.returncode != 0 or not report.is_file():
            return False
        found = json.loads(report.read_text())["install"]
        return any(item["metadata"]["version"] == f"{version}+cpu" for item in found)


def pip_command() -> "list[str]":
    return [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]


def pip(*words: str) -> None:
    run([*pip_command(), words[0], "--progress-bar", "on" if sys.stderr.isatty() else "off", *words[1:]])


def run(command: "list[str]") -> None:
    """Show one line at a time on a terminal; the whole output only where the command fails."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            show(line)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    if process.returncode != 0:
        tail = "\n".join(lines[-25:])
        raise InstallError(f"{' '.join(command[:5])} … ended with {process.returncode}:\n{tail}\n{advice(tail)}")


def show(line: str) -> None:
    words = line.split()
    if not words or words[0] not in ("Collecting", "Downloading", "Installing", "Building", "Preparing"):
        return
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 3
        print(f"\r\033[K  {line.strip()[:width]}", end="", file=sys.stderr, flush=True)
    elif words[0] == "Downloading" or line.startswith("Installing collected"):
        print(f"  {line.strip()[:110]}", file=sys.stderr, flush=True)


def advice(tail: str) -> str:
    """What to do about the failures that newcomers meet most."""
    if "No space left" in tail:
        return "make room on the disk (3 GB) and run `make install` again"
    if "No matching distribution" in tail:
        return (
            "pip's indexes lack this version for your Python; check `pip config list`, or use another Python 3.11-3.13"
        )
    if any(text in tail for text in ("ProxyError", "ConnectionError", "NewConnectionError", "timed out", "SSLError")):
        return "pip cannot reach its index; check the network, the proxy (HTTPS_PROXY) and certificates (PIP_CERT)"
    return "run `make install` again when that is mended; what is installed already is kept"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
