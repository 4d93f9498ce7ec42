"""What one job leaves and the next on the same slot, or in the same warm pool, finds of it: the pool's cache alone."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import (
    job_request,
    log_lines,
    model_files,
    upload_source,
    wait_for_end,
)
from tests.support.stack import Stack
from tests.support.wait import wait_until
from trainshed_worker.sandbox import remove_tree

SCRIPTS = Path(__file__).parent / "scripts"
CHANNEL = {"a.txt": b"as it was stored", "b.bin": b"original bytes", "sub/c.txt": b"third"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="trainshed handover "))
    started = Stack.up(folder / "home", "--nodes", "1")
    try:
        yield started
    finally:
        started.down()
        remove_tree(folder)  # a job's tree is deeper than the standard library can delete


@pytest.fixture(scope="module")
def bucket(stack: Stack) -> str:
    client = stack.client("s3")
    for name, content in CHANNEL.items():
        client.put_object(Bucket=stack.bucket, Key=f"train/{name}", Body=content)
    return stack.bucket


def run_job(stack: Stack, bucket: str, script: str, word: str, keep: int, **members: Any) -> dict[str, Any]:
    """Run one of the scripts to its end; what it said, with its name and description."""
    source = upload_source(stack, bucket, {"train.py": (SCRIPTS / script).read_text()})
    name = f"handover-{uuid.uuid4().hex[:8]}"
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/train"}},
    }
    members.setdefault("Environment", {"LEFTOVER_MARK": "leftover-of-" + word})
    request = job_request(stack, bucket, name, source=source, program="train.py", InputDataConfig=[channel], **members)
    request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = keep
    stack.client("sagemaker").create_training_job(**request)
    described = wait_for_end(stack, name)
    lines = log_lines(stack, name)["algo-1"]
    assert described["TrainingJobStatus"] == "Completed", (described.get("FailureReason"), lines)
    said = next(line for line in lines if line.startswith(word + " "))
    return {"name": name, "described": described, **json.loads(said.removeprefix(word + " "))}


def pools(stack: Stack) -> Path:
    return stack.home / "node" / "pools"


def end_pool(stack: Stack, name: str) -> None:
    stack.client("sagemaker").update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})


def available(stack: Stack, name: str) -> bool:
    described = stack.client("sagemaker").describe_training_job(TrainingJobName=name)
    return bool((described.get("WarmPoolStatus") or {}).get("Status") == "Available")


def test_nothing_but_the_pool_s_cache_reaches_the_next_job(stack: Stack, bucket: str) -> None:
    mark = {"LEFTOVER_MARK": "leftover-" + uuid.uuid4().hex}
    first = run_job(stack, bucket, "plant.py", "PLANTED", 600, Environment=mark)
    # it did what it could: else the next job's clean view would prove little
    assert first["listening"] and first["shm"] >= 0 and first["msg"] >= 0 and first["sem"] >= 0 and first["mq"] >= 0
    assert first["channel written"] == "changed by the first job"
    assert (first["mount"], first["mount errno"]) == (-1, 1)
    assert first["keyring"] == -1
    assert first["cache before"] == []
    written = [path for path, done in first.items() if path.startswith("/") and done is True]
    assert {"/tmp/leftover", "/dev/shm/leftover", "/opt/ml/code/leftover"} <= set(written)
    assert [path for path in written if path.endswith("/sitecustomize.py")]
    assert "written" in model_files(stack, first["described"])
    wait_until(lambda: available(stack, first["name"]), what="the pool is available")

    second = run_job(stack, bucket, "look.py", "FOUND", 0, Environment=mark)
    assert second["processes"] == []
    assert second["tmp"] == first["tmp before"]
    for place in ("var tmp", "shm", "run", "spool", "home", "model", "checkpoints", "config", "modules"):
        assert second[place] == [], place
    assert second["code"] == ["train.py"]
    assert second["hook ran"] is False
    assert second["in torch"] is False
    assert second["preload"] == [None, False]
    assert second["variables"] == []
    assert second["shell"] == ""
    assert second["port is closed"] and second["loopback is closed"] and second["abstract is closed"]
    assert second["sysv"] == [-1, -1, -1]
    assert second["mq"] == -1
    assert second["keyring"] == -1
    assert second["mounts"] == []
    assert second["channel"] == {name: content.decode() for name, content in CHANNEL.items()}
    assert model_files(stack, second["described"]) == {"only": b"mine"}
    assert second["cache is writable"] and second["cache's owner is me"]
    pool = stack.client("sagemaker").describe_training_job(TrainingJobName=first["name"])["WarmPoolStatus"]
    if pool["Status"] == "Reused":
        assert pool["ReusedByJob"] == second["name"]
        assert second["cache"] == ["closed", "deep", "kept", "link", "pipe", "token"]
        assert second["kept is whole"]
        assert second["old token"] in (401, 403, 404)
    else:
        assert second["cache"] == []
    # the second job asked for no keep-alive: the pool, its cache and its network are over
    wait_until(lambda: not list(pools(stack).iterdir()), what="the pool's cache is wiped")
    wait_until(lambda: not list((stack.home / "node" / "clusters").iterdir()), what="the pool's network is removed")


def test_a_pool_that_is_ended_takes_its_cache_and_network_along(stack: Stack, bucket: str) -> None:
    first = run_job(stack, bucket, "plant.py", "PLANTED", 600)
    wait_until(lambda: available(stack, first["name"]), what="the pool is available")
    (cluster,) = pools(stack).iterdir()
    assert (stack.home / "node" / "clusters" / cluster.name / "netd-state.json").exists()
    end_pool(stack, first["name"])
    wait_until(lambda: not cluster.exists(), what="the pool's cache is wiped")
    wait_until(lambda: not list((stack.home / "node" / "clusters").iterdir()), what="the pool's network is removed")
    second = run_job(stack, bucket, "look.py", "FOUND", 0)
    assert second["cache"] == []
