"""What can be told of: the kinds of events, and the words by which somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from trainshed_service.wire.errors import validation_error

JOB_KINDS = ("job.completed", "job.failed", "job.stopped")
POOL_KINDS = ("pool.available", "pool.expiring", "pool.ended")
KINDS = (*JOB_KINDS, *POOL_KINDS)
DROPPED = "notification.dropped"
"""Told to the one target that it is about, whatever it asked for."""
GROUPS = {"job.ended": JOB_KINDS, "pool": POOL_KINDS}
WORDS = (*KINDS, *GROUPS)


def check_kinds(wanted: Iterable[str]) -> list[str]:
    """The kinds that were asked for, in our order; none: all. ValidationException for a word that is no kind."""
    asked = list(wanted)
    unknown = sorted(set(asked) - set(WORDS))
    if unknown:
        shown = ", ".join(f"'{word[:50]}'" for word in unknown[:5])
        raise validation_error(f"{shown}: no such kind of event. Known are: {', '.join(WORDS)}.")
    found = {kind for word in asked for kind in GROUPS.get(word, (word,))}
    return [kind for kind in KINDS if kind in found]


def kinds_of(stored: list[str]) -> tuple[str, ...]:
    """The events to look at for a target that stored these."""
    return (*(stored or KINDS), DROPPED)
