"""The shape of what is sent, against AWS's documented event, and what is never in it."""

from __future__ import annotations

import json
import uuid

from tests.unit.notifications.conftest import POOL
from trainshed_service.notifications import messages, words
from trainshed_service.notifications.messages import MAX_BODY_BYTES, Happening, Place
from trainshed_service.notifications.receivers import FULL, Sight

PLACE = Place("123456789012", "us-east-1")
ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/mine"
AT = 1_583_831_889.05
ENDED = {
    "jobId": 1,
    "jobArn": ARN,
    "userId": 2,
    "instanceType": "ml.g5.xlarge",
    "instanceCount": 3,
    "keepAliveSeconds": 0,
    "wallSeconds": 200.0,
}
DESCRIBED = {
    "TrainingJobName": "mine",
    "TrainingJobArn": ARN,
    "TrainingJobStatus": "Deleting",
    "SecondaryStatus": "Stopped",
    "HyperParameters": {"Hyper": "Parameters"},
    "Environment": {"TOKEN": "s3cret"},
    "RoleArn": "arn:aws:iam::123456789012:role/SMRole",
    "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 3, "VolumeSizeInGB": 20},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "CreationTime": AT - 300,
    "TrainingStartTime": AT - 200,
    "TrainingEndTime": AT,
    "LastModifiedTime": AT,
    "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": AT - 300, "EndTime": AT, "StatusMessage": "x"}],
}


def ended(kind: str = "job.completed", **data: object) -> Happening:
    return Happening(7, AT, kind, "job/mine", "Training job ended", {**ENDED, **data})


def test_the_end_of_a_job_has_the_members_of_awss_event() -> None:
    event = ended(status="Completed", secondaryStatus="Completed")
    message = messages.job_ended(event, DESCRIBED, {"team": "vision"}, PLACE, AT)
    body = json.loads(message.encoded())
    assert set(body) == {
        "version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail",
    }  # fmt: skip
    assert body["version"] == "0" and uuid.UUID(body["id"])
    assert body["detail-type"] == "SageMaker Training Job State Change"
    assert (body["source"], body["account"], body["region"]) == ("aws.sagemaker", "123456789012", "us-east-1")
    assert body["time"] == "2020-03-10T09:18:09Z"
    assert body["resources"] == [ARN]
    detail = body["detail"]
    assert (detail["TrainingJobStatus"], detail["SecondaryStatus"]) == ("Completed", "Completed"), "as it was then"
    assert detail["CreationTime"] == 1583831589050 and detail["TrainingEndTime"] == 1583831889050
    assert detail["SecondaryStatusTransitions"][0]["StartTime"] == 1583831589050
    assert detail["Tags"] == {"team": "vision"}
    assert "FailureReason" not in detail and "Environment" not in detail
    assert "s3cret" not in message.encoded().decode()
    assert message.text.startswith("Job mine completed after 3 min 20 s on 3 × ml.g5.xlarge.")


def test_a_failure_says_why_also_when_the_job_is_deleted() -> None:
    event = ended("job.failed", status="Failed", secondaryStatus="Failed", failureReason="AlgorithmError: boom")
    message = messages.job_ended(event, None, {}, PLACE, AT)
    assert message.body["detail"]["FailureReason"] == "AlgorithmError: boom"
    assert message.body["detail"]["TrainingJobName"] == "mine"
    assert "Reason: AlgorithmError: boom" in message.text
    assert (message.title, message.level) == ("Trainshed: job mine failed", "failure")


def test_a_job_that_keeps_its_instances_tells_how_to_extend_and_end_that() -> None:
    event = ended(status="Completed", keepAliveSeconds=600)
    message = messages.job_ended(event, DESCRIBED, {}, Place("1", "r", max_keep_alive_seconds=900), AT)
    assert message.body["detail"]["Trainshed"]["Commands"] == {
        "Extend": "trainshed keep-alive mine 900",
        "End": "trainshed keep-alive mine 0",
        "ExtendAws": "aws sagemaker update-training-job --training-job-name mine "
        "--resource-config KeepAlivePeriodInSeconds=900",
        "EndAws": "aws sagemaker update-training-job --training-job-name mine "
        "--resource-config KeepAlivePeriodInSeconds=0",
    }
    assert "trainshed keep-alive mine 900" in message.text
    assert "Commands" not in messages.job_ended(ended(), DESCRIBED, {}, PLACE, AT).body["detail"]["Trainshed"]


def test_the_same_event_has_the_same_id_and_another_one_another() -> None:
    first = messages.job_ended(ended(), DESCRIBED, {}, PLACE, AT)
    again = messages.job_ended(ended(), None, {}, PLACE, AT + 100)
    assert first.body["id"] == again.body["id"]
    assert first.body["id"] != messages.job_ended(ended(), None, {}, Place("999999999999", "r"), AT).body["id"]


def test_a_body_stays_within_eventbridges_limit_and_says_what_it_left_out() -> None:
    huge = {**DESCRIBED, "HyperParameters": {f"p{index}": "ä" * 2000 for index in range(100)}}
    content = messages.job_ended(ended(), huge, {}, PLACE, AT).encoded()
    assert len(content) <= MAX_BODY_BYTES
    detail = json.loads(content)["detail"]
    assert detail["Trainshed"]["LeftOut"] == ["HyperParameters"]
    assert detail["SecondaryStatusTransitions"]


def test_pools_name_their_job_only_to_those_who_may_see_it() -> None:
    event = Happening(8, AT, "pool.ended", "job/mine", "…", {**POOL, "why": "job other has waited", "keptSeconds": 61})
    seen = messages.pool_changed(event, FULL, PLACE, AT)
    assert seen.body["detail-type"] == "Trainshed Warm Pool Ended"
    assert seen.body["resources"] == [POOL["jobArn"]]
    assert "job other has waited" in seen.text and seen.body["detail"]["Reason"]
    unseen = messages.pool_changed(event, Sight(named=False, may_change=False), PLACE, AT)
    assert unseen.body["resources"] == []
    for hidden in ("mine", "other", "Commands"):
        assert hidden not in unseen.text + json.dumps(unseen.body["detail"])
    assert unseen.body["detail"]["InstanceCount"] == 4


def test_a_pool_about_to_expire_gives_the_commands_to_those_who_may_use_them() -> None:
    data = {**POOL, "until": AT + 300, "secondsLeft": 300}
    event = Happening(9, AT, "pool.expiring", "job/mine", "…", data)
    message = messages.pool_changed(event, FULL, PLACE, AT)
    assert message.body["detail"]["Status"] == "Expiring"
    assert (message.body["detail"]["SecondsLeft"], message.body["detail"]["Until"]) == (300, 1583832189050)
    assert "trainshed keep-alive mine 1800" in message.text and "another 5 min" in message.text
    looked = messages.pool_changed(event, Sight(named=True, may_change=False), PLACE, AT)
    assert "mine" in looked.text and "keep-alive" not in looked.text


def test_a_late_message_says_so() -> None:
    assert "could not be delivered earlier" in messages.job_ended(ended(), None, {}, PLACE, AT + 3600).text
    assert "could not be delivered earlier" not in messages.job_ended(ended(), None, {}, PLACE, AT + 60).text


def test_lengths_of_time() -> None:
    assert [words.duration(each) for each in (0.4, 59, 60, 200, 3600, 7500)] == [
        "0 s", "59 s", "1 min", "3 min 20 s", "1 h", "2 h 5 min",
    ]  # fmt: skip
