"""What `pip install` brings without the repository: every module and data file, and a command that finds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("service", "worker", "runtime", "migrations")
PACKAGES = ("trainshed_service", "trainshed_worker", "trainshed_runtime", "smdistributed", "trainshed_migrations")


@dataclass(frozen=True)
class Installed:
    """`wheel` is unpacked by pip in `site`, which PYTHONPATH of `run` puts before the repository's own sources."""

    wheel: Path
    site: Path

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.site), "HOME": str(self.site)},
            cwd=self.site,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def python(self, code: str) -> str:
        return self.run(sys.executable, "-c", code)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Built from a copy: setuptools writes into the folder that it builds, and takes what lies there from before."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("a wheel")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, copy]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("trainshed-*.whl")
    site = folder / "site"
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", site, wheel]
    subprocess.run(install, check=True)
    return Installed(wheel, site)


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(installed: Installed) -> None:
    expected = {
        path.relative_to(ROOT / source).as_posix()
        for source in SOURCES
        for package in PACKAGES
        for path in (ROOT / source / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(installed.wheel) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {"trainshed_service/py.typed", "trainshed_worker/py.typed", "trainshed_runtime/py.typed"} < found


def test_every_module_is_found_and_can_be_loaded(installed: Installed) -> None:
    code = f"""
import importlib, pathlib, pkgutil
for package in {PACKAGES!r}:
    root = importlib.import_module(package)
    assert pathlib.Path(root.__file__).is_relative_to({str(installed.site)!r}), root.__file__
    def refused(name):
        assert name == "smdistributed.modelparallel", name  # says that the library is not there
    for module in pkgutil.walk_packages(root.__path__, package + ".", refused):
        if not any(part in module.name for part in ("__main__", "standin", "migrations.env", "modelparallel")):
            importlib.import_module(module.name)
print("all loaded")
"""
    assert installed.python(code) == "all loaded"


def test_the_command_the_migrations_and_the_programs_are_there(installed: Installed, tmp_path: Path) -> None:
    assert "doctor" in installed.run(installed.site / "bin" / "trainshed", "--help")
    url = f"sqlite:///{tmp_path / 'a file'}"
    code = f"from trainshed_service.store import migrate; migrate({url!r}); migrate({url!r}); print('migrated')"
    assert installed.python(code) == "migrated"
    assert os.access(installed.site / "trainshed_worker" / "launchers" / "rsh" / "trainshed-rsh", os.X_OK)
