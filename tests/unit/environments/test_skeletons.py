"""Environments without requirements are written once per slot, and shown through overlays."""

from __future__ import annotations

import os
from pathlib import Path

from trainshed_worker.environments import INSIDE, Installed, Skeletons, describe, provide
from trainshed_worker.environments.base import own_prefix
from trainshed_worker.environments.skeleton import site_packages
from trainshed_worker.sandbox import FIRST_JOB_UID


def test_jobs_of_a_slot_share_what_they_see_and_write_none_of_it(tmp_path: Path) -> None:
    base, skeletons = describe(own_prefix()), Skeletons(tmp_path / "skeletons")
    first = provide("default", base, tmp_path / "first", None, (skeletons, 3))
    written = {path: path.lstat().st_ino for path in first.files.rglob("*")}
    second = provide("default", base, tmp_path / "second", None, (skeletons, 3))
    assert first.layered and second.layered
    assert first.files == second.files
    assert written == {path: path.lstat().st_ino for path in second.files.rglob("*")}
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["lower"]
    assert (tmp_path / "second" / "lower").resolve() == second.files
    assert (second.files / "bin" / "torchrun").read_text().startswith(f"#!{INSIDE}/bin/python3\n")
    assert provide("default", base, tmp_path / "third", None, (skeletons, 4)).files != first.files
    assert (tmp_path / "skeletons").stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        owners = {path.lstat().st_uid for path in [first.files, *first.files.rglob("*")]}
        assert owners == {FIRST_JOB_UID + 3}


def test_an_environment_with_requirements_is_the_jobs_own_also_when_it_was_thought_to_have_none(tmp_path: Path) -> None:
    base, skeletons = describe(own_prefix()), Skeletons(tmp_path / "skeletons")
    directory = tmp_path / "job"
    plain = provide("default", base, directory, None, (skeletons, 0))
    below = (site_packages(plain.files, base) / "_below.pth").read_text()
    installed = Installed(tmp_path / "installed", tmp_path / "installed")
    own = provide("default", base, directory, installed, (skeletons, 0))
    assert not own.layered
    assert own.files == directory
    assert not (directory / "lower").exists()
    assert str(tmp_path / "installed") in (site_packages(directory, base) / "_below.pth").read_text()
    assert (site_packages(plain.files, base) / "_below.pth").read_text() == below


def test_cleared_ones_are_made_anew(tmp_path: Path) -> None:
    base, skeletons = describe(own_prefix()), Skeletons(tmp_path / "skeletons")
    files = provide("default", base, tmp_path / "first", None, (skeletons, 0)).files
    skeletons.clear()
    assert not files.exists()
    assert provide("default", base, tmp_path / "second", None, (skeletons, 0)).files == files
    assert (files / "bin" / "python3").is_symlink()
