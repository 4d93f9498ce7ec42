"""Metrics of a job: MetricDefinitions' patterns over its log lines, and samples of what its instance uses.

A value counts where the pattern's first group is a finite number; other matches are counted, so that a user can be told
"matched 3 lines, 1 was a number". A pattern that runs into its time limit too often is switched off with a notice: a
user's regex must not hold up the log.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from trainshed_worker.protocol import LogLine, MetricPoint

LINE_TIMEOUT = 0.05
"""Seconds that one pattern may take for one line."""
MAX_TIMEOUTS = 5
MAX_LINE = 10_000
"""Characters of a line that patterns look at."""


@dataclass
class Definition:
    """One MetricDefinition and how it fared."""

    name: str
    pattern: Any
    matched: int = 0
    parsed: int = 0
    timeouts: int = 0
    disabled: str | None = None


def definitions(request: Mapping[str, Any]) -> list[Definition]:
    """The request's MetricDefinitions; a pattern that does not compile is kept, disabled with the reason."""
    found: list[Definition] = []
    for item in (request.get("AlgorithmSpecification") or {}).get("MetricDefinitions") or []:
        try:
            pattern = regex.compile(item["Regex"])
        except regex.error as error:
            found.append(Definition(item["Name"], None, disabled=f"its pattern is not valid ({error})"))
            continue
        found.append(Definition(item["Name"], pattern))
    return found


def numeric(text: str) -> float | None:
    """A finite number, else None (`nan`, `inf`, words)."""
    try:
        value = float(text.strip())
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def scan(known: Sequence[Definition], lines: Iterable[LogLine]) -> list[MetricPoint]:
    """Points of these lines. Blocking; the matching itself lets other threads run."""
    points: list[MetricPoint] = []
    active = [definition for definition in known if definition.disabled is None]
    if not active:
        return points
    for line in lines:
        text = line.text[:MAX_LINE]
        for definition in active:
            if definition.disabled is None:
                value = _value(definition, text)
                if value is not None:
                    points.append(
                        MetricPoint(name=definition.name, value=value, timestamp_ms=line.timestamp_ms, seq=line.seq)
                    )
    return points


def _value(definition: Definition, text: str) -> float | None:
    try:
        match = definition.pattern.search(text, timeout=LINE_TIMEOUT, concurrent=True)
    except TimeoutError:
        definition.timeouts += 1
        if definition.timeouts >= MAX_TIMEOUTS:
            definition.disabled = f"its pattern took more than {LINE_TIMEOUT * 1000:.0f} ms on {MAX_TIMEOUTS} lines"
        return None
    if match is None:
        return None
    definition.matched += 1
    text = match.group(1) if match.re.groups else match.group(0)
    value = numeric(text) if text is not None else None
    if value is not None:
        definition.parsed += 1
    return value


def notices(known: Iterable[Definition]) -> list[str]:
    """Sentences for the user about definitions that did not give what was hoped."""
    found: list[str] = []
    for item in known:
        if item.disabled is not None:
            found.append(f"metric {item.name!r} was switched off: {item.disabled}")
        elif item.matched != item.parsed:
            found.append(f"metric {item.name!r}: regex matched {item.matched}, parsed {item.parsed}")
    return found
