"""A second opinion on the container contract: the public `sagemaker-training` package as the job's own command.

One job gets the package by its requirements.txt and runs `train` inside the sandbox on two instances; another runs
the same script by our launcher. The toolkit must find everything that it expects, the script the same in both.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import job_request, log_lines, model_files, upload_source, wait_for_end
from tests.support.stack import Stack

SHOW = (Path(__file__).parent / "show.py").read_text()
HYPERPARAMETERS = {"epochs": "3", "name": '"two words"', "flag": "true", "rates": "[0.1, 0.2]", "plain": "bare"}

# The toolkit asks the machine for these, or reports its own way of being started.
THEIR_OWN = {"SM_NUM_CPUS", "SM_NUM_GPUS", "SM_NUM_NEURONS", "SM_FRAMEWORK_MODULE", "SM_TRAINING_ENV", "SM_LOG_LEVEL"}
# Members of SM_TRAINING_ENV of the same kind, and what names the job itself.
THEIR_OWN_MEMBERS = {"num_cpus", "num_gpus", "num_neurons", "framework_module", "log_level", "job_name"}


def differing_members(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """(theirs, ours) of each member of SM_TRAINING_ENV that both have and that is not the same."""
    their, our = (json.loads(found["variables"]["SM_TRAINING_ENV"]) for found in (theirs, ours))
    both = their.keys() & our.keys() - THEIR_OWN_MEMBERS
    assert {"hosts", "current_host", "hyperparameters", "channel_input_dirs", "resource_config"} <= both
    return {name: (their[name], our[name]) for name in both if their[name] != our[name]}


def run(stack: Stack, bucket: str, name: str, archive: str, **algorithm: Any) -> dict[str, dict[str, Any]]:
    """What the script found on each host of the finished job."""
    stack.client("s3").put_object(Bucket=bucket, Key=f"{name}/train/a.txt", Body=b"a")
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{bucket}/{name}/train",
        "S3DataDistributionType": "FullyReplicated",
    }
    request = job_request(
        stack,
        bucket,
        name,
        program="show.py",
        source=archive,
        hyperparameters={**HYPERPARAMETERS, "sagemaker_region": '"us-east-1"'},
        count=2,
        InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
    )
    request["AlgorithmSpecification"].update(algorithm)
    stack.client("sagemaker").create_training_job(**request)
    described = wait_for_end(stack, name, timeout=400)
    lines = log_lines(stack, name)
    assert described["TrainingJobStatus"] == "Completed", (described.get("FailureReason"), lines)
    assert set(model_files(stack, described)) == {"algo-1.json", "algo-2.json"}
    found = {}
    for host, read in lines.items():
        (line,) = [text for text in read if text.startswith("FOUND ")]
        found[host] = json.loads(line.removeprefix("FOUND "))
    return found


@pytest.mark.needs("gcc")
def test_the_toolkits_train_finds_everything_and_agrees_with_our_launcher(
    stack: Stack, bucket: str, job_name: str
) -> None:
    archive = upload_source(stack, bucket, {"show.py": SHOW, "requirements.txt": "sagemaker-training\n"})
    theirs = run(stack, bucket, f"{job_name}-tk", archive, ContainerEntrypoint=["train"])
    ours = run(stack, bucket, f"{job_name}-own", archive)
    assert set(theirs) == set(ours) == {"algo-1", "algo-2"}
    for host in ours:
        assert ours[host]["argv"] == theirs[host]["argv"]
        assert ours[host]["channel"] == theirs[host]["channel"] == ["a.txt"]
        assert ours[host]["resources"] == theirs[host]["resources"]
        differing = {
            name: (value, ours[host]["variables"].get(name))
            for name, value in theirs[host]["variables"].items()
            if name not in THEIR_OWN and ours[host]["variables"].get(name) != value and f"{job_name}-tk" not in value
        }
        assert differing == {}
        assert differing_members(theirs[host], ours[host]) == {}
