"""Alembic migrations of Trainshed: one linear history for SQLite and PostgreSQL."""
