"""DeepSpeed for the runtime's benchmark: an environment of its own in `.envs/deepspeed`, upon this one's torch.

Invariant: an environment is used only when its stamp was written, which is the last step.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

VERSION = "0.19.8"
PLACE = Path(__file__).resolve().parents[1] / ".envs" / "deepspeed"


class NotInstallable(Exception):
    """pip could not install it; its last lines."""


def python_with_deepspeed() -> Path:
    """The environment's Python. Blocking, about a minute where it is not there yet. NotInstallable."""
    torch = importlib.metadata.version("torch")
    stamp = f"{VERSION} {torch} {sys.version} {sys.prefix}"
    PLACE.parent.mkdir(exist_ok=True)
    python = PLACE / "bin" / "python"
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PLACE / ".stamp").is_file() or (PLACE / ".stamp").read_text() != stamp:
            shutil.rmtree(PLACE, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(PLACE)])
            # This environment's packages, torch among them, are seen from there.
            inside = subprocess.run(
                [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            (Path(inside) / "below.pth").write_text(sysconfig.get_path("purelib") + "\n")
            pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input"]
            _run([*pip, "--upgrade", "setuptools>=77", "wheel"])  # it is built from source, with what is there
            _run([*pip, "--no-build-isolation", f"deepspeed=={VERSION}", f"torch=={torch}"], DS_BUILD_OPS="0")
            (PLACE / ".stamp").write_text(stamp)
    return python


def _run(command: list[str], **variables: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if done.returncode:
        raise NotInstallable(" / ".join((done.stdout + done.stderr).strip().splitlines()[-3:]))
