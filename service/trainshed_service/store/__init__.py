"""The database: tables, sessions, migrations."""

from trainshed_service.store.database import Database, DatabaseClosed

__all__ = ["Database", "DatabaseClosed"]
