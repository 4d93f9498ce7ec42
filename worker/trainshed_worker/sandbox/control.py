"""The control channel of a supervisor: a unix socket `control.sock` in its folder, one JSON request per connection.

Invariant: reached through /proc/self/fd of the folder, so that a folder with a long path (over 107 bytes) works as
well.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainshed_worker.sandbox.spec import SandboxError

SOCKET_NAME = "control.sock"
MAX_MESSAGE = 64 * 1024


@contextlib.contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """A short path of the socket in `directory`, valid inside the `with`."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        os.close(folder)


def listen(directory: Path) -> socket.socket:
    """A listening, non-blocking control socket; a stale one of a dead owner is replaced."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with short_path(directory) as path:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        server.bind(path)
        os.chmod(path, 0o600)
    server.listen(16)
    return server


def request(directory: Path, message: dict[str, Any], timeout: float = 10.0) -> dict[str, Any] | None:
    """Send one request and return the answer; None where nobody listens (the supervisor is gone)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as client:
        client.settimeout(timeout)
        try:
            with short_path(directory) as path:
                client.connect(path)
            client.sendall(json.dumps(message).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                part = client.recv(65536)
                if not part:
                    return None
                answer += part
        except (FileNotFoundError, ConnectionError):
            return None
        except TimeoutError:
            raise SandboxError(f"the supervisor of {directory} did not answer within {timeout:g} s") from None
    value = json.loads(answer)
    if not isinstance(value, dict):
        raise SandboxError(f"the supervisor of {directory} gave an answer that is no object")
    return value
