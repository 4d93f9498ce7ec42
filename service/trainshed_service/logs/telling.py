"""Which lines of a log tell why something went wrong: by what errors look like in practice, without a model of any
one framework.

Invariant: every pattern is linear in the length of a line, which is cut to `MOST` characters first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 4_000
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|fatal|panic|critical|segfault|segmentation fault|aborted|killed|oom"
    r"|out of memory|cannot allocate|no space left|permission denied|not found|no such file|failed|failure"
    r"|timed out|refused|unreachable|sig(?:kill|segv|abrt|bus))\b|(?:Error|Exception|Warning: NaN)(?:\b|:)",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"\b(?:0|no|without|zero) (?:errors?|failures?|failed)\b|\b(?:error|failure)s?[ =:]+0(?:\.0*)?\b"
    r"|(?:error|loss|failed)[_a-z]*=[-+0-9.e]+|\bon_?error\b|ignore_?errors?|error[_ ]rate|errors=",
    re.IGNORECASE,
)
_STEMS = (
    *("error", "exception", "traceback", "fatal", "panic", "critical", "segfault", "segmentation", "abort", "killed"),
    *("oom", "memory", "allocate", "space left", "denied", "not found", "no such", "fail", "timed out", "refused"),
    *("unreachable", "sigkill", "sigsegv", "sigabrt", "sigbus", "interrupt", "exit", "warning: nan"),
)
"""A line that holds none of these is no error: most lines are ruled out without an expression."""
_HARD = re.compile(r"^\s*(?:[\w.]+(?:Error|Exception|Interrupt|Exit)\b(?::|$)|Traceback \(most recent call last\))")
_FRAME = re.compile(r'^\s+(?:File "|at |\.\.\.|\^|~)|^\s*\[rank\d+\]:')


def is_error(text: str) -> bool:
    """Whether a line says that something went wrong."""
    text = text[:MOST]
    lower = text.lower()
    if not any(stem in lower for stem in _STEMS):
        return False
    if _HARD.match(text):
        return True
    return bool(_ERROR.search(text)) and not _HARMLESS.search(text)


def telling(texts: Sequence[str], most: int = 12) -> list[int]:
    """Indexes of the lines to show, ascending: the last traceback to its exception's line, else the last errors."""
    errors = [index for index, text in enumerate(texts) if is_error(text)]
    if not errors:
        return []
    starts = [index for index, text in enumerate(texts) if "Traceback (most recent call last)" in text[:MOST]]
    chosen: set[int] = set()
    if starts:
        start = starts[-1]
        chosen.add(start)
        for index in range(start + 1, len(texts)):
            chosen.add(index)
            if _HARD.match(texts[index]) and index > start + 1:
                break
            if index - start > 60:
                break
    kept = sorted(chosen)
    if len(kept) > most:  # the last frames and the exception say most
        kept = [kept[0], *kept[-(most - 1) :]]
    room = most - len(kept)
    others = [index for index in errors if index not in chosen]
    return sorted([*kept, *(others[-room:] if room > 0 else [])])
