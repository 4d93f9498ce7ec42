"""Finding lines in a range of a job's log: by text, by a regular expression, or those that look like errors.

Invariants: one call looks at no more than `MAX_LOOKED` lines and for no longer than about `MAX_SECONDS`, then says
where to go on; no expression of a user holds up the service, since a match of one line is given `LINE_SECONDS`;
terminal codes are no part of the text.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import regex
from sqlalchemy.orm import Session

from trainshed_service.logs import streams, telling
from trainshed_service.logs.errors import InvalidPattern
from trainshed_service.logs.merge import Merged
from trainshed_service.logs.window import Places, Range, WindowLine, parts_of

MAX_LOOKED = 50_000
MAX_SECONDS = 1.5
LINE_SECONDS = 0.25
MAX_CONTEXT = 20
MAX_PATTERN = 500
_CODES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

Matches = Callable[[str], bool]


@dataclass(frozen=True)
class Found:
    """`matching` are the indexes of those of `lines` that match; `after` is where to go on, null at the end."""

    lines: list[WindowLine]
    matching: list[int]
    after: int | None


def by_text(text: str) -> Matches:
    """Lines that contain `text`, whatever the case."""
    wanted = text.lower()
    return lambda line: wanted in _plain(line).lower()


def by_regex(pattern: str) -> Matches:
    """Lines in which the expression matches, whatever the case unless it says so itself (`(?-i:…)`). InvalidPattern."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidPattern(f"An expression has at most {MAX_PATTERN} characters.")
    try:
        compiled = regex.compile(pattern, regex.IGNORECASE)
    except regex.error as error:
        raise InvalidPattern(f"This is no regular expression: {error}.") from None

    def matches(line: str) -> bool:
        try:
            return compiled.search(_plain(line), timeout=LINE_SECONDS, concurrent=True) is not None
        except TimeoutError:
            raise InvalidPattern("The expression takes too long on a line of this log; make it simpler.") from None

    return matches


def by_error(line: str) -> bool:
    """Lines that say that something went wrong."""
    return telling.is_error(_plain(line))


def find(
    session: Session, job_name: str, within: Range, matches: Matches, offset: int, limit: int, context: int
) -> Found:
    """Up to `limit` matches from place `offset` of the range on, with `context` lines around each. InvalidToken."""
    every = streams.of_job(session, job_name)
    if not every:
        return Found([], [], None)
    parts, _ = parts_of(every, within)
    by_id = {part.stream.id: part.stream for part in parts}
    places = Places(session, parts)
    start = max(0, offset - context)
    before: deque[tuple[int, Merged]] = deque(maxlen=context)
    kept: dict[int, Merged] = {}
    matching: list[int] = []
    shown_until = -1
    until = time.monotonic() + MAX_SECONDS
    after: int | None = None
    for index, item in enumerate(places.forward(start), start):
        done = after is not None
        if index >= offset and not done and matches(item.line.text):
            matching.append(index)
            kept.update(before)
            kept[index] = item
            shown_until = index + context
        elif index <= shown_until:
            kept[index] = item
        elif done:
            break
        before.append((index, item))
        looked = index + 1 - offset
        is_enough = len(matching) >= limit or looked >= MAX_LOOKED
        if not done and (is_enough or (index & 255 == 0 and time.monotonic() > until)):
            after = index + 1
    if after is not None and after >= places.total:
        after = None
    lines = [
        WindowLine(
            index,
            by_id[item.stream_id].host,
            by_id[item.stream_id].name,
            item.position,
            item.line.ms,
            item.line.text,
        )
        for index, item in sorted(kept.items())
    ]
    return Found(lines, matching, after)


def _plain(text: str) -> str:
    return _CODES.sub("", text) if "\x1b" in text else text
