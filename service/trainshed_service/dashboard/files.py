"""Inputs and artifacts of a job: what lies at their places in S3, and links that download it.

Invariants: the object store is asked in the name of the person who looks, signed with a key of theirs, so they see and
get what their rights allow and nothing else; a link lives for minutes; no secret leaves the service.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import httpx
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from sqlalchemy import or_, select
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from trainshed_service.dashboard.pages import Pages
from trainshed_service.dashboard.visitor import Visitor
from trainshed_service.identity import KeyRecord
from trainshed_service.jobs.spec import output_base, split_s3_uri
from trainshed_service.rest import calls
from trainshed_service.rest.auth import Caller
from trainshed_service.services import Services
from trainshed_service.store.tables import access_keys
from trainshed_service.wire.errors import ApiError

LINK_SECONDS = 300
MOST = 500
_NS = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_NO_KEY = "Downloads are signed with an access key of yours, and you have none. Make one: trainshed keys create"


@dataclass(frozen=True)
class Place:
    """Something that a job reads or writes. `uri` is an S3 prefix."""

    name: str
    uri: str
    what: str


@dataclass(frozen=True)
class Entry:
    key: str
    name: str
    size: int
    modified: str


class FilesPage:
    def __init__(self, services: Services, pages: Pages) -> None:
        self._services = services
        self._pages = pages

    async def page(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs/<name>/files?of=<place>."""
        name = request.path_params["name"]
        found = places(await self._job(visitor, name))
        place = _named(found, request.query_params.get("of", found[0].name))
        bucket, prefix = split_s3_uri(place.uri)
        error, entries, is_cut = "", list[Entry](), False
        try:
            entries, is_cut = await self._listed(visitor, bucket, prefix)
        except ApiError as refused:
            error = refused.message
        return self._pages.render(
            "files.html",
            visitor=visitor,
            name=name,
            places=found,
            place=place,
            entries=entries,
            is_cut=is_cut,
            error=error,
            most=MOST,
        )

    async def download(self, request: Request, visitor: Visitor) -> Response:
        """GET /jobs/<name>/download?of=<place>&key=<key>: on to the object, by a link that lives for minutes."""
        name = request.path_params["name"]
        place = _named(places(await self._job(visitor, name)), request.query_params.get("of", ""))
        bucket, prefix = split_s3_uri(place.uri)
        key = request.query_params.get("key") or prefix
        if not key.startswith(prefix):
            raise ApiError("ValidationException", f"The key is not below {place.uri}.", 400)
        saved = {
            "response-content-disposition": f"attachment; filename*=UTF-8''{quote(key.rpartition('/')[2], safe='')}"
        }
        base = self._services.settings.resolved_public_url
        return RedirectResponse(await self._signed(visitor, base, f"/{bucket}/{quote(key, safe='/~')}", saved), 303)

    async def _job(self, visitor: Visitor, name: str) -> dict[str, Any]:
        caller = Caller(visitor.principal, self._services, b"")
        return await calls.call(caller, "DescribeTrainingJob", {"TrainingJobName": name})

    async def _listed(self, visitor: Visitor, bucket: str, prefix: str) -> tuple[list[Entry], bool]:
        """At most `MOST` objects, and whether there are more. ApiError with the store's own words."""
        wanted = {"list-type": "2", "prefix": prefix, "max-keys": str(MOST)}
        url = await self._signed(visitor, self._services.settings.resolved_gateway_url, f"/{bucket}", wanted)
        try:
            async with httpx.AsyncClient(timeout=15, trust_env=False) as client:
                answer = await client.get(url)
        except httpx.TransportError:
            raise ApiError("ServiceUnavailable", "The object store cannot be reached now. Try again.", 503) from None
        root = await asyncio.to_thread(_parsed, answer.content)
        if answer.status_code != 200:
            raise ApiError("AccessDenied", root.findtext("Message") or f"S3 answered {answer.status_code}.", 403)
        entries = [
            Entry(
                key=node.findtext(f"{_NS}Key") or "",
                name=(node.findtext(f"{_NS}Key") or "").removeprefix(prefix.rpartition("/")[0] + "/"),
                size=int(node.findtext(f"{_NS}Size") or 0),
                modified=node.findtext(f"{_NS}LastModified") or "",
            )
            for node in root.iter(f"{_NS}Contents")
        ]
        return entries, root.findtext(f"{_NS}IsTruncated") == "true"

    async def _signed(self, visitor: Visitor, base: str, path: str, query: dict[str, str]) -> str:
        key = await self._services.database.read(lambda session: self._key(session, visitor))
        if key is None:
            raise ApiError("AccessDenied", _NO_KEY, 403)
        request = AWSRequest("GET", f"{base.rstrip('/')}{path}?{urlencode(query, quote_via=quote)}")
        credentials = Credentials(key.access_key_id, key.secret)
        S3SigV4QueryAuth(credentials, "s3", self._services.settings.region, expires=LINK_SECONDS).add_auth(request)
        return str(request.url)

    def _key(self, session: Session, visitor: Visitor) -> KeyRecord | None:
        """A key of the visitor's own that can be used now."""
        now = self._services.clock.now()
        found = session.scalars(
            select(access_keys.c.id)
            .where(
                access_keys.c.user_id == visitor.principal.user_id,
                access_keys.c.attempt_id.is_(None),
                access_keys.c.active.is_(True),
                or_(access_keys.c.expires_at.is_(None), access_keys.c.expires_at > now + LINK_SECONDS),
            )
            .order_by(access_keys.c.created_at)
            .limit(1)
        ).first()
        return None if found is None else self._services.identity.lookup_key(session, found)


def places(job: dict[str, Any]) -> list[Place]:
    """Where a job writes and reads, its model first. An artifact that is not there yet is listed all the same."""
    found = [Place("model", job["ModelArtifacts"]["S3ModelArtifacts"], "The model")]
    found.append(Place("output", output_base(job), "All that it stored"))
    checkpoints = (job.get("CheckpointConfig") or {}).get("S3Uri")
    if checkpoints:
        found.append(Place("checkpoints", checkpoints, "Checkpoints"))
    for channel in job.get("InputDataConfig") or []:
        source = (channel.get("DataSource") or {}).get("S3DataSource")
        if source:
            found.append(Place(f"input:{channel['ChannelName']}", source["S3Uri"], f"Input {channel['ChannelName']}"))
    return [place for place in found if place.uri.startswith("s3://")]


def _named(found: list[Place], name: str) -> Place:
    for place in found:
        if place.name == name:
            return place
    raise ApiError("NotFound", "The job has no such place in S3.", 404)


def _parsed(content: bytes) -> ElementTree.Element:
    """Our own gateway's XML; anything else is an empty answer."""
    try:
        return ElementTree.fromstring(content)
    except ElementTree.ParseError:
        return ElementTree.Element("Error")
