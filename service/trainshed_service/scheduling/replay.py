"""Runs recorded inputs of the planner again and compares the decisions.

    python -m trainshed_service.scheduling.replay FILE…

Exit code 0: all decisions are the same; 1: the first that is not is printed; 2: a file can't be read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainshed_service.providers import add_types
from trainshed_service.scheduling.codec import decision_record, event_of
from trainshed_service.scheduling.planner import step_all
from trainshed_service.scheduling.state import Policy, State


@dataclass(frozen=True)
class Replay:
    """`difference`: where decisions were not the same, in words; the steps end there."""

    steps: int
    decisions: int
    difference: str | None


def replay(path: Path) -> Replay:
    """Run a file again. ValueError where it is no recording; a last line that was cut off is left out."""
    steps = decisions = 0
    lines = _lines(path)
    header = next(lines, None)
    if header is None or "policy" not in header:
        raise ValueError(f"{path} does not begin as a recording of the planner's inputs")
    add_types(header.get("types") or {})
    state = State(Policy(**header["policy"]))
    for record in lines:
        events = [event_of(each) for each in record["events"]]
        state, made = step_all(state, events, record["now"])
        then, now = record.get("decisions", []), [decision_record(decision) for decision in made]
        steps += 1
        if then != now:
            same = [one == other for one, other in zip(then, now, strict=False)]
            place = same.index(False) if False in same else len(same)
            shown = [json.dumps(each[place]) if place < len(each) else "nothing" for each in (then, now)]
            return Replay(
                steps, decisions, f"line {steps + 1}, decision {place + 1}: recorded {shown[0]}, now {shown[1]}"
            )
        decisions += len(now)
    return Replay(steps, decisions, None)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return  # the process ended while it was written
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            yield record


def main(arguments: list[str]) -> int:
    if not arguments:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    same = True
    for name in arguments:
        try:
            found = replay(Path(name))
        except (OSError, ValueError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        end = "all as recorded" if found.difference is None else found.difference
        print(f"{name}: {found.steps} steps, {found.decisions} decisions: {end}")
        same = same and found.difference is None
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
