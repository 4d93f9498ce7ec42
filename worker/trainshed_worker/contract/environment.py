"""The whole environment of an instance's processes, before a launcher adds what is its own (RANK, RDZV …).

Precedence, weakest first: defaults of the node, SM_*, the request's Environment, what a job may not move (its name and
ARN, its credential endpoint, its SM_* facts). So a user's AWS_REGION or OMP_NUM_THREADS holds, and no user's variable
can point a process to another job's credentials or hide which host it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainshed_worker.contract.hyperparameters import REGION, raw_hyperparameters, text
from trainshed_worker.contract.layout import ML
from trainshed_worker.contract.toolkit import toolkit_variables
from trainshed_worker.protocol import Assignment

MASTER_PORT = 7777
RESERVED_NAMES = frozenset(
    {
        "TRAINING_JOB_NAME",
        "TRAINING_JOB_ARN",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    }
)


@dataclass(frozen=True)
class NetworkFacts:
    """What the cluster's network gives to an instance; addresses as seen from inside."""

    interface: str
    """Name of the interface that leads to the peers."""
    service_url: str | None = None
    """AWS_ENDPOINT_URL: the API's forwarder; None where the job has no way out of its cluster."""
    s3_url: str | None = None
    """AWS_ENDPOINT_URL_S3: the gateway's forwarder."""
    credentials: Mapping[str, str] | None = None
    """AWS_CONTAINER_* of the instance's credential endpoint."""
    proxy_url: str | None = None
    """HTTP proxy for the way out (package indexes), None where there is none."""


def process_environment(
    assignment: Assignment, network: NetworkFacts, *, search_path: str, cpus: int, processes_per_host: int = 1
) -> dict[str, str]:
    """All variables of one instance. `cpus` are cores that the instance may really use."""
    raw = raw_hyperparameters(assignment.request)
    region = text(raw, REGION) or assignment.object_store.region
    facts = toolkit_variables(assignment, network.interface)
    variables = {
        "PATH": search_path,
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "MASTER_ADDR": min(assignment.hosts, key=lambda host: host.rank).name,
        "MASTER_PORT": str(MASTER_PORT),
        "NCCL_SOCKET_IFNAME": network.interface,
        "GLOO_SOCKET_IFNAME": network.interface,
        "TP_SOCKET_IFNAME": network.interface,
        "NCCL_IB_DISABLE": "1",
        "OMP_NUM_THREADS": str(max(1, cpus // max(1, processes_per_host))),
        "SAGEMAKER_INSTANCE_TYPE": assignment.host.instance_type,
    }
    variables.update(_endpoints(network))
    variables.update(facts)
    variables.update({str(k): str(v) for k, v in (assignment.request.get("Environment") or {}).items()})
    variables.update(facts)
    for name in RESERVED_NAMES:
        variables.pop(name, None)
    variables["TRAINING_JOB_NAME"] = assignment.job_name
    variables["TRAINING_JOB_ARN"] = assignment.job_arn
    variables.update(network.credentials or {})
    return variables


def _endpoints(network: NetworkFacts) -> dict[str, str]:
    found: dict[str, str] = {}
    if network.service_url:
        found["AWS_ENDPOINT_URL"] = network.service_url
    if network.s3_url:
        found["AWS_ENDPOINT_URL_S3"] = network.s3_url
        found["S3_ENDPOINT_URL"] = network.s3_url
    if network.proxy_url:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            found[name] = found[name.lower()] = network.proxy_url
        direct = ",".join(["localhost", "127.0.0.1", "169.254.170.2", *_hosts_of(network)])
        found["NO_PROXY"] = found["no_proxy"] = direct
    return found


def _hosts_of(network: NetworkFacts) -> list[str]:
    from urllib.parse import urlsplit

    return [h for url in (network.service_url, network.s3_url) if url and (h := urlsplit(url).hostname)]


__all__ = ["MASTER_PORT", "ML", "RESERVED_NAMES", "NetworkFacts", "process_environment"]
