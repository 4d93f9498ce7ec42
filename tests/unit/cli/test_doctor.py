"""What `trainshed doctor` finds and which cure it names, for each check on machines that have it and that lack it."""

from __future__ import annotations

import importlib
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from trainshed_service.cli import doctor
from trainshed_service.cli.app import app
from trainshed_service.cli.doctor import Check
from trainshed_service.cli.errors import CommandError
from trainshed_service.embedded.home import Home, HomeConfig
from trainshed_service.embedded.store import StoreError

probe = importlib.import_module("trainshed_worker.sandbox.probe")  # the package has a function of this name


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "a home")


def program(folder: Path, body: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def only(checks: Check | Iterable[Check]) -> Check:
    (check,) = [checks] if isinstance(checks, Check) else list(checks)
    return check


@pytest.mark.parametrize(("version", "ok"), [((3, 10, 9), False), ((3, 11, 0), True)])
def test_python(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], ok: bool) -> None:
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=version))
    check = only(doctor._python())
    assert (check.ok, check.detail) == (ok, ".".join(map(str, version)))
    assert "Python 3.11 or newer" in check.cure


@pytest.mark.parametrize(
    ("body", "ok", "detail"),
    [
        ("echo 2.13.0+cpu · CUDA devices: 0", True, "2.13.0+cpu · CUDA devices: 0"),
        ("echo Traceback >&2; echo ModuleNotFoundError: torch >&2; exit 1", False, "ModuleNotFoundError: torch"),
        ("kill -SEGV $$", False, "it crashed"),
    ],
)
def test_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, ok: bool, detail: str) -> None:
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(executable=program(tmp_path, body)))
    check = only(doctor._torch())
    assert (check.ok, check.detail) == (ok, detail)
    assert ok or "make install" in check.cure


@pytest.mark.parametrize(("body", "ok"), [("echo version 3.80", True), ("exit 1", False)])
def test_the_object_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, ok: bool) -> None:
    monkeypatch.setattr(doctor, "find_weed", lambda: program(tmp_path, body))
    check = only(doctor._object_store())
    assert (check.ok, check.detail) == (ok, f"SeaweedFS: {'version 3.80' if ok else 'no answer'}")
    assert "make install" in check.cure


def test_no_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Path:
        raise StoreError("run `make install`; it brings it")

    monkeypatch.setattr(doctor, "find_weed", absent)
    check = only(doctor._object_store())
    assert (check.ok, check.cure) == (False, "run `make install`; it brings it")


@pytest.mark.parametrize(("free", "ok"), [(2 * 1024**3, False), (4 * 1024**3, True)])
def test_the_disk_of_a_home_that_is_not_there_yet(
    monkeypatch: pytest.MonkeyPatch, home: Home, free: int, ok: bool
) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(shutil, "disk_usage", lambda place: asked.append(place) or SimpleNamespace(free=free))
    check = only(doctor._disk(home))
    assert (check.ok, asked) == (ok, [home.folder.parent])
    assert f"{free / 1e9:.1f} GB free" in check.detail
    assert "--home" in check.cure


@pytest.mark.parametrize("may", [True, False])
def test_a_home_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, home: Home, may: bool) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda place, mode: may)
    check = only(doctor._home(home))
    assert check.ok is may
    assert "--home" in check.cure


