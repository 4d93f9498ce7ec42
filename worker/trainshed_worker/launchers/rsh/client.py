"""mpirun's remote shell: `client.py [options] HOST COMMAND…` runs the command on HOST by that host's server.py.

It waits up to TRAINSHED_RSH_SECONDS (60) for the host's server, copies what the command prints, and ends with its exit
code; 255, with a sentence on stderr, where the host cannot be reached or refuses.
"""

import json
import os
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # -I leaves the script's folder out

from wire import EXIT, NONCE_BYTES, STDERR, proof, read_exactly, read_frame  # type: ignore[import-not-found]

SECRET = "TRAINSHED_GANG_SECRET"
PEERS = "TRAINSHED_RSH_PEERS"
PATIENCE = "TRAINSHED_RSH_SECONDS"
RETRY_SECONDS = 0.1


def connect(host: str, seconds: float) -> socket.socket:
    """A connection to the host's server, which may start a little later than this process."""
    peers = dict(entry.split("=", 1) for entry in os.environ.get(PEERS, "").split(",") if entry)
    if host not in peers:
        raise ConnectionError(f"{host} is not a host of this job's gang ({', '.join(peers) or 'none'})")
    address, _, port = peers[host].rpartition(":")
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((address or host, int(port)), timeout=10.0)
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ConnectionError(
                    f"{host} does not answer on port {port} after {seconds:g} s ({error}): is Open MPI installed in "
                    "every node's environment?"
                ) from error
            time.sleep(RETRY_SECONDS)


def run(host: str, command: str) -> int:
    secret = os.environ.get(SECRET, "")
    with connect(host, float(os.environ.get(PATIENCE, "60"))) as connection:
        body = json.dumps({"command": command}).encode()
        nonce = read_exactly(connection, NONCE_BYTES)
        connection.sendall(proof(secret, nonce, body) + struct.pack("!I", len(body)) + body)
        connection.settimeout(None)
        while True:
            kind, data = read_frame(connection)
            if kind == EXIT:
                return int(data)
            stream = sys.stderr.buffer if kind == STDERR else sys.stdout.buffer
            stream.write(data)
            stream.flush()


def main() -> int:
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words.pop(0)
    if len(words) < 2:
        print(f"usage: {sys.argv[0]} HOST COMMAND…", file=sys.stderr)
        return 255
    try:
        return run(words[0], " ".join(words[1:]))
    except (OSError, ValueError) as error:
        print(f"trainshed-rsh: {words[0]}: {error}", file=sys.stderr, flush=True)
        return 255


if __name__ == "__main__":
    sys.exit(main())
