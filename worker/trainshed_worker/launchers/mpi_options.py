"""`custom_mpi_options` of the SDKs: what is honoured of them, and what is reported as ignored.

Honoured: `-x NAME=value` (set for every rank), `-x NAME` (the launcher's value of NAME for every rank), and
`--NCCL_DEBUG LEVEL`, which SageMaker's containers understand as `-x NCCL_DEBUG=LEVEL`.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainshed_worker.launchers.types import LaunchRefused
from trainshed_worker.protocol import FailureCause


@dataclass(frozen=True)
class MpiOptions:
    """`variables` for every rank; `ignored` are the option words that nothing acts on."""

    variables: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def notices(self) -> list[str]:
        if not self.ignored:
            return []
        return [f"These MPI options are ignored: {shlex.join(self.ignored)} (only -x NAME[=value] is acted on)."]


def parse(options: str | None, variables: Mapping[str, str]) -> MpiOptions:
    """Reads the option string; refuses an unbalanced quote and an `-x` without a name."""
    try:
        words = shlex.split(options or "")
    except ValueError as error:
        raise LaunchRefused(
            FailureCause.USER_INPUT, f"custom_mpi_options {options!r} cannot be read as shell words: {error}."
        ) from None
    found: dict[str, str] = {}
    ignored: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word in {"-x", "--x"}:
            if position == len(words) or not words[position].partition("=")[0]:
                raise LaunchRefused(
                    FailureCause.USER_INPUT, f"custom_mpi_options {options!r} has an -x without a variable's name."
                )
            name, has_value, value = words[position].partition("=")
            position += 1
            if has_value:
                found[name] = value
            elif name in variables:
                found[name] = variables[name]
            else:
                ignored += ["-x", name]
        elif word == "--NCCL_DEBUG" and position < len(words):
            found["NCCL_DEBUG"] = words[position]
            position += 1
        else:
            ignored.append(word)
    return MpiOptions(found, ignored)
