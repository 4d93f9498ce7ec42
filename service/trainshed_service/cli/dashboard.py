"""`trainshed dashboard`: a way into the pages without typing a key."""

from __future__ import annotations

import sys
from pathlib import Path

from trainshed_service.cli.connection import Connection


def print_link(folder: Path | None) -> None:
    """A link that logs its opener in, on standard output. Raises CommandError where the service does not answer."""
    sys.stdout.write(Connection(folder).post("/v1/login-links")["url"] + "\n")
