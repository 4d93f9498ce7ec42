"""The whole environment of an instance's processes, before a launcher adds what is its own (RANK, RDZV …).

Precedence, weakest first: defaults of the node, SM_*, the request's Environment, what a job may not move (its name and
ARN, its credential endpoint, its SM_* facts). So a user's AWS_REGION or OMP_NUM_THREADS holds, and no user's variable
can point a process to another job's credentials or hide which host it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainshed_worker.contract.hyperparameters import REGION, raw_hyperparameters, text
from trainshed_worker.contract.layout import WARM_POOL_CACHE
from trainshed_worker.contract.toolkit import toolkit_variables
from trainshed_worker.protocol import Assignment

MASTER_PORT = 7777
USER = "sagemaker"
HOME = f"/home/{USER}"
"""The user that the sandbox makes for the job, and its home on the instance's own disk."""
WARM_POOL_CACHE_VARIABLE = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"
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


def process_environment(assignment: Assignment, network: NetworkFacts, *, search_path: str) -> dict[str, str]:
    """All variables of one instance; thread counts are the launcher's, which knows the number of processes."""
    raw = raw_hyperparameters(assignment.request)
    region = text(raw, REGION) or assignment.object_store.region
    facts = toolkit_variables(assignment, network.interface)
    variables = {
        "PATH": search_path,
        "HOME": HOME,
        "USER": USER,
        "LOGNAME": USER,
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
        "SAGEMAKER_INSTANCE_TYPE": assignment.host.instance_type,
    }
    variables.update(_endpoints(network))
    variables.update(facts)
    variables.update({str(k): str(v) for k, v in (assignment.request.get("Environment") or {}).items()})
    variables.update(facts)
    for name in RESERVED_NAMES:
        variables.pop(name, None)
    variables[WARM_POOL_CACHE_VARIABLE] = str(WARM_POOL_CACHE)
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
    return found


__all__ = ["HOME", "MASTER_PORT", "RESERVED_NAMES", "NetworkFacts", "process_environment"]
