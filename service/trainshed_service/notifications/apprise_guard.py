"""What the helper process forbids itself for the targets of ordinary users, by an audit hook.

Apprise's services connect where a URL says, follow redirects, and some read files that a URL names. The hook sees every
connection and every opened file of the process, whichever library makes it, and stays for its whole life:

* connections only to public IP addresses (or to any, see `any_address`); none to sockets of this machine, none by name;
* files are opened only for reading, and only those of Python, its packages and the system's tables;
* no further process is started.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from trainshed_service.notifications.addresses import is_public

_SYSTEM = (
    "/etc/ssl",
    "/etc/pki",
    "/etc/mime.types",
    "/etc/hosts",
    "/etc/services",
    "/etc/localtime",
    "/usr/share",
    "/usr/lib",
    "/usr/local/share/ca-certificates",
    "/dev/null",
    "/dev/urandom",
)
_CONNECTING = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_STARTING = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"}
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard(*, any_address: bool) -> None:
    """From now on, for this process. What is forbidden raises PermissionError where it is tried."""
    own = {sys.prefix, sys.base_prefix, *(entry for entry in sys.path if entry.strip("/"))}
    extra = {os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE") if name in os.environ}
    readable = tuple(os.path.realpath(path) for path in (*own, *extra, *_SYSTEM))

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event in _CONNECTING:
            _judge_address(args[1], any_address)
        elif event == "open":
            _judge_file(args[0], args[1], args[2], readable)
        elif event in _STARTING:
            raise PermissionError("targets of ordinary users start no process")

    sys.addaudithook(look)


def _judge_address(address: Any, any_address: bool) -> None:
    host = address[0] if isinstance(address, tuple) and address else None
    if not isinstance(host, str) or not (any_address or is_public(host)):
        raise PermissionError(
            "the host is not at a public address; an administrator can make such a target, or allow them with the "
            "setting notify_private_addresses"
        )


def _judge_file(path: Any, mode: Any, flags: Any, readable: tuple[str, ...]) -> None:
    if isinstance(path, int) or path is None:
        return
    writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & _WRITING)
    real = os.path.realpath(os.fsdecode(path))
    if real == "/dev/null" or (not writes and any(real == each or real.startswith(each + "/") for each in readable)):
        return
    raise PermissionError("targets of ordinary users open no files of this machine")
