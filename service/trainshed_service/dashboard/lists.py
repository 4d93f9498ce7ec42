"""The pages that list: jobs and nodes."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.reading import JobRow, count_states, read_jobs
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.jobs.states import JobState
from trainshed_service.rest import read_nodes
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services

MAX_TEXT = 63


class ListPages:
    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

    async def jobs(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs?status=…&status=…&q=…&before=…: all filters are in the address."""
        caller = Caller(visitor.principal, self._services, b"")
        caller.require("sagemaker:ListTrainingJobs")
        query = request.query_params
        chosen = [word for word in dict.fromkeys(query.getlist("status")) if word in words.FILTERS]
        text = query.get("q", "").strip()[:MAX_TEXT]
        before = query.get("before")
        states = [state for word in chosen for state in words.FILTERS[word]]
        database = self._services.database
        found = await database.read(lambda session: read_jobs(session, states, text, before, caller.reach))
        counts = await database.read(lambda session: count_states(session, caller.reach))
        return self._pages.live(
            request,
            "jobs.html",
            visitor=visitor,
            now=self._services.clock.now(),
            rows=[(row, words.STATES[row.state], self._reason(row)) for row in found.rows],
            older=_address(chosen, text, found.older) if found.older else None,
            newest=_address(chosen, text, None) if before else None,
            filters=[(word, sum(counts.get(state, 0) for state in words.FILTERS[word])) for word in words.FILTERS],
            chosen=chosen,
            text=text,
            total=sum(count for state, count in counts.items() if state is not JobState.DELETING),
        )

    async def nodes(self, request: Request, visitor: Visitor) -> Response:
        """GET /nodes: every slot, its state, the job on it."""
        caller = Caller(visitor.principal, self._services, b"")
        caller.require("trainshed:ListNodes")
        found = await self._services.database.read(lambda session: read_nodes(session, caller.reach))
        counts = Counter(node["state"] for node in found)
        return self._pages.live(
            request,
            "nodes.html",
            visitor=visitor,
            nodes=found,
            counts=[(state, counts[state]) for state in words.NODE_TONES if counts[state]],
            tones=words.NODE_TONES,
        )

    def _reason(self, row: JobRow) -> str:
        waiting = self._services.nodes.scheduler.explain(row.id) if row.state is JobState.QUEUED else None
        return words.reason(row.state, waiting=waiting, failure=row.failure_reason, stop_reason=row.stop_reason)


def _address(chosen: list[str], text: str, before: str | None) -> str:
    pairs = [("status", word) for word in chosen]
    pairs += [("q", text)] if text else []
    pairs += [("before", before)] if before else []
    return "/jobs" + ("?" + urlencode(pairs) if pairs else "")
