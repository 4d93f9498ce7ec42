"""Which addresses are inside."""

from __future__ import annotations

import pytest

from trainshed_service.notifications.addresses import AddressRefused, is_public, resolve


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1",
     "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "localhost", "not an address", ""],
)  # fmt: skip
def test_inside(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_outside(address: str) -> None:
    assert is_public(address)


async def test_a_name_of_this_machine_is_refused_and_allowed_to_administrators() -> None:
    with pytest.raises(AddressRefused, match="notify_private_addresses"):
        await resolve("localhost", 80, any_address=False)
    assert "127.0.0.1" in await resolve("localhost", 80, any_address=True)
    with pytest.raises(AddressRefused):
        await resolve("0x7f000001", 80, any_address=False)
