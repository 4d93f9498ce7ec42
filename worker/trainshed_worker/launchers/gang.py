"""Which hosts run the distribution together, and how their processes are numbered.

Invariant: ranks are host-major (`rank = host index x processes per host + local rank`) and every host computes the same
numbers from the same assignment, with nothing exchanged.
"""

from dataclasses import dataclass

from trainshed_worker.launchers.hyperparameters import Hyperparameters
from trainshed_worker.launchers.types import LaunchRefused
from trainshed_worker.protocol import Assignment, ClusterHost, FailureCause

GROUPS = "sagemaker_distribution_instance_groups"


@dataclass(frozen=True)
class Gang:
    """The members of the distribution in rank order; `index` is this host's place, None where it has no part in it."""

    hosts: list[ClusterHost]
    index: int | None
    processes: int

    @property
    def lead(self) -> str:
        return self.hosts[0].name

    @property
    def nodes(self) -> int:
        return len(self.hosts)

    @property
    def world_size(self) -> int:
        return self.nodes * self.processes

    @property
    def node_rank(self) -> int:
        """This host's place; only asked for on a host that takes part."""
        if self.index is None:
            raise ValueError("this host has no part in the distribution")
        return self.index

    @property
    def first_rank(self) -> int:
        return self.node_rank * self.processes


def members(assignment: Assignment, hyperparameters: Hyperparameters) -> list[ClusterHost]:
    """The hosts of the instance groups that the distribution names, or all of them; refuses unknown groups."""
    groups = hyperparameters.words(GROUPS)
    if groups is None:
        return list(assignment.hosts)
    known = {host.instance_group for host in assignment.hosts}
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise LaunchRefused(
            FailureCause.USER_INPUT,
            f"The distribution names the instance group {unknown[0]!r}, but the job has "
            f"only {', '.join(sorted(known))}.",
        )
    return [host for host in assignment.hosts if host.instance_group in groups]


def gang(assignment: Assignment, hosts: list[ClusterHost], processes: int) -> Gang:
    """The gang with this host's place in it."""
    names = [host.name for host in hosts]
    index = names.index(assignment.host.name) if assignment.host.name in names else None
    return Gang(hosts=hosts, index=index, processes=processes)


def processes_per_host(assignment: Assignment, asked: int | None, notices: list[str]) -> int:
    """`asked`, else one per accelerator, else one; never more than a stand-in instance shows (said in `notices`)."""
    devices = assignment.accelerators
    if asked is None:
        return max(devices, 1)
    if assignment.stand_in and asked > max(devices, 1):
        cap = max(devices, 1)
        notices.append(
            f"{asked} processes per host were asked for; this stand-in for {assignment.host.instance_type} shows "
            f"{cap} devices, so {cap} are started."
        )
        return cap
    return asked
