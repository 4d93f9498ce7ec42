"""Assignments and launch environments for tests of what a node does with a job."""

from pathlib import Path, PurePosixPath
from typing import Any

from trainshed_worker.launchers import LaunchEnvironment
from trainshed_worker.protocol import Action, Assignment, ClusterHost, ObjectStoreAccess, OutputPlan


def make_assignment(
    request: dict[str, Any] | None = None,
    *,
    hosts: int = 2,
    rank: int = 0,
    groups: list[str] | None = None,
    instance_type: str = "ml.g5.12xlarge",
    accelerators: int = 2,
    stand_in: bool = True,
    vcpus: int = 48,
    gang_secret: str | None = "secret-of-the-attempt",
) -> Assignment:
    """Host `rank` of a job on `hosts` instances; `groups` names each host's instance group."""
    members = [
        ClusterHost(
            name=f"algo-{index + 1}",
            rank=index,
            node_id=f"node-{index}",
            agent_id="agent",
            instance_type=instance_type,
            instance_group=groups[index] if groups else "homogeneousCluster",
            address=f"10.0.0.{index + 1}",
        )
        for index in range(hosts)
    ]
    return Assignment(
        id=f"assignment-{rank}",
        node_id=f"node-{rank}",
        job_name="demo",
        job_arn="arn:aws:sagemaker:us-west-2:123456789012:training-job/demo",
        attempt_id="attempt",
        attempt_number=1,
        cluster_id="cluster",
        epoch=1,
        action=Action.RUN,
        host=members[rank],
        hosts=members,
        request=request or {},
        object_store=ObjectStoreAccess(
            endpoint_url="http://gateway",
            region="us-west-2",
            access_key_id="key",
            secret_access_key="secret",
            session_token="token",
            expires_at=0.0,
        ),
        output=OutputPlan(base_uri="s3://bucket/demo/output", parts_uri="s3://bucket/demo/parts"),
        log_stream_epoch=1,
        vcpus=vcpus,
        memory_bytes=1 << 30,
        accelerators=accelerators,
        stand_in=stand_in,
        gang_secret=gang_secret,
    )


def make_environment(
    search_path: Path | str = "/nowhere", *, python: str = "/opt/python/bin/python3", cpus: int = 4, **variables: str
) -> LaunchEnvironment:
    """An environment whose PATH is `search_path` alone."""
    return LaunchEnvironment(
        python=PurePosixPath(python),
        variables={
            "PATH": str(search_path),
            "MASTER_ADDR": "algo-1",
            "MASTER_PORT": "7777",
            "SM_NETWORK_INTERFACE_NAME": "eth0",
            **variables,
        },
        cpus=cpus,
    )
