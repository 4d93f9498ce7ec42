"""Tags of resources, by ARN. The last value given for a key stands; a resource has at most 50."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from trainshed_service.store.tables import changed, tags
from trainshed_service.wire.errors import ApiError

MAX_TAGS = 50


def put_tags(session: Session, arn: str, values: Iterable[dict[str, Any]]) -> None:
    for tag in values:
        key, value = tag["Key"], tag.get("Value", "")
        here = (tags.c.resource_arn == arn) & (tags.c.key == key)
        if changed(session, update(tags).where(here).values(value=value)) == 0:
            session.execute(insert(tags).values(resource_arn=arn, key=key, value=value))
    count = session.scalar(select(func.count()).select_from(tags).where(tags.c.resource_arn == arn)) or 0
    if count > MAX_TAGS:
        raise ApiError(
            "ResourceLimitExceeded", f"A resource can have at most {MAX_TAGS} tags; {arn} would have {count}."
        )


def get_tags(session: Session, arn: str, after: str | None = None, limit: int | None = None) -> list[dict[str, str]]:
    """In order of their keys; those behind `after`."""
    query = select(tags.c.key, tags.c.value).where(tags.c.resource_arn == arn).order_by(tags.c.key)
    if after is not None:
        query = query.where(tags.c.key > after)
    if limit is not None:
        query = query.limit(limit)
    return [{"Key": row.key, "Value": row.value} for row in session.execute(query)]


def drop_tags(session: Session, arn: str, keys: Sequence[str] | None = None) -> None:
    """Remove these keys, or all."""
    statement = delete(tags).where(tags.c.resource_arn == arn)
    session.execute(statement if keys is None else statement.where(tags.c.key.in_(keys)))
