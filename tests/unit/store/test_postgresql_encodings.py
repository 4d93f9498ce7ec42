"""Texts come back as they were from databases of every encoding that can hold them."""

import pytest
from sqlalchemy import text

from tests.support.postgres import PostgresServer
from trainshed_service.store import migrate
from trainshed_service.store.engine import make_engine


@pytest.mark.needs("postgres")
@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_texts_are_texts(postgres: PostgresServer, encoding: str):
    url = postgres.new_database(migrated=False, encoding=encoding)
    migrate(url)
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO meta (key, value) VALUES ('who', :who)"), {"who": "Grüße, 世界"})
        assert connection.scalar(text("SELECT value FROM meta WHERE key = 'who'")) == "Grüße, 世界"
    engine.dispose()
