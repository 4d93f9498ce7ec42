"""Runs one command for the gang's first host in this instance, then ends with its exit code.

The command gets this process's own environment (so SM_CURRENT_HOST is this host's) less the secret. Connections that
cannot prove that they know the secret are dropped and reported. Where the first host goes away, the command is ended.
"""

import argparse
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # -I leaves the script's folder out

from wire import EXIT, MAX_REQUEST, NONCE_BYTES, STDERR, STDOUT, frame, proof, read_exactly  # type: ignore[import-not-found]

SECRET = "TRAINSHED_GANG_SECRET"
HANDSHAKE_SECONDS = 10.0
GRACE_SECONDS = 5.0


def accept_command(listener: socket.socket, secret: str) -> tuple[socket.socket, str]:
    """Waits for the first connection that proves itself; returns it with the command line."""
    while True:
        connection, peer = listener.accept()
        connection.settimeout(HANDSHAKE_SECONDS)
        try:
            command = _handshake(connection, secret)
        except (OSError, ValueError, PermissionError) as error:
            print(f"refused a connection from {peer[0]}: {error}", file=sys.stderr, flush=True)
            connection.close()
            continue
        connection.settimeout(None)
        return connection, command


def _handshake(connection: socket.socket, secret: str) -> str:
    import hmac

    nonce = os.urandom(NONCE_BYTES)
    connection.sendall(nonce)
    claimed = read_exactly(connection, 32)
    (length,) = struct.unpack("!I", read_exactly(connection, 4))
    if length > MAX_REQUEST:
        raise ValueError(f"a request of {length} bytes is too long")
    body = read_exactly(connection, length)
    if not hmac.compare_digest(claimed, proof(secret, nonce, body)):
        raise PermissionError("it does not know the secret of this attempt")
    command = json.loads(body)["command"]
    if not isinstance(command, str):
        raise ValueError("the command is not a text")
    return command


def run(connection: socket.socket, command: str) -> int:
    """Runs the command, sends what it prints, and returns its exit code (128 + N for signal N)."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    kinds = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
    poller = select.poll()
    for descriptor in (*kinds, connection.fileno()):
        poller.register(descriptor, select.POLLIN)
    open_pipes = set(kinds)
    try:
        while open_pipes:
            for descriptor, _ in poller.poll():
                if descriptor == connection.fileno():
                    if not connection.recv(1):
                        raise ConnectionError("the first host went away")
                    continue
                data = os.read(descriptor, 65536)
                if data:
                    connection.sendall(frame(kinds[descriptor], data))
                else:
                    poller.unregister(descriptor)
                    open_pipes.discard(descriptor)
        code = process.wait()
    except ConnectionError as error:
        print(f"{error}; its command is ended", file=sys.stderr, flush=True)
        _end(process)
        return 1
    code = code if code >= 0 else 128 - code
    connection.sendall(frame(EXIT, str(code).encode()))
    return code


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM to the command's whole session, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="")
    options = parser.parse_args()
    secret = os.environ.pop(SECRET, "")
    if not secret:
        print(f"{SECRET} is not set: without it nobody may run a command here", file=sys.stderr)
        return 2
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.address, options.port))
        listener.listen(8)
        print(f"{socket.gethostname()} waits for mpirun on the gang's first host", flush=True)
        connection, command = accept_command(listener, secret)
    with connection:
        return run(connection, command)


if __name__ == "__main__":
    sys.exit(main())
