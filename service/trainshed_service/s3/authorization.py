"""Who calls, and whether all that the operation touches is allowed to them.

Invariants: users may do everything to objects and buckets; a job may do only what its policy allows, for every object
that the request reads or writes, under the name as sent and under the name as the store keeps it. A request of a job
that the gateway cannot map to permissions is refused. A key that was revoked is refused after at most
`CACHE_SECONDS`, in this process, whatever else happens.
"""

from __future__ import annotations

import xml.parsers.expat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainshed_service.identity import IdentityService, KeyRecord, Principal, allows
from trainshed_service.s3.answers import access_denied
from trainshed_service.s3.operations import Access, Operation
from trainshed_service.s3.target import checked_key, stored_key
from trainshed_service.store import Database
from trainshed_service.wire.errors import ApiError

CACHE_SECONDS = 1.0
MAX_DELETED_KEYS = 1000
_ABOUT_THE_BUCKET = frozenset({"HeadBucket", "GetBucketLocation"})


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal as this module sees it."""

    principal: Principal

    @property
    def name(self) -> str:
        return f"{self.principal.kind}/{self.principal.name}"

    @property
    def unrestricted(self) -> bool:
        return self.principal.kind == "user"


@dataclass(frozen=True, slots=True)
class Found:
    record: KeyRecord
    caller: Caller


class CallerDirectory:
    """Keys by their id, from the control database through a cache of `CACHE_SECONDS`. It only reads."""

    def __init__(self, identity: IdentityService, database: Database) -> None:
        self._identity = identity
        self._database = database

    async def find(self, access_key_id: str) -> Found | None:
        record = await self._identity.find_key(self._database, access_key_id)
        return None if record is None else Found(record, Caller(record.principal))


def authorize(caller: Caller, operation: Operation) -> None:
    """Raise ApiError(AccessDenied) unless every access of the operation is allowed."""
    if caller.unrestricted:
        return
    if not operation.accesses:
        raise access_denied()
    if operation.name in _ABOUT_THE_BUCKET and _names_bucket(caller.principal.policy, operation.accesses[0].bucket):
        return
    if not all(_allowed(caller.principal, access) for access in operation.accesses):
        raise access_denied()


def authorize_deletion(caller: Caller, bucket: str, document: bytes) -> None:
    """DeleteObjects: every key in the body must be allowed, else nothing is deleted."""
    keys = keys_to_delete(document)
    if caller.unrestricted:
        return
    if not all(_allowed(caller.principal, Access("s3:DeleteObject", bucket, key)) for key in keys):
        raise access_denied()


def _allowed(principal: Principal, access: Access) -> bool:
    if access.key is None:
        context = {} if access.prefix is None else {"s3:prefix": access.prefix}
        return allows(principal, access.action, access.resource, context)
    if not allows(principal, access.action, access.resource):
        return False
    kept = stored_key(access.key)
    return kept == access.key or allows(principal, access.action, Access("", access.bucket, kept).resource)


def _names_bucket(policy: Mapping[str, Any] | None, bucket: str) -> bool:
    """Whether the policy allows anything at all in this bucket: then the bucket's existence is no secret."""
    arn = f"arn:aws:s3:::{bucket}"
    for statement in (policy or {}).get("Statement", ()):
        resources = statement.get("Resource", ())
        listed = [resources] if isinstance(resources, str) else resources
        if statement.get("Effect") == "Allow" and any(r == arn or r.startswith(arn + "/") for r in listed):
            return True
    return False


def keys_to_delete(document: bytes) -> list[str]:
    """The keys in a DeleteObjects body. Raises ApiError(MalformedXML); a document type is refused unread."""
    keys: list[str] = []
    path: list[str] = []
    text: list[str] = []

    def start(name: str, _attributes: dict[str, str]) -> None:
        path.append(name.rpartition(":")[2])
        text.clear()

    def end(_name: str) -> None:
        if path == ["Delete", "Object", "Key"]:
            keys.append("".join(text))
        path.pop()

    def refuse(*_: object) -> None:
        raise ApiError("MalformedXML", "The XML you provided was not well-formed.", 400)

    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(document, True)
    except xml.parsers.expat.ExpatError:
        refuse()
    if not keys or len(keys) > MAX_DELETED_KEYS:
        refuse()
    return [checked_key(key) for key in keys]
