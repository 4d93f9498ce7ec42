from tests.support.postgres import database_url, postgres

__all__ = ["database_url", "postgres"]
