from tests.unit.jobs.conftest import clock, core, database_url, postgres

__all__ = ["clock", "core", "database_url", "postgres"]
