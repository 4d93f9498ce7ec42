"""Pages that keep themselves current: the same address answers a page, or as `text/event-stream` every change of it.

Invariants: a stream sends a page only where it differs from the one that the browser has (the id of an event is the
page's ETag); who looks is asked anew before every page, so nothing is shown after a session ended or a user lost a
right; a stream of a service that is about to end ends, and the browser comes back with the ETag that it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from trainshed_service.dashboard.pages import Pages, tag_of
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.rest import sse
from trainshed_service.services import Services
from trainshed_service.wire.errors import ApiError

Build = Callable[[Visitor], Awaitable[dict[str, Any]]]
"""What the template of a page gets, for this visitor, now."""

SHORTEST_SECONDS = 0.5
LONGEST_SECONDS = 2.0
"""Without an event of a job: waiting reasons, metrics and what other replicas do change without one."""
ENDED_SECONDS = 15.0


class Live:
    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

    async def answer(self, request: Request, visitor: Visitor, template: str, build: Build) -> Response:
        """The page, 304, or its stream. `is_over` in the context: little will change any more."""
        if "text/event-stream" in request.headers.get("accept", ""):
            await build(visitor)  # what is refused is answered as such
            return sse.stream(self._changes(visitor, template, build, request.headers.get("last-event-id")))
        return self._pages.live(request, template, visitor=visitor, **await build(visitor))

    async def _changes(self, visitor: Visitor, template: str, build: Build, known: str | None) -> AsyncIterator[str]:
        services = self._services
        quiet = 0.0
        while not services.nodes.is_draining:
            published = services.events.next_published()
            current = await self._still(visitor)
            if current is None:
                yield sse.event("gone", {})
                return
            try:
                context = await build(current)
            except ApiError as error:
                if error.status >= 500:
                    raise
                yield sse.event("gone", {"message": error.message})
                return
            html = bytes(self._pages.render(template, visitor=current, **context).body)
            tag = tag_of(html)
            if tag != known:
                known, quiet = tag, 0.0
                yield sse.event("page", {"html": html.decode()}, event_id=tag)
            elif quiet >= sse.KEEP_ALIVE_SECONDS:
                quiet = 0.0
                yield sse.KEEP_ALIVE
            longest = ENDED_SECONDS if context.get("is_over") else LONGEST_SECONDS
            await asyncio.sleep(SHORTEST_SECONDS)
            quiet += SHORTEST_SECONDS + await self._wait(published, longest - SHORTEST_SECONDS)

    async def _wait(self, published: asyncio.Event, most: float) -> float:
        """Until something was published, for `most` seconds or until the service is about to end; how long it was."""
        waited = 0.0
        while waited < most and not published.is_set() and not self._services.nodes.is_draining:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(published.wait(), min(LONGEST_SECONDS, most - waited))
            waited += min(LONGEST_SECONDS, most - waited)
        return waited

    async def _still(self, visitor: Visitor) -> Visitor | None:
        sessions = self._services.identity.sessions
        principal = await self._services.database.read(lambda session: sessions.authenticate(session, visitor.token))
        return None if principal is None else Visitor(principal, visitor.token, visitor.csrf)
