"""The pages that list what the installation has: nodes."""

from __future__ import annotations

from collections import Counter

from starlette.requests import Request
from starlette.responses import Response

from trainshed_service.dashboard import words
from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.rest import read_nodes
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services


class ListPages:
    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

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
