"""Cluster networks of this machine: one per cluster, shared by its slots here, removed with its last assignment.

Invariant: a network is removed only when no assignment of its cluster is left on this machine; all calls for one
cluster are serial.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainshed_worker.agent.files import write_atomic
from trainshed_worker.contract import InstanceLayout, NetworkFacts
from trainshed_worker.protocol import Assignment, ObjectStoreAccess
from trainshed_worker.sandbox import Addresses, ClusterNetwork

API, S3 = "api", "s3"


@dataclass(frozen=True)
class InstanceNetwork:
    """One instance's place in its cluster's network. `mode` is SandboxSpec.network."""

    mode: str
    directory: Path | None
    address: str | None
    hosts: dict[str, str]
    facts: NetworkFacts
    egress_proxy: str | None


def is_local(assignment: Assignment) -> bool:
    """True where all members are on this machine, so that they can have a network of their own."""
    return all(host.agent_id == assignment.host.agent_id for host in assignment.hosts)


def network_isolated(assignment: Assignment) -> bool:
    return bool(assignment.request.get("EnableNetworkIsolation"))


def credentials_file(layout: InstanceLayout) -> Path:
    """It exists where the instance's network has a credential endpoint."""
    return layout.state / "credentials.json"


def write_credentials(layout: InstanceLayout, access: ObjectStoreAccess) -> Path:
    """The document that the credential endpoint answers with; replaced whole whenever a fresh set comes."""
    path = credentials_file(layout)
    expires = datetime.fromtimestamp(access.expires_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document = {
        "AccessKeyId": access.access_key_id,
        "SecretAccessKey": access.secret_access_key,
        "Token": access.session_token,
        "Expiration": expires,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(document), sync=False)  # who reads it ends with the machine
    return path


class Networks:
    """All cluster networks of the agent. `isolation` is False on a machine that cannot make namespaces."""

    def __init__(self, directory: Path, server: str, egress_allow: tuple[str, ...], isolation: bool) -> None:
        self._directory = directory
        self._server = server
        self._egress_allow = list(egress_allow)
        self._isolation = isolation
        self._locks: dict[str, asyncio.Lock] = {}

    def allow(self, targets: Iterable[str]) -> None:
        """Let dependency installation reach these `host:port` too: the package indexes of the node's own pip."""
        self._egress_allow = list(dict.fromkeys([*self._egress_allow, *targets]))

    def _lock(self, cluster_id: str) -> asyncio.Lock:
        return self._locks.setdefault(cluster_id, asyncio.Lock())

    async def join(self, assignment: Assignment, layout: InstanceLayout, token: str) -> InstanceNetwork:
        """Make the cluster's network where it is not there and give this instance its credentials. SandboxError."""
        if not self._isolation or not is_local(assignment):
            return self._machine_network(assignment)
        directory = self._directory / assignment.cluster_id
        network = ClusterNetwork(directory)
        members = [host.name for host in sorted(assignment.hosts, key=lambda host: host.rank)]
        forwards = {API: self._server, S3: assignment.object_store.endpoint_url}
        isolated = network_isolated(assignment)

        def make() -> Addresses:
            addresses = network.ensure(members, forwards, isolated, self._egress_allow)
            if not isolated:
                network.set_credentials(token, write_credentials(layout, assignment.object_store))
            return addresses

        async with self._lock(assignment.cluster_id):
            addresses = await asyncio.to_thread(make)
        credentials = None
        if addresses.credentials_url:
            credentials = {
                "AWS_CONTAINER_CREDENTIALS_FULL_URI": addresses.credentials_url,
                "AWS_CONTAINER_AUTHORIZATION_TOKEN": token,
            }
        facts = NetworkFacts(
            interface=addresses.interface,
            service_url=addresses.forwards.get(API),
            s3_url=addresses.forwards.get(S3),
            credentials=credentials,
        )
        return InstanceNetwork(
            "cluster",
            directory,
            addresses.hosts[assignment.host.name],
            dict(addresses.hosts),
            facts,
            addresses.egress_proxy,
        )

    def _machine_network(self, assignment: Assignment) -> InstanceNetwork:
        """The machine's own network: for a cluster over several machines, or without isolation."""
        access = assignment.object_store
        facts = NetworkFacts(
            interface=default_interface(),
            service_url=self._server,
            s3_url=access.endpoint_url,
            credentials={
                "AWS_ACCESS_KEY_ID": access.access_key_id,
                "AWS_SECRET_ACCESS_KEY": access.secret_access_key,
                "AWS_SESSION_TOKEN": access.session_token,
            },
        )
        hosts = {host.name: host.address for host in assignment.hosts if host.address}
        return InstanceNetwork("host", None, hosts.get(assignment.host.name), hosts, facts, None)

    async def leave(self, assignment: Assignment, token: str) -> None:
        """Make the instance's token worthless. May be called again."""
        directory = self._directory / assignment.cluster_id
        async with self._lock(assignment.cluster_id):
            if not directory.exists():
                return
            await asyncio.to_thread(ClusterNetwork(directory).drop_credentials, token)

    async def sweep(self, kept: Callable[[], set[str]]) -> None:
        """Remove networks of clusters that no assignment here belongs to; `kept` gives those that one does, now."""
        if not self._directory.is_dir():
            return
        for directory in list(self._directory.iterdir()):
            async with self._lock(directory.name):
                if directory.name not in kept():
                    await asyncio.to_thread(ClusterNetwork(directory).remove)


def default_interface() -> str:
    """Name of the interface with the default route, loopback where there is none."""
    try:
        for line in Path("/proc/net/route").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1] == "00000000":
                return fields[0]
    except OSError:
        return "lo"
    return "lo"
