"""The events that an installation has recorded, read beside the running service."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from sqlalchemy.engine import make_url


def recorded(url: str, kind: str, subject: str | None = None) -> list[dict[str, Any]]:
    """Events of one kind (and subject) in the SQLite database at `url`, oldest first."""
    path = make_url(url).database
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    try:
        rows = connection.execute(
            "SELECT id, at, kind, subject, message, data FROM events WHERE kind = ? AND (? IS NULL OR subject = ?) "
            "ORDER BY id",
            (kind, subject, subject),
        ).fetchall()
    finally:
        connection.close()
    names = ("id", "at", "kind", "subject", "message", "data")
    return [{**dict(zip(names, row, strict=True)), "data": json.loads(row[5])} for row in rows]
