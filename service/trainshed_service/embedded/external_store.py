"""An object store that somebody else keeps: any S3 that the settings name. The same face as `EmbeddedStore`.

Invariant: nothing is started, stopped or changed there; the gateway finds it by the settings themselves.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from threading import Event

from trainshed_service.embedded.store import StoreError

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ExternalStore:
    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._stopped = Event()

    def start(self, timeout: float = 60.0) -> None:
        """Returns when it answers, whatever it answers. Raises StoreError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self._stopped.is_set():
            try:
                with _DIRECT.open(self._endpoint, timeout=5):
                    return
            except urllib.error.HTTPError:
                return
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline or isinstance(error, ValueError):
                    raise StoreError(
                        f"the object store {self._endpoint} (TRAINSHED_STORE_ENDPOINT) does not answer: {error}"
                    ) from error
            self._stopped.wait(0.5)

    def stop(self) -> None:
        self._stopped.set()

    def supervise(self, on_restart: Callable[[str], None] | None = None) -> None:
        """Its endpoint stays as it is."""

    def environment(self) -> dict[str, str]:
        return {}

    def named_ports(self) -> dict[str, int]:
        return {}
