"""Alembic environment: one connection from the URL that `trainshed_service.store.migrate` hands over.

On PostgreSQL an advisory lock makes two processes that migrate at once take turns.
"""

from alembic import context
from sqlalchemy import text

from trainshed_service.store.database import make_engine
from trainshed_service.store.models import Base

_LOCK = 7_261_736_865_644


def _run() -> None:
    engine = make_engine(context.config.attributes["url"], readers=1)
    try:
        with engine.connect().execution_options(trainshed_write=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            context.configure(
                connection=connection,
                target_metadata=Base.metadata,
                render_as_batch=connection.dialect.name == "sqlite",
                compare_type=True,
                transactional_ddl=True,
            )
            context.run_migrations()
    finally:
        engine.dispose()


_run()
