"""The exec protocol between `client.py` (on the gang's first host) and `server.py` (on each other host).

    server → client   32 random bytes
    client → server   HMAC-SHA256(secret, nonce + body), 4-byte length, body = JSON {"command": …}
    server → client   frames: 1-byte kind (1 stdout, 2 stderr, 0 exit code as text), 4-byte length, data

A connection that ends without the exit frame is a failure on both ends. The nonce makes an overheard request useless.
"""

import hashlib
import hmac
import socket
import struct

NONCE_BYTES = 32
MAX_REQUEST = 1 << 20
EXIT, STDOUT, STDERR = 0, 1, 2


def proof(secret: str, nonce: bytes, body: bytes) -> bytes:
    """What only a host of the same attempt can compute."""
    return hmac.new(secret.encode(), nonce + body, hashlib.sha256).digest()


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """`count` bytes; ConnectionError where the peer ends before."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the peer closed the connection")
        data += part
    return data


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack("!BI", kind, len(data)) + data


def read_frame(connection: socket.socket) -> tuple[int, bytes]:
    kind, length = struct.unpack("!BI", read_exactly(connection, 5))
    return kind, read_exactly(connection, length)
