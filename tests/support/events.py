"""The events that an installation has recorded, read beside the running service."""

from __future__ import annotations

from typing import Any

from sqlalchemy import NullPool, create_engine, select

from trainshed_service.store.tables import events

_COLUMNS = (events.c.id, events.c.at, events.c.kind, events.c.subject, events.c.message, events.c.data)


def recorded(url: str, kind: str, subject: str | None = None) -> list[dict[str, Any]]:
    """Events of one kind (and subject) in the database at `url`, oldest first."""
    found = select(*_COLUMNS).where(events.c.kind == kind).order_by(events.c.id)
    if subject is not None:
        found = found.where(events.c.subject == subject)
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return [dict(row) for row in connection.execute(found).mappings()]
