"""config.json: private, whole or old, and clear words where it cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainshed_service.embedded.home import Home, HomeConfig, HomeError, default_home, write_private


def test_it_comes_back_as_written_and_is_private(tmp_path: Path):
    home = Home(tmp_path / "a home")
    home.prepare()
    config = HomeConfig(
        account_id="123456789012", ports={"main": 1}, secret_access_key="x", instance_types=["ml.m5.large"]
    )
    home.write(config)
    assert home.read() == config
    assert home.config_path.stat().st_mode & 0o777 == 0o600
    assert home.folder.stat().st_mode & 0o077 == 0
    assert not list(home.folder.glob("*.new"))


def test_the_mode_of_a_folder_that_was_there_stays(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    Home(folder).prepare()
    assert folder.stat().st_mode & 0o777 == 0o755
    assert Home(folder).run.stat().st_mode & 0o777 == 0o700


def test_a_loose_file_becomes_private(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["{", "[]", '{"account_id": "12"}', '{"nodes": -1}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str):
    home = Home(tmp_path)
    home.config_path.write_text(text)
    with pytest.raises(HomeError, match=r"config\.json is damaged"):
        home.read()


def test_members_of_a_newer_version_do_no_harm(tmp_path: Path):
    home = Home(tmp_path)
    home.config_path.write_text(json.dumps({"account_id": "123456789012", "something_new": 1}))
    assert home.read().account_id == "123456789012"


def test_a_home_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeError, match="give another --home"):
        Home(tmp_path / "file" / "home").prepare()


def test_the_default_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.delenv("TRAINSHED_HOME")
    assert default_home() == Path.home() / ".trainshed"
