"""Assignments for agent tests: a gang on one agent, as the service would send it."""

from __future__ import annotations

import time
import uuid
from typing import Any

from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.protocol import Action, Assignment, ClusterHost, ObjectStoreAccess, OutputPlan


def access_to(store: EmbeddedStore) -> ObjectStoreAccess:
    return ObjectStoreAccess(
        endpoint_url=store.endpoint,
        region="us-east-1",
        access_key_id=store.access_key,
        secret_access_key=store.secret_key,
        session_token="",
        expires_at=time.time() + 3600,
    )


def nowhere() -> ObjectStoreAccess:
    """Credentials for tests that move no data."""
    return ObjectStoreAccess(
        endpoint_url="http://127.0.0.1:9",
        region="us-west-2",
        access_key_id="key",
        secret_access_key="secret",
        session_token="token",
        expires_at=2_000_000_000,
    )


def gang(
    access: ObjectStoreAccess,
    bucket: str,
    count: int = 1,
    *,
    name: str | None = None,
    groups: list[tuple[str, str]] | None = None,
    **request: Any,
) -> list[Assignment]:
    """`count` assignments of one attempt for nodes node-0 …; `request` are members of CreateTrainingJob.

    `groups` gives (group, instance type) per host.
    """
    job = name or f"job-{uuid.uuid4().hex[:8]}"
    attempt = f"{job}-attempt-1"
    kinds = groups or [("homogeneousCluster", "ml.c5.xlarge")] * count
    hosts = [
        ClusterHost(
            name=f"algo-{rank + 1}",
            rank=rank,
            node_id=f"node-{rank}",
            agent_id="agent-1",
            instance_type=kind,
            instance_group=group,
        )
        for rank, (group, kind) in enumerate(kinds)
    ]
    whole = {"TrainingJobName": job, "RoleArn": "arn:aws:iam::123456789012:role/test", **request}
    return [
        Assignment(
            id=f"{attempt}-{host.name}",
            node_id=host.node_id,
            job_name=job,
            job_arn=f"arn:aws:sagemaker:us-west-2:123456789012:training-job/{job}",
            attempt_id=attempt,
            attempt_number=1,
            cluster_id=f"cluster-{job}",
            epoch=1,
            action=Action.PREPARE,
            grace_seconds=10.0,
            host=host,
            hosts=hosts,
            request=whole,
            object_store=access,
            output=OutputPlan(
                base_uri=f"s3://{bucket}/out/{job}/output",
                compression=(request.get("OutputDataConfig") or {}).get("CompressionType", "GZIP"),
                parts_uri=f"s3://{bucket}/out/{job}/parts",
            ),
            log_stream_epoch=1_700_000_000,
            vcpus=4,
            memory_bytes=8 << 30,
            accelerators=0,
        )
        for host in hosts
    ]
