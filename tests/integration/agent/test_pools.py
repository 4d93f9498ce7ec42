"""What a node keeps for a warm pool between its jobs, through kill -9 and outages, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_gang import access_to, gang
from tests.support.agent_process import AgentProcess
from tests.support.agent_protocol import ScriptedService
from tests.support.seaweed import s3_client
from tests.support.wait import wait_until
from trainshed_service.embedded.store import EmbeddedStore
from trainshed_worker.data.cache import LINKED_FROM
from trainshed_worker.protocol import Assignment, Phase, SlotState

SCRIPT = """
import json, os, pathlib
cache = pathlib.Path(os.environ["SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"])
channel = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
said = {"cache": sorted(p.name for p in cache.iterdir()), "data": (channel / "a.txt").read_text()}
said["names"] = sorted(str(p.relative_to(channel)) for p in channel.rglob("*"))
with open(channel / "a.txt", "r+") as file:
    file.write("spoilt")
(channel / "sub" / "b.txt").unlink()
(channel / "own").mkdir()
(channel / "own" / "file").write_text("x")
(channel / "a.txt").rename(channel / "own" / "moved")
said["after"] = sorted(str(p.relative_to(channel)) for p in channel.rglob("*"))
said["moved"] = (channel / "own" / "moved").read_text()
(cache / os.environ["TRAINING_JOB_NAME"]).write_text("kept")
(cache / "link").unlink(missing_ok=True)
(cache / "link").symlink_to("/etc/passwd")
print("SAID " + json.dumps(said))
"""
CHANNEL = {"a.txt": b"as it was", "sub/b.txt": b"second", "large.bin": bytes(LINKED_FROM)}


@pytest.fixture
def request_of(seaweed_store: EmbeddedStore, bucket: str, upload_code: Callable[..., dict[str, str]]) -> dict[str, Any]:
    client = s3_client(seaweed_store)
    for name, content in CHANNEL.items():
        client.put_object(Bucket=bucket, Key=f"train/{name}", Body=content)
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/train"}
    return {
        "HyperParameters": upload_code(SCRIPT),
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
    }


def said(service: ScriptedService, member: Assignment) -> dict[str, Any]:
    report = service.wait_report(member.id, Phase.FINISHED)
    assert report.failure is None
    text = service.text(member.attempt_id, "algo-1")
    return dict(json.loads(next(line for line in text if line.startswith("SAID ")).removeprefix("SAID ")))


def on_pool(member: Assignment, cluster_id: str, epoch: int, **changes: Any) -> Assignment:
    return member.model_copy(update={"cluster_id": cluster_id, "epoch": epoch, **changes})


def empty(service: ScriptedService, member: Assignment) -> None:
    service.remove(member.id)
    service.wait_for(lambda s: s.slots["node-0"].state is SlotState.EMPTY, what="the slot is empty")


def netd(node: Path, cluster_id: str) -> dict[str, Any]:
    return dict(json.loads((node / "clusters" / cluster_id / "netd-state.json").read_text()))


def test_a_pool_s_network_and_cache_stay_for_its_next_job_and_go_with_the_pool(
    agent: AgentProcess, service: ScriptedService, seaweed_store: EmbeddedStore, bucket: str, request_of: dict[str, Any]
) -> None:
    node = agent.home / "node"
    (first,) = gang(access_to(seaweed_store), bucket, **request_of)
    first = on_pool(first, "pool", 1)
    service.put(first)
    found = said(service, first)
    assert found["cache"] == []
    assert found["names"] == ["a.txt", "large.bin", "sub", "sub/b.txt"]
    # the job's own files are its own to change
    assert found["after"] == ["large.bin", "own", "own/file", "own/moved", "sub"]
    assert found["moved"] == "spoiltwas"
    network = netd(node, "pool")
    service.keep("pool")
    empty(service, first)

    agent.kill()
    service.reachable = False  # an agent that starts without a service knows from its disk what is kept
    agent.start()
    wait_until(lambda: (agent.log.read_text().count("cannot enroll")) > 0, what="the agent has started alone")
    assert netd(node, "pool") == network
    assert (node / "pools" / "pool" / "0" / first.job_name).exists()
    with service.changed:
        service.reachable = True
        service.changed.notify_all()

    (second,) = gang(access_to(seaweed_store), bucket, **request_of)
    second = on_pool(second, "pool", 2)
    service.put(second)
    found = said(service, second)
    assert found["cache"] == sorted(["link", first.job_name])
    assert found["data"] == "as it was"
    assert found["names"] == ["a.txt", "large.bin", "sub", "sub/b.txt"]
    assert netd(node, "pool") == network
    service.keep()  # its last job asked for no keep-alive
    assert (node / "pools" / "pool").exists()
    empty(service, second)
    wait_until(lambda: not (node / "pools" / "pool").exists(), what="the pool's cache is wiped")
    wait_until(lambda: not (node / "clusters" / "pool").exists(), what="the pool's network is removed")
    assert Path("/etc/passwd").read_text()


def test_another_cluster_s_job_on_the_same_slot_sees_nothing_of_a_pool(
    agent: AgentProcess, service: ScriptedService, seaweed_store: EmbeddedStore, bucket: str, request_of: dict[str, Any]
) -> None:
    (first,) = gang(access_to(seaweed_store), bucket, **request_of)
    service.put(on_pool(first, "pool", 1))
    said(service, first)
    service.keep("pool")
    empty(service, first)
    (other,) = gang(access_to(seaweed_store), bucket, **request_of)
    service.put(on_pool(other, "other", 2))
    assert said(service, other)["cache"] == []
    empty(service, other)
    wait_until(lambda: not (agent.home / "node" / "pools" / "other").exists(), what="the other's is wiped")
    assert (agent.home / "node" / "pools" / "pool" / "0").exists()
    service.keep()
    wait_until(lambda: not list((agent.home / "node" / "pools").iterdir()), what="the pool's cache is wiped")
    wait_until(lambda: not list((agent.home / "node" / "clusters").iterdir()), what="all networks are removed")


def test_a_lone_instance_goes_on_without_an_order_and_the_cache_holds_its_channel(
    agent: AgentProcess, service: ScriptedService, seaweed_store: EmbeddedStore, bucket: str, request_of: dict[str, Any]
) -> None:
    (member,) = gang(access_to(seaweed_store), bucket, **request_of)
    member = member.model_copy(update={"start_when_ready": True})
    service.steer = False
    service.put(member)
    report = service.wait_report(member.id, Phase.PART_UPLOADED)
    assert "running" in [span.name for span in report.spans]
    lower = agent.home / "node" / "assignments" / member.id / "input" / "lower" / "train"
    assert (lower / "a.txt").read_bytes() == CHANNEL["a.txt"]  # what the job wrote is in its own layer
    entries = {path.stat().st_ino for path in (agent.home / "node" / "cache" / "objects").rglob("*") if path.is_file()}
    assert (lower / "large.bin").stat().st_ino in entries
    assert (lower / "a.txt").stat().st_nlink == 1  # small ones are the job's own
    assert (agent.home / "node" / "cache").stat().st_mode & 0o777 == 0o700
