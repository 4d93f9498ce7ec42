"""The channels of a request: what each host gets of them and how they are called.

One place decides defaults (input mode, distribution, channel host sets), so that inputdataconfig.json, SM_CHANNEL_* and
the download never differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainshed_worker.protocol import Assignment, ClusterHost


@dataclass(frozen=True)
class Channel:
    """One entry of InputDataConfig as one host sees it."""

    name: str
    input_mode: str
    """File, FastFile or Pipe: the channel's own, else the job's, else File."""
    s3_uri: str | None
    """None for a channel that is no S3 data source (file systems)."""
    s3_data_type: str
    distribution: str
    """FullyReplicated or ShardedByS3Key."""
    shard_index: int
    """This host's number among the hosts that have the channel."""
    shard_count: int
    content_type: str | None
    compression: str
    record_wrapper: str
    shuffle_seed: int | None


def _has_channel(source: Mapping[str, Any], host: ClusterHost) -> bool:
    groups = source.get("InstanceGroupNames") or []
    return not groups or host.instance_group in groups


def channels_of(request: Mapping[str, Any], host: ClusterHost, hosts: Sequence[ClusterHost]) -> list[Channel]:
    """Channels that `host` has, in the request's order; one limited to other instance groups is not among them."""
    job_mode = (request.get("AlgorithmSpecification") or {}).get("TrainingInputMode") or "File"
    found: list[Channel] = []
    for entry in request.get("InputDataConfig") or []:
        source = (entry.get("DataSource") or {}).get("S3DataSource") or {}
        if not _has_channel(source, host):
            continue
        members = [member.name for member in sorted(hosts, key=lambda h: h.rank) if _has_channel(source, member)]
        shuffle = entry.get("ShuffleConfig") or {}
        found.append(
            Channel(
                name=entry["ChannelName"],
                input_mode=entry.get("InputMode") or job_mode,
                s3_uri=source.get("S3Uri"),
                s3_data_type=source.get("S3DataType") or "S3Prefix",
                distribution=source.get("S3DataDistributionType") or "FullyReplicated",
                shard_index=members.index(host.name),
                shard_count=len(members),
                content_type=entry.get("ContentType"),
                compression=entry.get("CompressionType") or "None",
                record_wrapper=entry.get("RecordWrapperType") or "None",
                shuffle_seed=shuffle.get("Seed"),
            )
        )
    return found


def channels(assignment: Assignment) -> list[Channel]:
    """`channels_of` for the assignment's own host."""
    return channels_of(assignment.request, assignment.host, assignment.hosts)
