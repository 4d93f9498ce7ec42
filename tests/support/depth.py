"""How much the property tests try: little in each `make test`, much in `make test-deep` (TRAINSHED_TEST_DEEP=1)."""

from __future__ import annotations

import os

DEEP = os.environ.get("TRAINSHED_TEST_DEEP") == "1"
_TIMES = 20


def examples(count: int) -> int:
    """`count` in an ordinary run, more in a deep one."""
    return count * _TIMES if DEEP else count


def size(ordinary: int, full: int) -> int:
    """How many of something: `ordinary` in each run, `full` (as it was reported) in a deep one."""
    return full if DEEP else ordinary
