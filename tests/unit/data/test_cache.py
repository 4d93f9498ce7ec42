"""The node's object cache: what is used, what is fetched anew, what goes when room is needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainshed_worker.data import Cancellation, Cancelled, ObjectCache, RoleCache
from trainshed_worker.data.cache import Crc32, digest_of
from trainshed_worker.data.listing import RemoteObject
from trainshed_worker.data.materialize import duplicate

KB = 1000


def item(key: str = "k", size: int = KB, etag: str = "e") -> RemoteObject:
    return RemoteObject("bucket", key, size, etag, key)


def bring(role: RoleCache, thing: RemoteObject, folder: Path, content: bytes | None = None) -> bool:
    """Put an object in as a download does; False where it did not fit."""
    file = folder / "download.part"
    file.write_bytes(content if content is not None else thing.key[:1].encode() * thing.size)
    kept = role.put(thing, file, digest_of(file, "crc32")) is not None
    file.unlink(missing_ok=True)
    return kept


def take(role: RoleCache, thing: RemoteObject, target: Path) -> bool:
    return any(role.cache.take(entry, target) for entry in role.find([thing]).values())


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ObjectCache]:
    made = ObjectCache(tmp_path / "cache", 10 * KB, shared=True, linked_from=0)
    yield made
    made.close()


def test_an_object_is_found_again_by_the_same_role_alone_and_unchanged_alone(
    cache: ObjectCache, tmp_path: Path
) -> None:
    role, other = cache.for_role("role/a"), cache.for_role("role/b")
    assert bring(role, item(), tmp_path)
    assert take(role, item(), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"k" * KB
    assert not take(other, item(), tmp_path / "none")
    for changed in (item(etag="f"), item(size=KB + 1), item(key="l")):
        assert not take(role, changed, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_small_objects_are_the_jobs_own_files_and_large_ones_links(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", 10 * KB, shared=True, linked_from=KB)
    role = cache.for_role("r")
    for key, size, links in (("small", KB - 1, 1), ("large", KB, 2)):
        assert bring(role, item(key, size), tmp_path)
        assert take(role, item(key, size), tmp_path / key)
        assert (tmp_path / key).stat().st_nlink == links
    cache.close()


def test_entries_outlive_the_process_and_scraps_do_not(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    assert bring(role, item(), tmp_path)
    name = role.name(item())
    scrap = cache.path("ab" + "0" * 62)
    scrap.parent.mkdir(exist_ok=True)
    scrap.write_text("a crash between file and row")
    cache.close()
    again = ObjectCache(tmp_path / "cache", 10 * KB, shared=True)
    assert not scrap.exists()
    assert again.path(name).exists()
    assert again.size().bytes == KB
    assert take(again.for_role("r"), item(), tmp_path / "got")
    again.close()


@pytest.mark.parametrize("damage", ["content", "truncated", "gone", "replaced"])
def test_a_damaged_entry_is_not_used_and_its_room_is_free_again(
    cache: ObjectCache, tmp_path: Path, damage: str
) -> None:
    role = cache.for_role("r")
    bring(role, item(), tmp_path)
    path = cache.path(role.name(item()))
    if damage == "content":
        path.write_bytes(b"x" * KB)
    elif damage == "truncated":
        os.truncate(path, 10)
    elif damage == "gone":
        path.unlink()
    else:
        fresh = tmp_path / "fresh"
        fresh.write_bytes(b"y" * KB)
        os.replace(fresh, path)
    assert not take(role, item(), tmp_path / "got")
    assert not (tmp_path / "got").exists()
    assert not role.find([item()])
    assert cache.size().bytes == 0
    assert bring(role, item(), tmp_path)
    assert take(role, item(), tmp_path / "got")


def test_after_a_reboot_the_checksum_decides(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    bring(role, item("good"), tmp_path)
    bring(role, item("bad"), tmp_path)
    bad = cache.path(role.name(item("bad")))
    times = bad.stat()
    bad.write_bytes(bytes(KB))  # blocks that never reached the disk, the time of the file as it was
    os.utime(bad, ns=(times.st_atime_ns, times.st_mtime_ns))
    cache._boot = "another boot"
    assert take(role, item("good"), tmp_path / "good")
    assert not take(role, item("bad"), tmp_path / "bad")
    (entry,) = role.find([item("good")]).values()
    assert entry.boot == "another boot"


def test_a_touched_but_whole_entry_is_used(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    bring(role, item(), tmp_path)
    os.utime(cache.path(role.name(item())))
    assert take(role, item(), tmp_path / "got")


def test_the_entry_used_longest_ago_goes_first_and_never_one_in_use(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    for number in range(10):
        assert bring(role, item(str(number)), tmp_path)
    assert take(role, item("1"), tmp_path / "running job's")
    (tmp_path / "jobs").mkdir()
    assert take(role, item("0"), tmp_path / "jobs" / "ended")
    (tmp_path / "jobs" / "ended").unlink()
    assert bring(role, item("new", 2 * KB), tmp_path)
    here = {number for number in range(10) if take(role, item(str(number)), tmp_path / f"look-{number}")}
    assert here == {0, 1, 4, 5, 6, 7, 8, 9}
    assert cache.size().bytes == 10 * KB
    assert take(role, item("new", 2 * KB), tmp_path / "look-new")
    # every entry has a user now: nothing can go, so nothing new is kept
    assert not bring(role, item("another"), tmp_path)
    assert (tmp_path / "running job's").read_bytes() == b"1" * KB


def test_what_is_larger_than_the_limit_is_not_kept_and_drives_nothing_out(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    bring(role, item("small"), tmp_path)
    assert not bring(role, item("huge", 11 * KB), tmp_path)
    assert take(role, item("small"), tmp_path / "got")


def test_what_a_thread_has_just_put_in_stays_until_the_thread_has_taken_it(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    thing = item("mine", 6 * KB)
    with cache.alone(role.name(thing), Cancellation()):
        assert bring(role, thing, tmp_path)
        assert not bring(role, item("other", 5 * KB), tmp_path)
        assert take(role, thing, tmp_path / "got")
        (tmp_path / "got").unlink()
    assert bring(role, item("other", 5 * KB), tmp_path)
    assert not take(role, thing, tmp_path / "got")


def test_a_thread_with_an_old_row_does_not_drop_the_entry_that_came_after_it(
    cache: ObjectCache, tmp_path: Path
) -> None:
    role = cache.for_role("r")
    assert bring(role, item(), tmp_path)
    (old,) = role.find([item()]).values()
    assert bring(role, item(), tmp_path)
    cache.path(old.name).unlink()  # the moment between the old entry's end and the new one's beginning
    assert not cache.take(old, tmp_path / "got")
    assert role.find([item()])


def test_a_smaller_limit_is_kept_from_the_start(cache: ObjectCache, tmp_path: Path) -> None:
    role = cache.for_role("r")
    for number in range(10):
        bring(role, item(str(number)), tmp_path)
    cache.close()
    again = ObjectCache(tmp_path / "cache", 3 * KB, shared=True)
    assert again.size().bytes == 3 * KB
    assert set(again.for_role("r").find([item(str(number)) for number in range(10)])) == {
        role.name(item(str(number))) for number in (7, 8, 9)
    }
    again.close()


def test_without_overlays_each_job_has_a_copy(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", 10 * KB, shared=False)
    role = cache.for_role("r")
    bring(role, item(), tmp_path)
    assert take(role, item(), tmp_path / "got")
    (tmp_path / "got").write_bytes(b"changed by the job")
    assert take(role, item(), tmp_path / "next")
    assert (tmp_path / "next").read_bytes() == b"k" * KB
    cache.close()


def test_a_damaged_index_costs_the_entries_and_nothing_else(cache: ObjectCache, tmp_path: Path) -> None:
    bring(cache.for_role("r"), item(), tmp_path)
    cache.close()
    (tmp_path / "cache" / "index.sqlite3").write_bytes(b"no database" * 1000)
    again = ObjectCache(tmp_path / "cache", 10 * KB, shared=True)
    assert again.size() == again.size().__class__(0, 0, 10 * KB)
    assert bring(again.for_role("r"), item(), tmp_path)
    again.close()


def test_one_thread_brings_an_object_and_a_cancelled_one_does_not_wait(cache: ObjectCache) -> None:
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with cache.alone("name", Cancellation()):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    stopped = Cancellation()
    stopped.cancel()
    with pytest.raises(Cancelled), cache.alone("name", stopped):
        pass
    with cache.alone("other", Cancellation()):
        leave.set()
    with cache.alone("name", Cancellation()):
        thread.join(10)
        assert not thread.is_alive()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 6 * KB), st.booleans()), max_size=30))
def test_whatever_comes_the_limit_is_kept_and_bytes_are_right(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    cache = ObjectCache(folder / "cache", 10 * KB, shared=True)
    roles = {True: cache.for_role("one"), False: cache.for_role("two")}
    try:
        for number, (key, size, which) in enumerate(steps):
            role, thing = roles[which], item(key, size)
            target = folder / f"target-{number}"
            if take(role, thing, target):
                assert target.read_bytes() == key.encode() * size
                if number % 2:
                    target.unlink()
            else:
                bring(role, thing, folder)
            files = [path for path in (folder / "cache" / "objects").rglob("*") if path.is_file()]
            assert sum(path.stat().st_size for path in files) == cache.size().bytes == cache._bytes <= 10 * KB
    finally:
        cache.close()


def test_a_copy_is_whole_or_absent(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    content = os.urandom(3 << 20)
    source.write_bytes(content)
    duplicate(source, target, 0o640)
    assert target.read_bytes() == content
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.stat().st_ino != source.stat().st_ino
    with pytest.raises(FileNotFoundError):
        duplicate(tmp_path / "absent", tmp_path / "never", 0o640)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


@given(st.lists(st.binary(max_size=50)))
def test_crc_in_pieces_is_that_of_the_whole(pieces: list[bytes]) -> None:
    running, whole = Crc32(), Crc32()
    for piece in pieces:
        mark = running.copy()
        running.update(b"a transfer that broke off")
        running = mark
        running.update(piece)
    whole.update(b"".join(pieces))
    assert running.hexdigest() == whole.hexdigest()
