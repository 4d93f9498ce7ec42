"""The life of a job over the real wire: boto3 on one side, the agent protocol on the other."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from tests.integration.core.driving import create, describe, run_until, secondary, step_until, until_phase
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from trainshed_worker.protocol import Action, Phase

Join = Callable[..., ScriptedAgent]


def test_two_instances_run_to_completed(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    agent.exits = 0
    arn = create(api, "two", count=2)
    found = run_until(api, [agent], "two", "Completed")
    assert found["TrainingJobArn"] == arn == "arn:aws:sagemaker:us-east-1:123456789012:training-job/two"
    assert secondary(api, "two") == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(row["EndTime"] >= row["StartTime"] for row in found["SecondaryStatusTransitions"])
    assert found["TrainingEndTime"] >= found["TrainingStartTime"] >= found["CreationTime"]
    assert found["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/two/output/model.tar.gz"
    assert found["OutputDataConfig"]["KmsKeyId"] == ""
    actions = [action for _, action in agent.seen_actions]
    assert actions.index(Action.RUN) > actions.index(Action.PREPARE)
    assert actions.count(Action.ASSEMBLE) == 1


def test_no_process_starts_before_every_host_is_ready_with_an_address(api: ApiProcess, join: Join) -> None:
    first, second = join(api, slots=1, name="a"), join(api, slots=1, name="b")
    create(api, "gang", count=2)
    second.frozen_at["algo-1"] = second.frozen_at["algo-2"] = Phase.DOWNLOADING
    until = lambda: Phase.READY in first.phases().values() and Phase.DOWNLOADING in second.phases().values()  # noqa: E731
    step_until([first, second], until)
    for _ in range(5):
        first.step()
        second.step()
    assert list(first.phases().values()) == [Phase.READY]
    second.frozen_at.clear()
    until_phase([first, second], Phase.RUNNING, 1 + 1)
    for agent in (first, second):
        (held,) = agent.held.values()
        assert all(host.address for host in held.assignment.hosts)
        assert [host.name for host in held.assignment.hosts] == ["algo-1", "algo-2"]


def test_the_first_failure_ends_the_gang_and_gives_the_reason(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    create(api, "fails", count=2)
    until_phase([agent], Phase.RUNNING, 2)
    agent.exit("algo-2", 1, "ValueError: boom", local_rank=1, at=100.0)
    agent.report().raise_for_status()
    (peer,) = [item for item in agent.desired().assignments if item.host.name == "algo-1"]
    assert (peer.action, peer.grace_seconds) == (Action.STOP, 5.0), "not the 120 s of a stop that was asked for"
    agent.exit("algo-1", 139, "connection reset", signal=11, at=101.0)
    found = run_until(api, [agent], "fails", "Failed")
    assert found["FailureReason"] == "AlgorithmError: algo-2 (local rank 1): exit code 1: ValueError: boom"
    assert secondary(api, "fails") == ["Starting", "Downloading", "Training", "Uploading", "Failed"]
    assert Action.STOP in [action for _, action in agent.seen_actions]


def test_stop_gives_the_processes_their_grace_and_keeps_the_artifacts(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    create(api, "stopped", count=2)
    until_phase([agent], Phase.RUNNING, 2)
    api.client().stop_training_job(TrainingJobName="stopped")
    assert describe(api, "stopped")["TrainingJobStatus"] == "Stopping"
    api.client().stop_training_job(TrainingJobName="stopped")
    found = run_until(api, [agent], "stopped", "Stopped")
    assert "FailureReason" not in found
    assert secondary(api, "stopped")[-2:] == ["Stopping", "Stopped"]
    assert Action.ASSEMBLE in [action for _, action in agent.seen_actions]
    with pytest.raises(ClientError, match="because the training job is in status Stopped") as caught:
        api.client().stop_training_job(TrainingJobName="stopped")
    assert caught.value.response["Error"]["Code"] == "ValidationException"


def test_a_queued_job_says_why_it_waits_and_stops_at_once(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "first")
    until_phase([agent], Phase.RUNNING, 1)
    create(api, "second")

    def message() -> str:
        return str(describe(api, "second")["SecondaryStatusTransitions"][-1]["StatusMessage"])

    step_until([agent], lambda: "1 × ml.c5.xlarge; 0 free, 1 busy" in message(), what="the reason to wait")
    api.client().stop_training_job(TrainingJobName="second")
    found = describe(api, "second")
    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Stopped", "Stopped")
    agent.exit("algo-1")
    run_until(api, [agent], "first", "Completed")


def test_a_waiting_job_starts_when_a_node_joins_or_is_free(api: ApiProcess, join: Join) -> None:
    create(api, "early")
    create(api, "later")
    agent = join(api, slots=1)
    agent.exits = 0
    run_until(api, [agent], "early", "Completed")
    run_until(api, [agent], "later", "Completed")


def test_maximum_runtime_ends_as_stopped_with_artifacts(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "long", StoppingCondition={"MaxRuntimeInSeconds": 1})
    found = run_until(api, [agent], "long", "Stopped")
    assert found["SecondaryStatus"] == "MaxRuntimeExceeded"
    assert "1 s" in found["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert Action.ASSEMBLE in [action for _, action in agent.seen_actions]


def test_a_name_is_taken_until_its_job_is_deleted(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.exits = 0
    create(api, "once")
    with pytest.raises(
        ClientError, match="already exists \\(arn:aws:sagemaker:us-east-1:123456789012:training-job/once\\)"
    ) as caught:
        create(api, "once")
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    run_until(api, [agent], "once", "Completed")
    api.client().delete_training_job(TrainingJobName="once")
    step_until([agent], lambda: not api.client().list_training_jobs()["TrainingJobSummaries"], what="the job is gone")
    create(api, "once")
    run_until(api, [agent], "once", "Completed")


def test_how_far_a_download_is_stands_in_the_description(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    agent.frozen_at["algo-1"] = Phase.DOWNLOADING
    create(api, "slow")
    until_phase([agent], Phase.DOWNLOADING, 1)
    agent.report().raise_for_status()
    assert agent.last_request is not None
    said = agent.last_request.slots[0].assignment
    assert said is not None
    said.message, said.revision = "120 of 480 MB of channel train", said.revision + 1
    agent.send(agent.last_request).raise_for_status()
    (host,) = api.rest("/v1/training-jobs/slow")["Attempts"][0]["Hosts"]
    assert (host["Phase"], host["Message"]) == ("downloading", "120 of 480 MB of channel train")
    assert secondary(api, "slow")[-1] == "Downloading"
