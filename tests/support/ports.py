"""A port that nobody listens on at this moment. Below 55,536, since the object store also uses the number + 10,000."""

import random
import socket


def free_port() -> int:
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
