"""Whether a part answers. Any HTTP answer below 500 counts: a gateway refuses a caller without a signature, rightly."""

from __future__ import annotations

import http.client

import psutil

from trainshed_service.embedded.forked import ForkedProcess


def answers(port: int, path: str = "/healthz", timeout: float = 2.0) -> bool:
    """One attempt on 127.0.0.1, never through a proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def listens(process: ForkedProcess | None, port: int) -> bool:
    """Whether this very process has the port."""
    if process is None:
        return False
    try:
        connections = psutil.Process(process.pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
