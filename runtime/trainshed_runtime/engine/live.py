"""Which units stay gathered between their uses in one optimizer step, under the cap on live parameters.

Invariant: what is kept, plus the two largest units that are not (one in use, one that is fetched ahead), has at most
`max_live_parameters` elements, unless the persistence threshold asks for more.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainshed_runtime.engine.config import EngineConfig
from trainshed_runtime.engine.fsdp2 import Unit


def choose_kept(units: Sequence[Unit], config: EngineConfig) -> None:
    """Decide for each unit. Where not all fit, the last are kept first: their backward passes come soonest."""
    persistent = [unit for unit in units if unit.largest < config.persistence_threshold]
    others = [unit for unit in units if unit not in persistent]
    room = config.max_live_parameters - sum(unit.elements for unit in persistent)
    kept = others if sum(unit.elements for unit in others) <= room else _fitting(others, room)
    for unit in units:
        unit.keep(unit in persistent or unit in kept)


def _fitting(units: Sequence[Unit], room: int) -> list[Unit]:
    kept: list[Unit] = []
    for unit in reversed(units):
        rest = [other for other in units if other not in kept and other is not unit]
        working = sum(sorted((other.elements for other in rest), reverse=True)[:2])
        if sum(found.elements for found in kept) + unit.elements + working <= room:
            kept.append(unit)
    return kept
