"""Links, addresses and routes by rtnetlink, so that no `ip` tool is needed. See rtnetlink(7).

Invariant: a socket acts on the network namespace in which it was opened, wherever its process goes later; every request
is acknowledged, and a refusal raises OSError.
"""

import contextlib
import errno
import os
import socket
import struct
from types import TracebackType

_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK, _RTM_NEWADDR, _RTM_NEWROUTE = 16, 17, 18, 20, 24
_NLMSG_ERROR = 2
_REQUEST, _ACK, _CREATE, _EXCLUSIVE = 0x1, 0x4, 0x400, 0x200
_IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 3, 10, 18, 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF = 1, 4
_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_LINK, _RTN_UNICAST = 254, 4, 253, 1
_IFF_UP = 1
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


def _name(text: str) -> bytes:
    return _attribute(_IFLA_IFNAME, text.encode() + b"\0")


class Netlink:
    """A connection to the kernel for the current network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add_bridge(self, name: str) -> None:
        info = _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, b"bridge"))
        self._ask(_RTM_NEWLINK, _CREATE | _EXCLUSIVE, _LINK.pack(0, 0, 0, 0, 0) + _name(name) + info, f"bridge {name}")

    def add_veth(self, name: str, peer: str, peer_namespace: int) -> None:
        """A veth pair: `name` here, `peer` in the network namespace of that descriptor."""
        other = _LINK.pack(0, 0, 0, 0, 0) + _name(peer) + _attribute(_IFLA_NET_NS_FD, struct.pack("=i", peer_namespace))
        data = _attribute(_IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, other))
        info = _attribute(_IFLA_LINKINFO, _attribute(_IFLA_INFO_KIND, b"veth") + data)
        body = _LINK.pack(0, 0, 0, 0, 0) + _name(name) + info
        self._ask(_RTM_NEWLINK, _CREATE | _EXCLUSIVE, body, f"veth {name}")

    def delete(self, name: str) -> None:
        """Delete the link; no error where there is none."""
        with contextlib.suppress(FileNotFoundError):
            self._ask(_RTM_DELLINK, 0, _LINK.pack(0, 0, self.index(name), 0, 0), f"delete {name}")

    def up(self, name: str, master: str | None = None) -> None:
        body = _LINK.pack(0, 0, self.index(name), _IFF_UP, _IFF_UP)
        if master is not None:
            body += _attribute(_IFLA_MASTER, struct.pack("=I", self.index(master)))
        self._ask(_RTM_NEWLINK, 0, body, f"link {name} up")

    def add_address(self, name: str, address: str, prefix_length: int) -> None:
        raw = socket.inet_aton(address)
        body = struct.pack("=BBBBI", socket.AF_INET, prefix_length, 0, 0, self.index(name))
        body += _attribute(_IFA_LOCAL, raw) + _attribute(_IFA_ADDRESS, raw)
        self._ask(_RTM_NEWADDR, _CREATE | _EXCLUSIVE, body, f"address {address} on {name}")

    def add_route(self, address: str, name: str) -> None:
        """A route to one host directly over a link."""
        body = struct.pack(
            "=BBBBBBBBI",
            socket.AF_INET, 32, 0, 0, _RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_LINK, _RTN_UNICAST, 0,
        )  # fmt: skip
        body += _attribute(_RTA_DST, socket.inet_aton(address))
        body += _attribute(_RTA_OIF, struct.pack("=I", self.index(name)))
        self._ask(_RTM_NEWROUTE, _CREATE | _EXCLUSIVE, body, f"route {address} over {name}")

    def index(self, name: str) -> int:
        """Raises FileNotFoundError where there is no such link."""
        try:
            answer = self._ask(_RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _name(name), f"link {name}")
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise FileNotFoundError(errno.ENOENT, f"no network link {name}") from error
            raise
        return int(_LINK.unpack_from(answer)[2])

    def _ask(self, kind: int, flags: int, body: bytes, what: str) -> bytes:
        """Send one request; return the body of its answer (empty for a mere acknowledgement)."""
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _ACK | flags, self._sequence, 0)
        self._socket.send(header + body)
        answer = b""
        while True:
            data = self._socket.recv(65536)
            while data:
                length, answer_kind, _, sequence, _ = _HEADER.unpack_from(data)
                content, data = data[_HEADER.size : length], data[(length + 3) & ~3 :]
                if sequence != self._sequence:
                    continue
                if answer_kind != _NLMSG_ERROR:
                    answer = content
                    continue
                (code,) = struct.unpack_from("=i", content)
                if code:
                    raise OSError(-code, f"{what}: {os.strerror(-code)}")
                return answer
