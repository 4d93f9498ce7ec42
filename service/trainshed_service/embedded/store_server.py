"""`python -m trainshed_service.embedded.store_server --home DIR --port P`: the object store, for a service elsewhere.

Its key is that of the settings (TRAINSHED_STORE_ACCESS_KEY, TRAINSHED_STORE_SECRET_KEY). Serves until SIGTERM or
SIGINT; a store that ends by itself is started again.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

import structlog

from trainshed_service.embedded.store import EmbeddedStore, Exposure, StoreError
from trainshed_service.logging_setup import configure_logging
from trainshed_service.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainshed_service.embedded.store_server", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="folder that holds the objects")
    parser.add_argument("--port", type=int, required=True, help="S3 port, on every address of this machine")
    arguments = parser.parse_args()
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    configure_logging("store")
    log = structlog.get_logger("trainshed.store")
    settings = Settings(home=arguments.home)
    if not (settings.store_access_key and settings.store_secret_key):
        print(
            "the store needs a key: set TRAINSHED_STORE_ACCESS_KEY and TRAINSHED_STORE_SECRET_KEY, as the service has "
            "them, or put them into files of $TRAINSHED_SECRETS_DIR",
            file=sys.stderr,
        )
        return 1
    exposure = Exposure(arguments.port, settings.store_access_key, settings.store_secret_key)
    store = EmbeddedStore(arguments.home, die_with_thread=True, exposure=exposure)
    try:
        store.start()
    except StoreError as error:
        print(f"trainshed store: {error}", file=sys.stderr)
        return 1
    try:
        store.supervise()
        log.info("the store answers", port=arguments.port)
        ending.wait()
        log.info("the store ends")
    finally:
        store.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
