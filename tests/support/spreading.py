"""The order of a parallel run: every worker begins with its share of the long tests and ends with short ones.

pytest-xdist's `worksteal` cuts the list of tests into one piece for each worker, in order; a worker that is done takes
tests from the end of another's piece. In the order of the folders one worker would get all long tests, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

WHOLE = ("tests/cluster/", "tests/chaos/", "tests/browser/", "tests/integration/embedded/test_running.py")
"""Long ones that share what is long to start: all of a folder, or file, by one worker."""
SINGLE = ("tests/acceptance/", "tests/integration/embedded/")
"""Long ones that any worker can run."""


def spread(items: Sequence[T], path: Callable[[T], str], workers: int) -> list[T]:
    """The same items, for `workers` pieces of (nearly) equal length."""
    shares: list[list[T]] = [[] for _ in range(workers)]
    for folder in WHOLE:
        min(shares, key=len).extend(item for item in items if path(item).startswith(folder))
    for item in items:
        if path(item).startswith(SINGLE) and not path(item).startswith(WHOLE):
            min(shares, key=len).append(item)
    short = [item for item in items if not path(item).startswith((*WHOLE, *SINGLE))]
    left = len(items)
    for number, share in enumerate(shares):
        size = left // (workers - number)  # as worksteal cuts
        filling = max(0, size - len(share))
        share += short[:filling]
        del short[:filling]
        left -= len(share)
    return [item for share in shares for item in share]
