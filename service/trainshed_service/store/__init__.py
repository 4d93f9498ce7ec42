"""The database: tables, sessions, migrations."""

from trainshed_service.store.database import Database, DatabaseClosed
from trainshed_service.store.migrate import migrate

__all__ = ["Database", "DatabaseClosed", "migrate"]
