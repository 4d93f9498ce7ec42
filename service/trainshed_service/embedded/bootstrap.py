"""Before any part starts: the newest schema, and an account with an admin key, a default role and an agents' token.

A process of its own (`plan.BOOTSTRAP`), so that the supervisor needs no database. Invariant: running it again changes
nothing that already works; what it writes into the home's configuration is what the database holds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from trainshed_service.clock import SystemClock
from trainshed_service.embedded.home import Home, HomeConfig, UpError, write_private
from trainshed_service.identity import IdentityService
from trainshed_service.settings import Settings
from trainshed_service.store import Database, migrate
from trainshed_service.store.models import User


def main() -> int:
    """Fill the identity into the configuration of the home that the only argument names."""
    home = Home(Path(sys.argv[1]))
    try:
        with home.changing():
            home.write(bootstrap(home, home.read()))
    except UpError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def bootstrap(home: Home, config: HomeConfig) -> HomeConfig:
    """The configuration with the identity filled in. Also writes the file from which the agent reads its token.

    Raises UpError where a database does not answer.
    """
    settings = Settings(home=home.folder)
    for url in dict.fromkeys((settings.resolved_database_url, settings.resolved_logs_database_url)):
        try:
            migrate(url)
        except OperationalError as error:
            raise UpError(f"the database {make_url(url).render_as_string()} cannot be used: {error.orig}") from error
    identity = IdentityService(home.folder, SystemClock())
    database = Database(settings.resolved_database_url)
    try:
        made = database.write_sync(
            lambda session: identity.bootstrap(session, config.account_id or None, settings.enrollment_token or None)
        )
        token = config.token
        if not token or database.read_sync(lambda session: identity.authenticate_bearer(session, token)) is None:
            token = database.write_sync(
                lambda session: identity.create_bearer_token(
                    session, session.scalars(select(User.id).where(User.name == "admin")).one(), "trainshed up"
                )
            )
    finally:
        database.close()
    write_private(home.enrollment_path, made.enrollment_token)
    return config.model_copy(
        update={
            "account_id": made.account_id,
            "access_key_id": made.admin.access_key_id,
            "secret_access_key": made.admin.secret_access_key,
            "role_arn": made.role_arn,
            "enrollment_token": made.enrollment_token,
            "token": token,
        }
    )
