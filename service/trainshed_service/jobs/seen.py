"""Which of these job names a caller may see: for what is kept elsewhere under the name of its job (lines, metrics).

Invariant: a name of which the control database knows no job in reach is not seen, also where lines of it are left.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, select

from trainshed_service.jobs.reach import Reach
from trainshed_service.store import Database
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import jobs

_OWNER = Prepared(select(jobs.c.user_id).where(jobs.c.name == bindparam("wanted")))
_AT_ONCE = 500


async def sees(database: Database, reach: Reach, name: str) -> bool:
    """Whether the job of this name is in reach. With everybody's in reach also of a job that is not there."""
    if reach.owner is None:
        return True
    found = await database.look(_OWNER, {"wanted": name})
    return bool(found) and reach.refusal(found[0][0]) is None


async def seen_of(database: Database, reach: Reach, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that are in reach."""
    wanted = sorted(set(names))
    if reach.owner is None:
        return frozenset(wanted)
    found: set[str] = set()
    for start in range(0, len(wanted), _AT_ONCE):
        part = wanted[start : start + _AT_ONCE]
        query = select(jobs.c.name).where(jobs.c.name.in_(part), *reach.conditions())
        found.update(await database.read(lambda session: session.scalars(query).all()))  # noqa: B023
    return frozenset(found)
