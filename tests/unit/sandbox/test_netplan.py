"""Who has which address and which URL in a cluster."""

import json

import pytest

from trainshed_worker.sandbox.netplan import NetPlan, make_plan
from trainshed_worker.sandbox.spec import SandboxError


def plan(forwards: dict[str, str], members: int = 2, isolated: bool = False) -> NetPlan:
    return make_plan([f"algo-{n + 1}" for n in range(members)], forwards, isolated, [], "secret")


def test_addresses_by_rank_over_many_members() -> None:
    hosts = plan({}, members=600).addresses().hosts
    assert (hosts["algo-1"], hosts["algo-255"], hosts["algo-256"]) == ("10.210.1.1", "10.210.1.255", "10.210.2.0")
    assert len(set(hosts.values())) == 600


def test_a_local_target_gets_the_bridge_address_and_keeps_its_port() -> None:
    addresses = plan({"api": "http://127.0.0.1:8080", "s3": "http://localhost:8333/base/"}).addresses()
    assert addresses.forwards == {"api": "http://10.210.0.1:8080", "s3": "http://10.210.0.1:8333/base"}


def test_a_named_target_keeps_its_url_by_the_hosts_file() -> None:
    made = plan({"api": "https://trainshed.example", "s3": "https://s3.example:9443"})
    addresses = made.addresses()
    assert addresses.forwards == {"api": "https://trainshed.example", "s3": "https://s3.example:9443"}
    assert addresses.hosts["trainshed.example"] == addresses.hosts["s3.example"] == "10.210.0.1"
    assert [(forward.port, forward.target_port) for forward in made.forwards] == [(443, 443), (9443, 9443)]


def test_equal_and_taken_ports_move() -> None:
    made = plan(
        {
            "a": "http://127.0.0.1:8080",
            "b": "http://127.0.0.2:8080",
            "c": "http://127.0.0.1:3128",
            "d": "http://10.0.0.1",
        }
    )
    assert [forward.port for forward in made.forwards] == [8080, 8081, 3129, 9000]


def test_isolation_leaves_members_alone() -> None:
    addresses = plan({"api": "http://127.0.0.1:8080"}, isolated=True).addresses()
    assert (addresses.forwards, addresses.credentials_url, addresses.egress_proxy) == ({}, None, None)
    assert set(addresses.hosts) == {"algo-1", "algo-2"}


def test_a_plan_survives_its_file() -> None:
    made = plan({"api": "http://127.0.0.1:8080"})
    assert NetPlan.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host/", "http://", "http://host:99999"])
def test_a_target_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(SandboxError, match="'api'"):
        plan({"api": url})


def test_members_must_differ() -> None:
    with pytest.raises(SandboxError, match="different names"):
        make_plan(["algo-1", "algo-1"], {}, False, [], "s")
