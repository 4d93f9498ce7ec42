"""Ports: kept where free, never handed to two homes, and a clear error for one that is taken."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainshed_service.embedded.ports import NAMES, PortClaims, PortTakenError, is_free


@pytest.fixture
def claims() -> Iterator[PortClaims]:
    held = PortClaims()
    yield held
    held.close()


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_all_are_free_and_differ(claims: PortClaims):
    chosen = claims.choose({}, {})
    assert tuple(chosen) == NAMES and len(set(chosen.values())) == len(NAMES)
    assert all(is_free(port) for port in chosen.values())


def test_remembered_ones_are_kept(claims: PortClaims):
    first = claims.choose({}, {})
    assert claims.choose(first, {}) == first


def test_one_that_was_taken_meanwhile_is_replaced(claims: PortClaims, listener: int):
    chosen = claims.choose({"main": listener}, {})
    assert chosen["main"] != listener


def test_the_named_port_wins_over_the_remembered(claims: PortClaims):
    free = claims.choose({}, {})["main"]
    claims.close()
    remembered = {"main": 1, "gateway": free}
    chosen = claims.choose(remembered, {"main": free})
    assert chosen["main"] == free and chosen["gateway"] != free


def test_a_named_port_that_is_taken(claims: PortClaims, listener: int):
    with pytest.raises(PortTakenError, match=rf"port {listener} is in use .* --port"):
        claims.choose({}, {"main": listener})
    assert is_free(claims.choose({}, {})["main"])


def test_two_homes_never_get_the_same_though_nobody_listens_yet(claims: PortClaims):
    first = claims.choose({}, {})
    other = PortClaims()
    try:
        assert not set(other.choose(first, {}).values()) & set(first.values())
        with pytest.raises(PortTakenError):
            other.choose({}, {"main": first["main"]})
    finally:
        other.close()


def test_many_at_once_share_nothing():
    held = [PortClaims() for _ in range(12)]
    try:
        with ThreadPoolExecutor(len(held)) as pool:
            ports = [
                port
                for chosen in pool.map(lambda one: one.choose({"main": 15_000}, {}), held)
                for port in chosen.values()
            ]
        assert len(ports) == len(set(ports)) == 12 * len(NAMES)
    finally:
        for one in held:
            one.close()
