"""`python -m trainshed_service.embedded --home DIR`: the supervisor. Started by `trainshed up`.

With `--ready-fd N` it writes `ready` to that descriptor when everything answers, or the reason why it does not come up,
and closes it; the starter so learns of success, failure and sudden death without polling.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from trainshed_service.embedded.home import Home, HomeConfig, HomeError, UpError
from trainshed_service.embedded.supervisor import Supervisor


def set_up_logging(home: Home, *, console: bool) -> None:
    """Own events into `<home>/log/supervisor.log`, and to the terminal in the foreground."""
    handlers: list[logging.Handler] = [
        RotatingFileHandler(home.log_path("supervisor"), maxBytes=4 * 1024 * 1024, backupCount=1)
    ]
    if console:
        handlers.append(logging.StreamHandler())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=handlers)
    for noisy in ("botocore", "boto3", "urllib3", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def main() -> int:
    parser = argparse.ArgumentParser(prog="trainshed-supervisor")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--without-agent", action="store_true")
    arguments = parser.parse_args()
    home = Home(arguments.home)

    def tell(text: str) -> None:
        if arguments.ready_fd is not None:
            os.write(arguments.ready_fd, text.encode())
            os.close(arguments.ready_fd)

    def ready(_: HomeConfig) -> None:
        tell("ready")

    try:
        home.prepare()
        set_up_logging(home, console=arguments.ready_fd is None)
        supervisor = Supervisor(home, home.read(), main_port=arguments.port, with_agent=not arguments.without_agent)
        supervisor.run(ready)
    except (UpError, HomeError) as error:
        logging.getLogger("trainshed.supervisor").error("%s", error)
        tell(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
