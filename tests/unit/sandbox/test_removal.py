"""Deleting what jobs leave, however odd."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trainshed_worker.sandbox import remove_tree


def test_depth_links_pipes_modes_and_clashing_names(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    tree = tmp_path / "tree"
    tree.mkdir()
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("deeper", dir_fd=descriptor)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.symlink(outside, "away", dir_fd=inner)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    (tree / "link").symlink_to(outside)
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tree / "socket"))
    (tree / ".removing-1" / "a" / ".removing-2").mkdir(parents=True)
    (tree / "closed" / "inner" / "leaf").mkdir(parents=True)
    (tree / "closed" / "inner").chmod(0)
    (tree / "closed").chmod(0)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "precious").read_text() == "stays"
    remove_tree(tree)


def test_a_link_in_the_place_of_the_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "real" / "file").exists()
