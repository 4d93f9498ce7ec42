"""Names the ranks that keep a collective waiting, and ends the wait: an error on every other rank within the timeout.

Each rank tells the others through the process group's store, over a connection of its own, where it is: the number and
the name of the wait that it is in (or was in last), and a heartbeat. A rank that has waited for `timeout` seconds reads
what the others told and says which of them have not come, and whether they still live. Its connections are then closed
by what `interrupt` names; the `expect` block raises RanksMissing with the same words. A process that cannot be
interrupted (gloo's waits for one message know no other end than their own timeout) writes its threads' stacks and ends
with exit code 75 after `grace` more seconds.

    watchdog = Watchdog(timeout=300, interrupt=[communicator.close])
    with watchdog.expect("gradients of step 12"):
        loss.backward()
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TextIO

import torch.distributed as dist

EXIT_CODE = 75
_BEATS = 4
"""Heartbeats per timeout; a rank that missed as many is not heard from."""
_NAMED = 16


class RanksMissing(RuntimeError):
    """A collective waited in vain; `ranks` have not come to it."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


@dataclass(frozen=True)
class Position:
    """Where a rank is: the number and name of its last wait, whether it is inside, and how often it has beaten."""

    number: int = 0
    name: str = "nothing yet"
    inside: bool = False
    beats: int = 0


class Watchdog:
    """One for the whole process; made by every rank with the same `timeout` (seconds). `close` ends its thread.

    `groups`: their collectives give up after the same time, which is how waits in gloo end.
    """

    def __init__(
        self,
        timeout: float,
        interrupt: Sequence[Callable[[], Any]] = (),
        grace: float = 30.0,
        groups: Sequence[dist.ProcessGroup] = (),
        store: dist.Store | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        out: TextIO | None = None,
        exits: bool = True,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout}; it must be above 0 seconds")
        self.timeout = timeout
        self.rank = dist.get_rank() if rank is None else rank
        self.world_size = dist.get_world_size() if world_size is None else world_size
        self._interrupt = list(interrupt)
        self._grace = grace
        self._exits = exits
        self._out = out
        self._store = (store or dist.distributed_c10d._get_default_store()).clone()
        self._changed = threading.Condition()
        self._position = Position()
        self._since: float | None = None
        self._told: RanksMissing | None = None
        self._closed = False
        self._seen: dict[int, tuple[int, float]] = {}
        for group in groups:
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout), group)
        self._publish()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def expect(self, name: str) -> Iterator[None]:
        """All ranks come here in the same order, under the same name. RanksMissing, from the collective's own error,
        where one did not in time."""
        with self._changed:
            number = self._position.number + 1
            self._position = Position(number, name, True, self._position.beats)
            self._since = time.monotonic()
            self._told = None
            self._changed.notify()
        try:
            yield
        except RuntimeError as error:
            raise self._reason(error) from error
        finally:
            with self._changed:
                self._position = Position(number, name, False, self._position.beats)
                self._since = None

    def guard(self, holder: Any, name: str, called: str) -> None:
        """Expect all ranks in each call of the method `holder.name`; calls inside of such a call are part of it."""
        inner = getattr(holder, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._since is not None:
                return inner(*args, **kwargs)
            with self.expect(called):
                return inner(*args, **kwargs)

        setattr(holder, name, call)

    def close(self) -> None:
        """End the watching; what the others know of this rank stays."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def missing(self) -> dict[int, str]:
        """The ranks that are not in the wait that this rank is in, and what each does as far as is known."""
        mine, now = self._position, time.monotonic()
        found: dict[int, str] = {}
        for rank in range(self.world_size):
            if rank == self.rank:
                continue
            other = self._of(rank)
            if other is None:
                found[rank] = "has never been heard from"
                continue
            beats, since = self._seen.get(rank, (-1, now))
            if other.beats != beats:
                self._seen[rank] = (other.beats, now)
                since = now
            silent = now - since
            if silent > self.timeout / 2:
                found[rank] = f"has not been heard from for {silent:.0f} s, after {other.name!r}"
            elif other.number < mine.number:
                where = "is still in" if other.inside else "has not come since"
                found[rank] = f"{where} {other.name!r} ({mine.number - other.number} before)"
        return found

    def _reason(self, error: RuntimeError) -> RuntimeError:
        """RanksMissing for an error of a collective, where somebody is known to be missing; else the error's own."""
        if self._told is not None:
            return self._told
        missing = self.missing()
        if not missing:
            return error
        return RanksMissing(f"{self._sentence(missing)} The collective said: {error}", list(missing))

    def _sentence(self, missing: dict[int, str]) -> str:
        waited = time.monotonic() - self._since if self._since is not None else 0.0
        if not missing:
            return (
                f"rank {self.rank} waited {waited:.1f} s in {self._position.name!r}, and so did all others: the "
                "network or a device hangs."
            )
        each = [f"rank {rank} {why}" for rank, why in list(missing.items())[:_NAMED]]
        more = f", and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return (
            f"rank {self.rank} waited {waited:.1f} s in {self._position.name!r} for "
            f"{'ranks' if len(missing) > 1 else 'rank'} {', '.join(map(str, list(missing)[:_NAMED]))}{more}: "
            f"{'; '.join(each)}."
        )

    def _watch(self) -> None:
        interval = self.timeout / 2 / _BEATS
        while True:
            with self._changed:
                if self._closed:
                    return
                self._changed.wait(interval)
                if self._closed:
                    return
                last = self._position
                self._position = Position(last.number, last.name, last.inside, last.beats + 1)
                since = self._since
            try:
                self._publish()
                if since is not None:
                    self._listen(since)
            except RuntimeError as error:  # the store is gone with the rank that held it
                if since is not None and self._late(since):
                    self._say({0: f"held the store, which is gone ({error})"})
            if since is not None and self._since == since and time.monotonic() - since > self.timeout + self._grace:
                self._end()

    def _late(self, since: float) -> bool:
        """Whether the wait that began then still lasts, has lasted too long, and nobody has been told."""
        return self._since == since and self._told is None and time.monotonic() - since >= self.timeout

    def _listen(self, since: float) -> None:
        missing = self.missing()  # at each beat, so that silence is known when it matters
        if self._late(since):
            self._say(missing)

    def _say(self, missing: dict[int, str]) -> None:
        reason = RanksMissing(self._sentence(missing), list(missing))
        self._told = reason
        print(f"[trainshed] {reason}", file=self._out or sys.stderr, flush=True)
        for close in self._interrupt:
            with suppress(RuntimeError, OSError):  # what cannot be closed times out by itself, or the process ends
                close()

    def _end(self) -> None:
        if not self._exits:
            return
        print(f"[trainshed] rank {self.rank} cannot be interrupted and ends.", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        os._exit(EXIT_CODE)

    def _publish(self) -> None:
        position = self._position
        self._store.set(_key(self.rank), json.dumps(vars(position)))

    def _of(self, rank: int) -> Position | None:
        if not self._store.check([_key(rank)]):
            return None
        return Position(**json.loads(self._store.get(_key(rank))))


def _key(rank: int) -> str:
    return f"trainshed/watchdog/{rank}"
