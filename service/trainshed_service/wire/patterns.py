"""The service models' patterns are Java regular expressions; here they become Python ones with the same meaning.

What differs is little: `.` stops at Java's line terminators, `\\d \\w \\s` are ASCII, `\\p{…}` names a class of
characters, a pattern must match the whole value. Only what occurs in the models is translated; anything else that
Python cannot compile fails loudly when the pattern is first used (a test compiles every pattern of our operations).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from itertools import groupby

_LINE_TERMINATORS = r"\n\r\x85\u2028\u2029"
_ASCII_CLASSES = {
    "Alnum": "a-zA-Z0-9",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Space": r" \t\n\x0b\f\r",
}
_TOKEN = re.compile(r"\\p\{(\w+)\}|\\u\{?([0-9a-fA-F]{4,6})\}?|\\.|\[\^?|\]|\.|&&", re.DOTALL)


@cache
def compile_pattern(java: str) -> re.Pattern[str]:
    """A pattern for `fullmatch`. Raises re.error or ValueError for what we cannot express."""
    return re.compile(_translate(java), re.ASCII)


def _translate(java: str) -> str:
    parts: list[str] = []
    position = 0
    in_class = False
    for token in _TOKEN.finditer(java):
        parts.append(java[position : token.start()])
        position = token.end()
        text = token.group()
        if token[1]:
            members = _members(token[1])
            parts.append(members if in_class else f"[{members}]")
        elif token[2]:
            parts.append(rf"\U{int(token[2], 16):08x}")
        elif text.startswith("["):
            if in_class:
                raise ValueError(f"a class within a class is not translated: {java}")
            in_class = True
            parts.append(text)
        elif text == "]":
            in_class = False
            parts.append(text)
        elif text == "." and not in_class:
            parts.append(f"[^{_LINE_TERMINATORS}]")
        elif text == "&&" and in_class:
            raise ValueError(f"an intersection of classes is not translated: {java}")
        else:
            parts.append(text)
    parts.append(java[position:])
    return "".join(parts)


def _members(name: str) -> str:
    return _ASCII_CLASSES[name] if name in _ASCII_CLASSES else _unicode_members(name)


@cache
def _category_runs() -> list[tuple[str, int, int]]:
    """(general category, first, last) of every run of characters that share one; all of them are looked at once."""
    runs: list[tuple[str, int, int]] = []
    start = 0
    for category, run in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        end = start + sum(1 for _ in run)
        runs.append((category, start, end - 1))
        start = end
    return runs


@cache
def _unicode_members(category: str) -> str:
    """All characters of a Unicode general category (`L`, `Nd` …), as ranges for a class."""
    ranges = [rf"\U{first:08x}-\U{last:08x}" for name, first, last in _category_runs() if name.startswith(category)]
    if not ranges:
        raise ValueError(f"unknown class of characters: {category}")
    return "".join(ranges)
