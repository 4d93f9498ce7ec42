"""Which sharded-data-parallel degrees a world allows, and the sentence that refuses one and proposes others.

Invariant: a degree is valid exactly where it is a whole number that divides the world size; so partition groups of
`degree` consecutive ranks tile the world, and world / degree of them hold the same model. The service asks at submit
and the runtime at init, with the same words. Imports nothing, torch least of all.
"""

KEY = "sharded_data_parallel_degree"
_PROPOSED = 4


class InvalidDegree(ValueError):
    """The degree does not divide the world; `str` says so and names some that do: `proposals`, ascending."""

    def __init__(self, message: str, proposals: tuple[int, ...]) -> None:
        super().__init__(message)
        self.proposals = proposals


def valid_degrees(world_size: int) -> list[int]:
    """All divisors of `world_size`, ascending. ValueError below 1."""
    if world_size < 1:
        raise ValueError(f"a world has at least one rank, not {world_size}")
    small = [number for number in range(1, int(world_size**0.5) + 1) if world_size % number == 0]
    return sorted({*small, *(world_size // number for number in small)})


def nearest_degrees(world_size: int, degree: int, ranks_per_node: int | None = None) -> tuple[int, ...]:
    """The few valid degrees next to `degree`, ascending: the closest below and above (a larger one surely holds what
    the asked one would), and the closest that fills whole nodes, or divides one, where `ranks_per_node` is given."""
    valid = valid_degrees(world_size)
    by_distance = sorted(valid, key=lambda number: (abs(number - degree), -number))
    chosen = {number for number in (_last(valid, degree), _first(valid, degree)) if number is not None}
    if ranks_per_node:
        even = [number for number in by_distance if is_even(number, ranks_per_node)]
        chosen.update(even[:2])
    for number in by_distance:
        if len(chosen) >= min(3, len(valid)):
            break
        chosen.add(number)
    return tuple(sorted(chosen))[:_PROPOSED]


def is_even(degree: int, ranks_per_node: int) -> bool:
    """Whether every partition group has the same number of ranks on each of its nodes, so that a group either lies
    within a node or fills whole nodes. Others are valid, too; their groups straddle nodes and cost more bytes."""
    return degree % ranks_per_node == 0 or ranks_per_node % degree == 0


def check_degree(degree: object, world_size: int, ranks_per_node: int | None = None, world: str | None = None) -> int:
    """`degree` as an int where it is valid. InvalidDegree otherwise.

    `world`: how the world came about, for the sentence (`2 instances of 8 processes`).
    """
    ranks = f"{world_size} rank{'s' if world_size != 1 else ''}"
    described = (
        f"{world} {'makes' if world.startswith('1 ') else 'make'} {ranks}" if world else f"the world has {ranks}"
    )
    if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
        proposals = nearest_degrees(world_size, ranks_per_node or world_size, ranks_per_node)
        raise InvalidDegree(
            f"{KEY} is {degree!r}, but it must be a whole number from 1 to the number of ranks, and divide it: "
            f"{described}; {_offer(proposals)}.",
            proposals,
        )
    if world_size % degree == 0:
        return degree
    proposals = nearest_degrees(world_size, degree, ranks_per_node)
    reason = "is more than there are ranks" if degree > world_size else "does not divide the number of ranks"
    raise InvalidDegree(f"{KEY} {degree} {reason}: {described}; {_offer(proposals)}.", proposals)


def _offer(proposals: tuple[int, ...]) -> str:
    if len(proposals) == 1:
        return f"only {proposals[0]} is possible"
    return f"use {', '.join(map(str, proposals[:-1]))} or {proposals[-1]}"


def _last(numbers: list[int], limit: int) -> int | None:
    return max((number for number in numbers if number <= limit), default=None)


def _first(numbers: list[int], limit: int) -> int | None:
    return min((number for number in numbers if number >= limit), default=None)
