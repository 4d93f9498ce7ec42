"""Lightning and transformers as a layer of requirements upon this environment, as a job's requirements.txt gives them.

Made once in `.envs/training`; the stamp says that it is whole. Nothing of the environment below is installed again.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path, PurePosixPath

from trainshed_worker.environments import Installed, describe
from trainshed_worker.environments.base import own_prefix
from trainshed_worker.environments.skeleton import make_skeleton, site_packages

PLACE = Path(__file__).resolve().parents[2] / ".envs" / "training"
WANTED = ("lightning==2.6.6", "transformers==5.24.0")
INSIDE = Path("/opt/requirements")


class NotInstallable(Exception):
    """pip could not install them; its last lines."""


def libraries() -> Installed:
    """Blocking, minutes where they are not there yet. NotInstallable."""
    base = describe(own_prefix())
    stamp = f"{base.fingerprint} {WANTED}"
    PLACE.parent.mkdir(exist_ok=True)
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PLACE / ".stamp").is_file() or (PLACE / ".stamp").read_text() != stamp:
            shutil.rmtree(PLACE, ignore_errors=True)
            make_skeleton(PLACE, PurePosixPath(PLACE), base, list(base.site), [])
            versions = dict(base.distributions)
            command = [str(PLACE / "bin" / "python3"), "-m", "pip", "install", "--quiet", "--no-input", "--no-compile"]
            command += [*WANTED, f"torch=={versions['torch']}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise NotInstallable("\n".join((done.stdout + done.stderr).splitlines()[-5:]))
            (site_packages(PLACE, base) / "_below.pth").unlink()
            (PLACE / ".stamp").write_text(stamp)
    return Installed(PLACE, INSIDE)
