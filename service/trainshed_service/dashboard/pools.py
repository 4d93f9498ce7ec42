"""Warm pools: until when each is kept, who used it last, what a job needs to get it; extending and ending.

A pool is named by the job that it was kept after: that is how the APIs change it, too. One that is out of the visitor's
reach is shown without its name and can't be changed.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard.live import Live
from trainshed_service.dashboard.security import Csrf, read_form
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.pools.explain import list_pools
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services
from trainshed_service.wire.errors import ApiError

PERIODS = (300, 900, 1800, 3600)
Pool = dict[str, Any]


class PoolsPages:
    def __init__(self, services: Services, live: Live, csrf: Csrf) -> None:
        self._services = services
        self._live = live
        self._csrf = csrf

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /pools."""

        async def build(visitor: Visitor) -> dict[str, Any]:
            pools = await self._pools(visitor)
            return {
                "warm": [pool for pool in pools if pool["status"] == "Available"],
                "coming": [pool for pool in pools if pool["status"] == "InUse" and pool["keepAliveSeconds"]],
            }

        return await self._live.answer(request, visitor, "pools.html", build)

    async def one(self, request: Request, visitor: Visitor) -> Response:
        """GET /pools/<job>: one pool, with what can be done about it."""
        name = request.path_params["name"]

        async def build(visitor: Visitor) -> dict[str, Any]:
            found = [pool for pool in await self._pools(visitor) if pool["job"] == name]
            if not found:
                why = "it was taken by another job, its time was over, or it was ended"
                raise ApiError("NotFound", f"There is no warm pool of {name} any more: {why}.", 404)
            most = self._services.settings.max_keep_alive_seconds
            return {
                "pool": found[0],
                "name": name,
                "needed": json.dumps(members(found[0]["fields"]), indent=2, ensure_ascii=False),
                "most": most,
                "periods": [seconds for seconds in PERIODS if seconds <= most] or [most],
            }

        return await self._live.answer(request, visitor, "pool.html", build)

    async def extend(self, request: Request, visitor: Visitor) -> Response:
        """POST /pools/<job>/extend with `seconds`, counted from now."""
        form = await read_form(request)
        self._csrf.check(request, visitor.token, form)
        text = form.get("seconds", "").strip()
        if not text.isascii() or not text.isdigit() or not 1 <= len(text) <= 7 or int(text) == 0:
            raise ApiError("ValidationException", "The period is a number of seconds, at least 1.", 400)
        await self._keep(visitor, request.path_params["name"], int(text))
        return RedirectResponse(f"/pools/{request.path_params['name']}", 303)

    async def end(self, request: Request, visitor: Visitor) -> Response:
        """POST /pools/<job>/end."""
        self._csrf.check(request, visitor.token, await read_form(request))
        await self._keep(visitor, request.path_params["name"], 0)
        return RedirectResponse("/pools", 303)

    async def _keep(self, visitor: Visitor, name: str, seconds: int) -> None:
        update = {"TrainingJobName": name, "ResourceConfig": {"KeepAlivePeriodInSeconds": seconds}}
        await calls.call(Caller(visitor.principal, self._services, b""), "UpdateTrainingJob", update)

    async def _pools(self, visitor: Visitor) -> list[Pool]:
        caller = Caller(visitor.principal, self._services, b"")
        caller.require("trainshed:ListPools")
        return await self._services.database.read(lambda session: list_pools(session, caller.reach))


def members(fields: dict[str, Any]) -> dict[str, Any]:
    """The members of a CreateTrainingJob request that match these fields; what is their default is left out."""
    found: dict[str, Any] = {}
    for path, value in fields.items():
        if value in (None, [], False):
            continue
        *outer, last = path.split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = value
    return found
