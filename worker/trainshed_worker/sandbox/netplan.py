"""The plan of a cluster's network: who has which address, which ports lead out, and to where. Pure.

Invariant: equal arguments give an equal plan, and instances use only what `layout` names; targets of forwards may
change under a running network, the layout may not.
"""

import ipaddress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from trainshed_worker.sandbox.spec import SandboxError

BRIDGE_ADDRESS = "10.210.0.1"
"""Every cluster has namespaces of its own, so the same addresses serve all of them."""
PREFIX_LENGTH = 16
CREDENTIALS_ADDRESS = "169.254.170.2"
CREDENTIALS_PORT = 80
CREDENTIALS_PATH = "/creds"
EGRESS_PORT = 3128
INTERFACE = "eth0"
FIRST_FORWARD_PORT = 9000
MAX_MEMBERS = 60_000
_FIRST_MEMBER = int(ipaddress.IPv4Address("10.210.1.1"))
_LOCAL_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost"}


@dataclass(frozen=True)
class Addresses:
    """What the cluster's processes use. All URLs hold inside the cluster only.

    `hosts`: name → address of every member (and of forwarded host names), for SandboxSpec.hosts. `forwards`: name → URL
    in place of the target's. `credentials_url`: value for AWS_CONTAINER_CREDENTIALS_FULL_URI (with
    AWS_CONTAINER_AUTHORIZATION_TOKEN = the token of `set_credentials`). `egress_proxy`: value for HTTPS_PROXY of
    dependency installation alone; it carries the secret that the proxy asks for, so keep it from the job.
    """

    hosts: dict[str, str]
    forwards: dict[str, str] = field(default_factory=dict)
    credentials_url: str | None = None
    egress_proxy: str | None = None
    interface: str = INTERFACE


@dataclass(frozen=True)
class Forward:
    """`port` of the bridge address leads to `host`:`target_port` of the machine's own network."""

    name: str
    port: int
    host: str
    target_port: int
    url: str


@dataclass(frozen=True)
class NetPlan:
    members: dict[str, str]
    forwards: list[Forward]
    isolated: bool
    egress_allow: list[str]
    secret: str

    def layout(self) -> dict[str, Any]:
        """What instances were told; a change needs a new network."""
        return {
            "members": self.members,
            "isolated": self.isolated,
            "forwards": [[forward.name, forward.port, forward.url] for forward in self.forwards],
        }

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "layout": self.layout()}

    @staticmethod
    def from_dict(raw: dict[str, Any]) -> "NetPlan":
        fields = {key: value for key, value in raw.items() if key != "layout"}
        fields["forwards"] = [Forward(**item) for item in fields["forwards"]]
        return NetPlan(**fields)

    def addresses(self) -> Addresses:
        hosts = dict(self.members)
        for forward in self.forwards:
            name = urlsplit(forward.url).hostname or ""
            if not _is_address(name):
                hosts[name] = BRIDGE_ADDRESS
        if self.isolated:
            return Addresses(hosts=hosts)
        return Addresses(
            hosts=hosts,
            forwards={forward.name: forward.url for forward in self.forwards},
            credentials_url=f"http://{CREDENTIALS_ADDRESS}{CREDENTIALS_PATH}",
            egress_proxy=f"http://trainshed:{self.secret}@{BRIDGE_ADDRESS}:{EGRESS_PORT}",
        )


def member_address(rank: int) -> str:
    """Address of the member with this rank."""
    return str(ipaddress.IPv4Address(_FIRST_MEMBER + rank))


def make_plan(
    members: list[str], forwards: dict[str, str], isolated: bool, egress_allow: list[str], secret: str
) -> NetPlan:
    """Raises SandboxError for a list of members or a target that makes no sense."""
    if not members or len(members) > MAX_MEMBERS or len(set(members)) != len(members):
        raise SandboxError(f"a cluster needs 1 to {MAX_MEMBERS} members with different names")
    planned: list[Forward] = []
    taken = {EGRESS_PORT, CREDENTIALS_PORT}
    for name, url in {} if isolated else forwards.items():
        planned.append(_plan_forward(name, url, taken))
        taken.add(planned[-1].port)
    addresses = {name: member_address(rank) for rank, name in enumerate(members)}
    return NetPlan(addresses, planned, isolated, sorted(egress_allow), secret)


def _plan_forward(name: str, url: str, taken: set[int]) -> Forward:
    """A host name keeps its URL (the hosts file leads it to the bridge), so that certificates and virtual hosts hold;
    an address, or a name of this machine alone, becomes the bridge's address."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (KeyError, ValueError):
        port = 0
    if not parts.hostname or not port:
        raise SandboxError(f"the target of forward {name!r} must be an http or https URL with a host, not {url!r}")
    keeps_name = not _is_address(parts.hostname) and parts.hostname.lower() not in _LOCAL_NAMES
    if keeps_name and port not in taken:
        return Forward(name, port, parts.hostname, port, url)
    listen = port
    while listen in taken or listen < 1024:
        listen = FIRST_FORWARD_PORT if listen < 1024 else listen + 1
    suffix = parts.path.rstrip("/")
    host = parts.hostname if keeps_name else BRIDGE_ADDRESS
    return Forward(name, listen, parts.hostname, port, f"{parts.scheme}://{host}:{listen}{suffix}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
