"""Warm-pool cache directories on a node."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from trainshed_worker.agent.pool_caches import PoolCaches
from trainshed_worker.sandbox import FIRST_JOB_UID


def test_one_per_cluster_and_slot_which_stays_while_it_is_kept(tmp_path: Path) -> None:
    caches = PoolCaches(tmp_path / "pools", isolation=True)
    first, second = caches.prepare("a", 0), caches.prepare("a", 1)
    other = caches.prepare("b", 0)
    assert len({first, second, other}) == 3
    (first / "file").write_text("kept")
    assert caches.prepare("a", 0) == first
    assert first.stat().st_mode & 0o777 == 0o700
    assert first.parent.stat().st_mode & 0o777 == 0o700
    asyncio.run(caches.sweep(lambda: {"a"}))
    assert not other.parent.exists()
    assert (first / "file").read_text() == "kept"
    asyncio.run(caches.sweep(lambda: set()))
    assert list((tmp_path / "pools").iterdir()) == []
    asyncio.run(PoolCaches(tmp_path / "never", isolation=True).sweep(lambda: set()))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_slot_s_own_user_has_it(tmp_path: Path) -> None:
    caches = PoolCaches(tmp_path / "pools", isolation=True)
    assert caches.prepare("a", 7).stat().st_uid == FIRST_JOB_UID + 7
    assert PoolCaches(tmp_path / "plain", isolation=False).prepare("a", 7).stat().st_uid == 0


def test_what_a_job_leaves_in_it_harms_nobody(tmp_path: Path) -> None:
    caches = PoolCaches(tmp_path / "pools", isolation=True)
    place = caches.prepare("a", 0)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    (place / "away").symlink_to(tmp_path / "outside")
    os.mkfifo(place / "pipe")
    caches.prepare("a", 0)
    asyncio.run(caches.sweep(lambda: set()))
    assert (tmp_path / "outside" / "precious").exists()
