"""When parents are started, whose they are, and when they end; with processes that only sleep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.wait import patient, wait_until
from trainshed_worker.environments import BaseEnvironment
from trainshed_worker.preload.parents import Parents
from trainshed_worker.preload.starting import ParentFailed
from trainshed_worker.sandbox.continuation import NO_PARENT

ROLE, OTHER = "arn:aws:iam::1:role/a", "arn:aws:iam::1:role/b"


def base(name: str = "a", version: tuple[int, int, int] = (3, 11, 7)) -> BaseEnvironment:
    return BaseEnvironment(Path("/env") / name, Path("/usr/bin/python3"), version, (), ())


class FakeParent:
    """A parent that gets ready when it is let, or fails."""

    def __init__(self, directory: Path, base: BaseEnvironment, fails: bool, gate: threading.Event) -> None:
        self.directory, self.base, self.fails, self.gate = directory, base, fails, gate
        self.ready = False
        self.ended = threading.Event()
        self.pid = 1

    def wait_ready(self) -> None:
        assert self.gate.wait(patient(10))
        if self.fails or self.ended.is_set():
            raise ParentFailed("it failed")
        self.ready = True

    def is_alive(self) -> bool:
        return not self.ended.is_set()

    def end(self) -> None:
        self.ready = False
        self.ended.set()
        self.gate.set()


class World:
    def __init__(self) -> None:
        self.started: list[FakeParent] = []
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()

    def start(self, directory: Path, base: BaseEnvironment) -> FakeParent:
        self.started.append(FakeParent(directory, base, self.fails, self.gate))
        return self.started[-1]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make(world: World, tmp_path: Path) -> Iterator[Callable[..., Parents]]:
    made: list[Parents] = []

    def one(**options: Any) -> Parents:
        made.append(Parents(tmp_path / "parents", start=world.start, **options))
        return made[-1]

    yield one
    for parents in made:
        parents.close()


def taken(parents: Parents, role: str = ROLE, of: BaseEnvironment | None = None) -> Any:
    return wait_until(lambda: parents.take(of or base(), role)[0], what="a parent is ready")


def test_taking_never_waits_and_prepares_for_the_next_time(make: Callable[..., Parents], world: World) -> None:
    world.gate.clear()
    parents = make()
    assert parents.take(base(), ROLE) == (None, NO_PARENT)
    wait_until(lambda: world.started, what="one is started")
    assert parents.take(base(), ROLE) == (None, NO_PARENT)
    world.gate.set()
    assert taken(parents) is world.started[0]
    assert len(world.started) == 1


def test_the_first_one_becomes_that_of_the_first_role_and_of_no_other(
    make: Callable[..., Parents], world: World
) -> None:
    parents = make()
    parents.prepare(base())
    first = taken(parents)
    assert first is world.started[0]
    second = taken(parents, OTHER)
    assert second is not first
    assert taken(parents) is first
    assert len(world.started) == 2


def test_each_environment_has_its_own(make: Callable[..., Parents], world: World) -> None:
    parents = make()
    assert taken(parents) is not taken(parents, of=base("b"))
    assert {parent.base.prefix.name for parent in world.started} == {"a", "b"}


def test_one_that_died_is_replaced(make: Callable[..., Parents], world: World) -> None:
    parents = make()
    first = taken(parents)
    first.ended.set()
    assert taken(parents) is not first


def test_one_that_fails_is_not_tried_again_at_once(make: Callable[..., Parents], world: World) -> None:
    world.fails = True
    parents = make()
    parents.prepare(base())
    wait_until(lambda: len(world.started) == 1, what="one is started")
    world.fails = False
    taken(parents, of=base("b"))  # the thread has dealt with the first, and is past it
    for _ in range(20):
        assert parents.take(base(), ROLE)[0] is None
    assert [parent.base.prefix.name for parent in world.started] == ["a", "b"]


def test_what_is_unused_ends(make: Callable[..., Parents], world: World) -> None:
    parents = make(idle_seconds=0.3)
    first = taken(parents)
    assert first.ended.wait(patient(10))


def test_the_longest_unused_gives_way(make: Callable[..., Parents], world: World) -> None:
    parents = make(limit=2)
    first, second = taken(parents, of=base("a")), taken(parents, of=base("b"))
    taken(parents, of=base("a"))
    taken(parents, of=base("c"))
    assert second.ended.wait(patient(10))
    assert not first.ended.is_set()


def test_closing_ends_all_also_one_that_is_starting(make: Callable[..., Parents], world: World) -> None:
    parents = make()
    first = taken(parents)
    world.gate.clear()
    parents.take(base("b"), ROLE)
    wait_until(lambda: len(world.started) == 2, what="the second is started")
    parents.close()
    assert first.ended.is_set()
    assert world.started[1].ended.is_set()
    parents.prepare(base("c"))
    assert len(world.started) == 2


def test_switched_off_there_is_none(make: Callable[..., Parents], world: World) -> None:
    parents = make(enabled=False)
    parents.prepare(base())
    assert parents.take(base(), ROLE) == (None, "preloaded parents are switched off on this node")
    assert world.started == []


def test_an_old_python_has_none(make: Callable[..., Parents], world: World) -> None:
    parents = make()
    assert parents.take(base(version=(3, 10, 1)), ROLE) == (None, NO_PARENT)
    assert world.started == []
