"""Where a notification may go: the policy against reaching the inside of the network through us.

Rules: a target that an administrator made may be at any address. One of an ordinary user may be at public addresses
only, unless the setting `notify_private_addresses` is on: no loopback, link-local, private, shared, multicast or
reserved address, also not one wrapped in IPv6. Whatever is connected to is an address that was judged, never a name
that may mean another one a moment later.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(Exception):
    """The policy forbids it; the text says so without naming the address."""


def is_public(text: str) -> bool:
    """Whether the IP address is one of the public network. False for what is no IP address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return all(each.is_global and not each.is_multicast and not each.is_reserved for each in _meant(address))


def _meant(address: Address) -> list[Address]:
    """The address, or those that are wrapped in it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return [address.ipv4_mapped]
        if address.sixtofour is not None:
            return [address, address.sixtofour]
        if address.teredo is not None:
            return [address, *address.teredo]
        if address in _NAT64:
            return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


async def resolve(host: str, port: int, *, any_address: bool) -> list[str]:
    """The addresses to connect to, in the order to try them. AddressRefused; OSError where the name is unknown."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not any_address:
        addresses = [address for address in addresses if is_public(address)]
        if not addresses:
            raise AddressRefused(
                "the host is not at a public address; an administrator can make such a target, or allow them with the "
                "setting notify_private_addresses"
            )
    return addresses
