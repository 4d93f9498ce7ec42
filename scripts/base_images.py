"""The images that Dockerfile and docker-compose.yml build on, also where no registry of images can be reached.

    python scripts/base_images.py

Each image is taken as it is where the engine has it, else pulled, else made from Debian's packages (root, debootstrap;
about a minute). An image that is made here gets this machine's own way to packages: its certificates and pip
settings, since what cannot reach a registry often has a mirror. Nothing is made where a pull succeeds.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

DEBIAN, POSTGRES = "debian:bookworm-slim", "postgres:15-bookworm"
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
PULL_SECONDS = 300


class ImageError(Exception):
    """What is missing or failed, in words."""


def main() -> int:
    try:
        bring_all()
    except ImageError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


def bring_all() -> None:
    """Raises ImageError."""
    for image, make in ((DEBIAN, make_debian), (POSTGRES, make_postgres)):
        print(f"{image}: {bring(image, make)}", flush=True)


def bring(image: str, make: Callable[[], None]) -> str:
    """How the engine got it. Raises ImageError."""
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0:
        return "is there"
    try:
        if subprocess.run(["docker", "pull", image], timeout=PULL_SECONDS, check=False).returncode == 0:
            return "pulled"
    except subprocess.TimeoutExpired:
        print(f"{image}: no answer of a registry in {PULL_SECONDS} s", file=sys.stderr)
    make()
    return "made from Debian's packages"


def make_debian() -> None:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise ImageError(f"{DEBIAN} cannot be pulled; to make it, install the package debootstrap and be root")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(root))
        changes = take_own_ways(root)
        archive = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
        command = ["docker", "import", *(word for change in changes for word in ("--change", change)), "-", DEBIAN]
        imported = subprocess.run(command, stdin=archive.stdout, capture_output=True, text=True, check=False)
        assert archive.stdout is not None
        archive.stdout.close()
        if archive.wait() != 0 or imported.returncode != 0:
            raise ImageError(f"the engine did not import {DEBIAN}: {imported.stderr.strip()}")


def take_own_ways(root: Path) -> list[str]:
    """This machine's certificates and pip settings in `root`; the settings of the image that name them."""
    changes = ['CMD ["bash"]']
    if Path("/", CERTIFICATES).exists():
        shutil.copyfile(Path("/", CERTIFICATES), root / CERTIFICATES)
        changes += [f"ENV {name}=/{CERTIFICATES}" for name in ("SSL_CERT_FILE", "PIP_CERT")]
    if Path("/etc/pip.conf").exists():
        shutil.copyfile("/etc/pip.conf", root / "etc/pip.conf")
    wheels = Path(os.environ.get("PIP_FIND_LINKS", ""))
    if wheels.is_absolute() and wheels.is_dir():
        (root / "opt/wheels").mkdir(parents=True)
        for wheel in wheels.glob(f"torch-{pinned_torch()}*.whl"):
            shutil.copyfile(wheel, root / "opt/wheels" / wheel.name)
        changes.append("ENV PIP_FIND_LINKS=/opt/wheels")
    return changes


def pinned_torch() -> str:
    """The version that Dockerfile names, without its build."""
    dockerfile = Path(__file__).resolve().parent.parent.joinpath("Dockerfile").read_text()
    return dockerfile.split("ARG TORCH=")[1].splitlines()[0].split("+")[0]


def make_postgres() -> None:
    folder = Path(__file__).resolve().parent / "postgres_image"
    run("docker", "build", "--quiet", "--network", "host", "--tag", POSTGRES, str(folder))


def run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ImageError(f"{command[0]} failed: {(ended.stdout + ended.stderr).strip()[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
