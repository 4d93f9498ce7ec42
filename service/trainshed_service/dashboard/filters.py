"""Which jobs a list shows, as its address says it: `?status=failed&status=stopped&role=trainer&tag=team=vision`.

Invariants: what is given more than once of one kind means *or*, different kinds mean *and*; an address that somebody
sends to somebody else shows the same filters; what is no filter is left out, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from trainshed_service.dashboard.words import FILTERS
from trainshed_service.jobs.states import JobState

MAX_VALUES = 20
MAX_TEXT = 256
SORTS = {"created": "Created", "changed": "Last changed", "name": "Name", "status": "Status"}


@dataclass(frozen=True)
class JobFilter:
    """`tags` are `key` or `key=value`; `roles` are names or ARNs; `since` and `until` are days (UTC), both included."""

    statuses: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    text: str = ""
    since: str = ""
    until: str = ""
    sort: str = "created"
    ascending: bool = False
    before: str | None = None

    @classmethod
    def of(cls, query: QueryParams) -> JobFilter:
        sort = query.get("sort", "created")
        return cls(
            statuses=tuple(word for word in _values(query, "status") if word in FILTERS),
            users=_values(query, "user"),
            roles=_values(query, "role"),
            tags=_values(query, "tag"),
            types=_values(query, "type"),
            text=query.get("q", "").strip()[:63],
            since=_day(query.get("since")),
            until=_day(query.get("until")),
            sort=sort if sort in SORTS else "created",
            ascending=query.get("order") == "asc",
            before=query.get("before"),
        )

    @property
    def states(self) -> list[JobState]:
        return [state for word in self.statuses for state in FILTERS[word]]

    @property
    def since_epoch(self) -> float | None:
        return _epoch(self.since) if self.since else None

    @property
    def until_epoch(self) -> float | None:
        """The first moment that is not wanted any more."""
        return _epoch(self.until) + timedelta(days=1).total_seconds() if self.until else None

    @property
    def more(self) -> int:
        """How many kinds of filters are set beside the status and the text."""
        kinds = (self.users, self.roles, self.tags, self.types, self.since, self.until)
        return sum(1 for each in kinds if each) + (self.sort != "created" or self.ascending)

    @property
    def is_empty(self) -> bool:
        return not (self.statuses or self.text or self.more)

    def pairs(self) -> list[tuple[str, str]]:
        """Name and value of each parameter, without the place in the pages."""
        found = [
            (name, value)
            for name, values in (
                ("status", self.statuses),
                ("user", self.users),
                ("role", self.roles),
                ("tag", self.tags),
                ("type", self.types),
            )
            for value in values
        ]
        found += [(name, value) for name, value in (("q", self.text), ("since", self.since)) if value]
        found += [("until", self.until)] if self.until else []
        found += [("sort", self.sort)] if self.sort != "created" else []
        return found + ([("order", "asc")] if self.ascending else [])

    def address(self, before: str | None = None) -> str:
        pairs = self.pairs() + ([("before", before)] if before else [])
        return "/jobs" + ("?" + urlencode(pairs) if pairs else "")

    def sorted_by(self, sort: str) -> JobFilter:
        """As a click on the heading `sort` orders: times newest first, words from A; a second click turns it."""
        if self.sort == sort:
            return replace(self, ascending=not self.ascending, before=None)
        return replace(self, sort=sort, ascending=sort in ("name", "status"), before=None)


def _values(query: QueryParams, name: str) -> tuple[str, ...]:
    given = (value.strip()[:MAX_TEXT] for value in query.getlist(name))
    return tuple(dict.fromkeys(value for value in given if value))[:MAX_VALUES]


def _day(text: str | None) -> str:
    """A date as its input sends it; empty for anything else."""
    try:
        day = datetime.strptime(text or "", "%Y-%m-%d")
    except ValueError:
        return ""
    return day.strftime("%Y-%m-%d") if 1970 <= day.year < 9999 else ""


def _epoch(day: str) -> float:
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
