"""One thread that runs the collectives of one set of connections, in the order in which they were asked for.

Invariants: collectives of the same connections never overlap, so all ranks run them in the same order; a call that
waits runs at once in the caller's own thread where nothing is before it; an exception reaches whoever waits for that
call.
The thread starts with the first asynchronous call, so a process that forks before has one thread as it had.
"""

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work
from torch.futures import Future


class Started(Work):
    """The handle of a collective under way. `wait` raises what the collective raised; torch's own handle of a future
    swallows it, and whoever waited would go on with what never arrived."""

    def __init__(self, future: "Future[Any]") -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """The collective has a limit of its own; `timeout` is not used."""
        self._future.wait()
        return True

    def get_future(self) -> "Future[Any]":
        return self._future


class Runner:
    """See the module's docstring. `close` ends the thread; calls that were not begun are never run."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[[], Any]) -> Any:
        """Runs the call after all that were asked for before; returns or raises as it does."""
        with self._changed:
            at_once = not self._busy and not self._waiting
            if at_once:
                self._busy = True
        if not at_once:
            return self.submit(call, lambda value: value)[1].wait()
        try:
            return call()
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def submit(self, call: Callable[[], Any], result: Callable[[Any], Any]) -> tuple[Work, "Future[Any]"]:
        """A handle at once; the future's value is `result` of what the call returned."""
        future: Future[Any] = Future()

        def complete() -> Any:
            return result(call())

        with self._changed:
            if self._closed:
                raise RuntimeError(f"the collectives of {self._name} have been closed")
            self._waiting.append((complete, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return Started(future), future

    def close(self, timeout: float = 5.0) -> None:
        """Waits for the call that runs, up to `timeout` seconds."""
        with self._changed:
            self._closed = True
            dropped = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for _, future in dropped:
            future.set_exception(RuntimeError(f"the collectives of {self._name} have been closed"))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        with self._changed:
            return not self._busy and not self._waiting

    def _loop(self) -> None:
        torch.set_num_threads(1)  # of this thread alone: sums are short and the others compute
        while True:
            with self._changed:
                while self._busy or not (self._waiting or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                call, future = self._waiting.popleft()
                self._busy = True
            try:
                value = call()
            except BaseException as error:  # noqa: BLE001  (whoever waits raises it)
                outcome: Any = error
                failed = True
            else:
                outcome, failed = value, False
            with self._changed:
                self._busy = False
                self._changed.notify_all()
            # Outside the lock: callbacks of the future may ask for the next collective.
            if failed:
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
            del call, future, outcome