def test_what_the_sandbox_lacks_comes_with_its_own_cure(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    findings = [
        probe.Finding("namespaces", False, "unshare: Operation not permitted", "run the agent as root"),
        probe.Finding("cgroup-memory", True, "limits hold"),
        probe.Finding("fuse", False, "/dev/fuse is absent", "modprobe fuse"),
    ]
    monkeypatch.setattr(probe, "probe", lambda: findings)
    monkeypatch.setattr(probe, "overlay", lambda place: probe.Finding("overlay", True, str(place)))
    checks = {check.name: check for check in doctor._sandbox(home)}
    assert list(checks) == ["namespaces", "cgroup-memory", "fuse", "overlay"]
    assert [check.ok for check in checks.values()] == [False, True, False, True]
    assert (checks["namespaces"].cure, checks["fuse"].cure) == ("run the agent as root", "modprobe fuse")


def test_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = only(doctor._mpirun())
    assert not check.ok
    assert "without an MPI library" in check.detail
    assert "apt-get install openmpi-bin" in check.cure
    program(tmp_path, "exit 0").rename(tmp_path / "mpirun")
    assert only(doctor._mpirun()).detail == str(tmp_path / "mpirun")


@pytest.mark.parametrize(
    ("environment", "ok"),
    [
        ({}, True),
        ({"HTTPS_PROXY": "http://p:3128"}, False),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "localhost,127.0.0.1"}, True),
        ({"HTTP_PROXY": "http://p:3128", "NO_PROXY": "*"}, True),
    ],
)
def test_proxies(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], ok: bool) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    check = only(doctor._proxies())
    assert check.ok is ok
    assert ok or "trainshed env" in check.cure


def test_a_service_that_never_started_or_does_not_run(home: Home) -> None:
    check = only(doctor._service(home))
    assert (check.name, check.ok, check.cure) == ("service", False, "trainshed up")
    home.prepare()
    home.write(HomeConfig(ports={}))
    check = only(doctor._service(home))
    assert (check.detail, check.cure) == (f"not running in {home.folder}", "trainshed up")
    home.config_path.write_text("{")
    assert "is damaged" in only(doctor._service(home)).detail


def test_a_port_that_somebody_else_has_meanwhile(home: Home) -> None:
    home.prepare()
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        home.write(HomeConfig(ports={"main": port}))
        _, check = doctor._service(home)
    assert (check.name, check.ok) == ("main port", False)
    assert f"127.0.0.1:{port}" in check.detail
    assert "another program" in check.detail
    assert "trainshed env" in check.cure
    assert [check.name for check in doctor._service(home)] == ["service"], "it is free again"


def test_each_part_of_a_running_service(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    home.prepare()
    home.write(HomeConfig(ports={"main": 1, "gateway": 2, "ingest": 3}))
    monkeypatch.setattr(doctor.control, "running", lambda home: object())
    monkeypatch.setattr(doctor.health, "answers", lambda port: port != 2)
    checks = list(doctor._service(home))
    assert [(check.name, check.ok) for check in checks] == [
        ("main port", True),
        ("gateway port", False),
        ("ingest port", True),
    ]
    assert str(home.log) in checks[1].cure


def shown(monkeypatch: pytest.MonkeyPatch, home: Home, *checks: Check) -> Callable[[], Result]:
    monkeypatch.setattr(doctor, "all_checks", lambda home: iter(checks))

    def run(**options: Any) -> Result:
        return CliRunner().invoke(app, ["doctor", "--home", str(home.folder)], **options)

    return run


def test_comfort_that_is_missing_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    done = shown(
        monkeypatch, home, Check("python", True, "3.12.1", "unseen"), Check("fuse", False, "absent", "modprobe fuse")
    )()
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "ok      python  3.12.1",
        "without fuse    absent",
        "                → modprobe fuse",
    ]


def test_without_what_every_job_needs_it_fails(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    run = shown(monkeypatch, home, Check("torch", False, "No module named 'torch'", "run `make install`"))
    with pytest.raises(CommandError, match="no job can run here before this is mended: torch"):
        run(catch_exceptions=False)
    assert run().stdout.splitlines() == [
        "missing torch  No module named 'torch'",
        "               → run `make install`",
    ]


def test_all_that_is_checked_on_this_machine(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    monkeypatch.setattr(doctor, "_torch", lambda: Check("torch", True, "not imported here: it takes seconds"))
    checks = list(doctor.all_checks(home))
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    assert set(doctor._REQUIRED) | {"namespaces", "cgroup-memory", "fuse", "overlay", "proxies", "service"} <= set(
        names
    )
    assert [check for check in checks if not check.detail or not (check.ok or check.cure)] == []
    assert not home.exists()
