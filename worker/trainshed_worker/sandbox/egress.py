"""The proxy by which dependencies are installed: CONNECT, and plain HTTP in absolute form. Needs the cluster's secret.

Invariant: a name is resolved once and the connection goes to an address that was checked, so no name can lead to this
machine, its network or a link-local service, except targets that the configuration names.
"""

import asyncio
import base64
import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from trainshed_worker.sandbox import forwarder
from trainshed_worker.sandbox.httphead import BadRequest, Head, answer, read_head

_HOP_HEADERS = {"proxy-authorization", "proxy-connection", "connection", "keep-alive", "te", "upgrade"}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Refused(Exception):
    """The target may not be reached."""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: str, allow: list[str]) -> None:
    """One connection, one request."""
    try:
        head = await read_head(reader)
        if head is None:
            return
        if not _is_authorized(head, secret):
            challenge = 'Proxy-Authenticate: Basic realm="trainshed"\r\n'
            writer.write(answer(407, "this proxy serves dependency installation alone", extra=challenge))
            return
        host, port, opening = _target(head)
        target = await _open(host, port, allow)
    except BadRequest as error:
        writer.write(answer(400, str(error)))
        return
    except Refused as error:
        writer.write(answer(403, str(error)))
        return
    except OSError as error:
        writer.write(answer(502, f"the target cannot be reached: {error}"))
        return
    if opening is None:
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        target[1].write(opening)
    await forwarder.join((reader, writer), target)


def _is_authorized(head: Head, secret: str) -> bool:
    scheme, _, value = (head.get("proxy-authorization") or "").partition(" ")
    expected = base64.b64encode(f"trainshed:{secret}".encode())
    return scheme.lower() == "basic" and hmac.compare_digest(value.strip().encode(), expected)


def _target(head: Head) -> tuple[str, int, bytes | None]:
    """Host, port, and what to send first (None: CONNECT)."""
    try:
        parts = urlsplit(f"//{head.target}" if head.method == "CONNECT" else head.target)
        port = parts.port
    except ValueError as error:
        raise BadRequest(f"bad target: {error}") from error
    if not parts.hostname:
        raise BadRequest("the request names no target host")
    if head.method == "CONNECT":
        if port is None:
            raise BadRequest("CONNECT needs host:port")
        return parts.hostname, port, None
    if parts.scheme != "http":
        raise BadRequest("only CONNECT and http:// targets are served")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"{head.method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in head.headers if name.lower() not in _HOP_HEADERS]
    lines += ["Connection: close", "", ""]
    return parts.hostname, port or 80, "\r\n".join(lines).encode("latin-1")


async def _open(host: str, port: int, allow: list[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if f"{host}:{port}" not in allow:
        addresses = [address for address in addresses if is_public(address)]
        if not addresses:
            raise Refused(
                f"{host} is not a public address; name {host}:{port} in the agent's egress_allow to permit it"
            )
    failure: OSError | None = None
    for address in addresses:
        try:
            return await forwarder.connect(address, port)
        except OSError as error:
            failure = error
    raise failure or OSError("no address")


def is_public(address: str) -> bool:
    """Whether it is a global unicast address, also where an IPv6 form wraps an IPv4 one."""
    parsed = ipaddress.ip_address(address.split("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if parsed.teredo is not None:
            return False
        if parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not parsed.is_multicast
