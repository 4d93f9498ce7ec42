"""Bring a database to the newest schema. The control database and the logs database share one linear history.

Run by the launcher before any other process opens the database; running it again changes nothing.
"""

from __future__ import annotations

from importlib.resources import as_file, files


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the database at the SQLAlchemy `url`, creating it where the engine can."""
    from alembic import command  # here: only the launcher migrates, and it takes long to import
    from alembic.config import Config

    with as_file(files("trainshed_migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["url"] = url
        command.upgrade(config, revision)
