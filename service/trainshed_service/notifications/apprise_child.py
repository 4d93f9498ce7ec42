"""The helper process itself: lines of JSON in, lines of JSON out, until its input ends.

The first line says which URL; each further one is a message, answered when it is delivered or refused. Errors hold
what apprise says; the parent frees them of secrets before anybody sees them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import apprise

from trainshed_service.notifications.apprise_guard import guard
from trainshed_service.notifications.masking import scheme_of

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 20.0
_LOCAL = frozenset({"dbus", "qt", "kde", "glib", "gnome", "macosx", "windows", "syslog"})
"""Services of the machine that we run on: for administrators alone."""


class _Notes(logging.Handler):
    """The last warnings of apprise, which its own answer leaves out."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def take(self) -> str:
        lines, self.lines = self.lines, []
        return "; ".join(lines[-3:])


def main() -> None:
    os.nice(10)  # nobody waits for it; jobs' starts on this machine come first
    notes = _Notes()
    log = logging.getLogger("apprise")
    log.handlers[:] = [notes]
    log.propagate = False
    log.setLevel(logging.WARNING)
    first = json.loads(sys.stdin.readline())
    if not first["trusted"]:
        guard(any_address=first["anyAddress"])
    target, answer = _target(first["url"], first["trusted"], notes)
    _say(answer)
    if target is None:
        return
    for line in sys.stdin:
        _say(_send(target, json.loads(line), notes))


def _target(url: str, trusted: bool, notes: _Notes) -> tuple[Any, dict[str, Any]]:
    if scheme_of(url) in _LOCAL and not trusted:
        return None, {"ok": False, "error": "only an administrator may send to the service's own machine"}
    asset = apprise.AppriseAsset(secure_logging=True, async_mode=False, plugin_paths=[])
    found = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if found is None:
        why = notes.take()
        return None, {"ok": False, "error": f"apprise does not know such a URL{': ' + why if why else ''}"}
    found.socket_connect_timeout = min(found.socket_connect_timeout or _CONNECT_SECONDS, _CONNECT_SECONDS)
    found.socket_read_timeout = min(found.socket_read_timeout or _READ_SECONDS, _READ_SECONDS)
    answer: dict[str, Any] = {"ok": True}
    if scheme_of(url) in ("mailto", "mailtos"):
        answer["recipients"] = [address for _, address in getattr(found, "targets", [])]
    return found, answer


def _send(target: Any, message: dict[str, Any], notes: _Notes) -> dict[str, Any]:
    try:
        sent = target.notify(
            title=message["title"], body=message["text"], notify_type=message["level"], body_format="text"
        )
    except Exception as error:  # noqa: BLE001 - whatever a service's code raises is told to the parent
        notes.take()
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}
    why = notes.take()
    return {"ok": True} if sent else {"ok": False, "error": why or "the service did not accept it"}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
