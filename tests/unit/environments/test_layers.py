"""Layers of installed requirements: used while whole, held by jobs, gone when the limit asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainshed_worker.environments import LayerStore
from trainshed_worker.environments.layers import fingerprint


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    (tmp_path / "envs").mkdir()
    (tmp_path / "assignments").mkdir()
    return LayerStore(tmp_path / "envs", tmp_path / "assignments", 3100)


def job(tmp_path: Path, name: str) -> str:
    (tmp_path / "assignments" / name).mkdir()
    return name


def add(store: LayerStore, tmp_path: Path, key: str, assignment: str, size: int = 1000, used: float = 0) -> Path:
    built = tmp_path / "built"
    (built / "lib").mkdir(parents=True)
    (built / "lib" / "module.py").write_bytes(key[:1].encode() * size)
    (built / "lib" / "link").symlink_to("module.py")
    layer = store.add(key, built, assignment)
    if used:
        os.utime(layer, (used, used))
    return layer


def test_a_layer_is_used_again_until_it_is_damaged(store: LayerStore, tmp_path: Path) -> None:
    first = job(tmp_path, "first")
    layer = add(store, tmp_path, "a", first)
    os.rmdir(tmp_path / "assignments" / first)
    assert store.use("a", job(tmp_path, "second")) == layer
    assert store.use("b", "second") is None
    os.rmdir(tmp_path / "assignments" / "second")
    (layer / "lib" / "module.py").write_bytes(b"b" * 1000)
    assert store.use("a", job(tmp_path, "third")) is None
    assert not layer.exists()
    assert store.bytes() == 0


def test_a_damaged_layer_that_runs_is_left_to_its_job_and_built_beside(store: LayerStore, tmp_path: Path) -> None:
    layer = add(store, tmp_path, "a", job(tmp_path, "running"))
    running = os.open(layer, os.O_RDONLY)
    (layer / "lib" / "more").touch()
    assert store.use("a", job(tmp_path, "next")) is None
    add(store, tmp_path, "a", "next")
    assert sorted(os.listdir(os.open("lib", os.O_RDONLY, dir_fd=running))) == ["link", "module.py", "more"]
    assert store.use("a", "next") == layer
    assert sorted(path.name for path in (layer / "lib").iterdir()) == ["link", "module.py"]
    os.close(running)


def test_the_limit_takes_those_used_longest_ago_but_none_that_a_job_has(store: LayerStore, tmp_path: Path) -> None:
    ended = job(tmp_path, "ended")
    held = job(tmp_path, "held")
    add(store, tmp_path, "a", held, used=100)
    add(store, tmp_path, "b", ended, used=200)
    add(store, tmp_path, "c", ended, used=300)
    os.rmdir(tmp_path / "assignments" / ended)
    add(store, tmp_path, "d", held)
    assert {key for key in "abcd" if (store.directory / key).exists()} == {"a", "c", "d"}
    # a store of a later process knows the same
    later = LayerStore(store.directory, tmp_path / "assignments", 1100)
    add(later, tmp_path, "e", held)
    assert {key for key in "abcde" if (store.directory / key).exists()} == {"a", "d", "e"}


def test_a_layer_without_its_record_is_built_anew(store: LayerStore, tmp_path: Path) -> None:
    add(store, tmp_path, "a", job(tmp_path, "one"))
    os.rmdir(tmp_path / "assignments" / "one")
    (store.directory / ".a.json").write_text('{"digest": "tor')
    assert store.use("a", "two") is None
    assert not (store.directory / "a").exists()


@pytest.mark.parametrize("change", ["content", "mode", "link", "new", "gone"])
def test_every_change_shows_in_the_fingerprint(tmp_path: Path, change: str) -> None:
    (tmp_path / "lib").mkdir()
    file = tmp_path / "lib" / "f"
    file.write_text("x")
    (tmp_path / "lib" / "link").symlink_to("f")
    before = fingerprint(tmp_path)
    assert before == fingerprint(tmp_path)
    if change == "content":
        file.write_text("y")
        os.utime(file, ns=(1, 1))
    elif change == "mode":
        file.chmod(0o755)
    elif change == "link":
        (tmp_path / "lib" / "link").unlink()
        (tmp_path / "lib" / "link").symlink_to("elsewhere")
    elif change == "new":
        (tmp_path / "lib" / "sitecustomize.py").touch()
    else:
        file.unlink()
    assert fingerprint(tmp_path).digest != before.digest
