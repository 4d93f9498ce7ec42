"""What real clients sent, sent again in their order to a whole service: each answer has the recorded status and holds
what its client reads of it.

The service is real: API, log ingest, gateway, store; the machines only say that they run the jobs. Of an answer nothing
but its status was recorded, so what clients read is told here (READ). Where ours answers otherwise than the recorded
service did, OTHERWISE says so and why; a job that we refuse is then created without what we refuse, so that the calls
about it are answered too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.credentials import Credentials

from tests.integration.wire import recorded
from tests.integration.wire.replaying import LINES, Answered, Machines, Replay
from tests.support.api_process import ApiProcess
from tests.support.gateway import ACCOUNT, running_gateway
from tests.support.ports import free_port
from tests.support.processes import start_process
from tests.support.seaweed import seaweed_store
from trainshed_service.embedded.store import EmbeddedStore

__all__ = ["seaweed_store"]

REGION = "us-west-2"
NOT_OURS = {
    "BatchPutMetrics", "CreateExperiment", "CreateTrial", "CreateTrialComponent", "AssociateTrialComponent",
    "UpdateTrialComponent", "CreateHyperParameterTuningJob", "DescribeHyperParameterTuningJob",
    "StopHyperParameterTuningJob", "ListTrainingJobsForHyperParameterTuningJob", "GetServiceQuota",
}  # fmt: skip
"""Each is refused by its name, with 400."""
FAST_FILE = (400, "the FastFile input mode is not provided")
OTHERWISE = {
    "cli_s3_https[0]": (200, ""),  # the recorded store did not know trailing checksums
    "sm2_experiments[3]": (400, "only over TrainingJob"),
    "sm2_fit_mpi[3]": FAST_FILE,
    "sm2_fit_none[3]": FAST_FILE,
    "sm2_fit_ps[3]": FAST_FILE,
    "sm2_fit_pytorchddp[3]": FAST_FILE,
    "sm2_fit_smddp[3]": FAST_FILE,
    "sm2_fit_smp_sdp[3]": FAST_FILE,
    "sm2_fit_smp_v2[3]": FAST_FILE,
    "sm2_fit_torch_distributed[4]": FAST_FILE,
    "sm2_spot[0]": (400, "the Pipe input mode is not provided"),
    "sm2_update[0]": (400, "its warm pool was taken by"),  # by sm2_nowait_stop, whose job matches
    "sm3_iam_unknown[3]": (200, "SMRole"),  # the recorded service had no IAM
    "sm3_novalidate[3]": (200, "SMRole"),  # nor here
    "sm3_spot[2]": (400, "managed spot training is not provided"),
}
"""Call → status of ours, and what the answer says, where it is not what was recorded."""
ERRORS = {
    "cli_create_dup[0]": "ResourceInUse",
    "cli_describe_missing[0]": "ValidationException",
    "sm3_get_missing[0]": "ValidationException",
    "sm3_iam_denied[3]": "AccessDenied",
    "sm3_iam_denied[4]": "AccessDenied",
    "sm3_iam_denied[5]": "AccessDenied",
    "sm3_iam_denied[6]": "AccessDenied",
    "sm3_iam_notfound[3]": "NoSuchEntity",
}
"""Call → error code, for the errors that were recorded."""
DENIED = [("sm3_iam_denied", number) for number in (3, 4, 5, 6)]
"""Asked by a user who may use no role."""
UNKNOWN_ROLE = {("sm3_iam_notfound", 3): {"RoleName": "NoSuchRole"}}
ONE_PAGE = ["sm3_get_all_filter[4]"]
"""Asks for a second page: ours gave everything in one."""

SIZES = {"/bkt1/hi.txt": 3, "/bkt1/big.bin": 20_000_000}

READ: dict[str, tuple[str, ...]] = {
    "CreateTrainingJob": ("TrainingJobArn",),
    "DescribeTrainingJob": (
        "TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "SecondaryStatusTransitions",
        "AlgorithmSpecification", "RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition", "CreationTime",
        "LastModifiedTime", "ModelArtifacts",
    ),
    "ListTrainingJobs": ("TrainingJobSummaries",),
    "Search": ("Results",),
    "ListTags": ("Tags",),
    "AddTags": ("Tags",),
    "UpdateTrainingJob": ("TrainingJobArn",),
    "DescribeLogStreams": ("logStreams",),
    "GetLogEvents": ("events", "nextForwardToken", "nextBackwardToken"),
    "FilterLogEvents": ("events",),
    "GetMetricStatistics": ("Label", "Datapoints"),
    "ListMetrics": ("Metrics",),
    "GetMetricData": ("MetricDataResults",),
    "GetCallerIdentity": ("Account", "Arn", "UserId"),
    "GetRole": ("Role",),
    "SimulatePrincipalPolicy": ("EvaluationResults",),
    "StopTrainingJob": (),
    "DeleteTrainingJob": (),
    "DeleteTags": (),
}  # fmt: skip
"""Members that the recorded clients read of a success."""
READ_OF_ENDED = {"TrainingStartTime", "TrainingEndTime", "TrainingTimeInSeconds", "BillableTimeInSeconds"}


@pytest.fixture
def api(seaweed_store: EmbeddedStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    home = tmp_path_factory.mktemp("replayed home")
    with running_gateway(seaweed_store, home, region=REGION) as gateway:
        ports = {"gateway_port": gateway.port, "ingest_port": free_port()}
        api = ApiProcess(home, account_id=ACCOUNT, region=REGION, **ports)
        api.start()
        own = {"home": home, "port": api.port, **ports, **gateway.settings}
        ingest = start_process(
            "trainshed_service.logs.__main__", own, home / "logs.log", f"{api.settings.resolved_ingest_url}/healthz"
        )
        try:
            yield api
        finally:
            api.stop()
            ingest.terminate()
            ingest.wait()


@pytest.fixture
def replay(api: ApiProcess) -> Iterator[Replay]:
    for role in ("SMRole", "alice"):
        assert api.call("POST", "/v1/roles", {"name": role}).status_code == 201
    nobody = api.call("POST", "/v1/users", {"name": "nobody", "mayPass": []}).json()["accessKey"]
    denied = Credentials(nobody["accessKeyId"], nobody["secretAccessKey"])
    machines = Machines(api, api.settings.resolved_ingest_url, slots=48)
    yield Replay(api, machines, REGION, dict.fromkeys(DENIED, denied), UNKNOWN_ROLE)
    machines.close()


def test_each_recorded_request_is_answered_as_its_client_expects(replay: Replay) -> None:
    steps = recorded.recordings()
    faults = []
    seen = 0
    for answered in replay.run(steps):
        seen += 1
        try:
            check(answered)
        except (AssertionError, KeyError) as error:
            faults.append(f"{answered.where}: {answered.answer.status_code} {answered.answer.text[:300]}: {error!r}")
    assert faults == []
    assert replay.unasked == ONE_PAGE
    assert seen == sum(map(len, steps.values())) - len(ONE_PAGE)


def check(answered: Answered) -> None:
    call, answer = answered.call, answered.answer
    place = f"{answered.step}[{answered.number}]"
    status, says = OTHERWISE.get(place, (call["status"], ""))
    if call.get("op") in NOT_OURS:
        status, says = 400, "UnknownOperationException"
    assert answer.status_code == status
    assert says in answer.text
    if call["service"] == "s3":
        if answer.is_success:
            check_object(answered)
    elif answer.is_success:
        check_members(call["op"], answered)
    elif place in ERRORS:
        assert answered.body["Error"]["Code"] == ERRORS[place]
        assert answered.body["Error"]["Message"]
    else:
        assert place in OTHERWISE or call["op"] in NOT_OURS, "an error that nobody explained"


def check_members(operation: str, answered: Answered) -> None:
    body = answered.body
    missing = [member for member in READ[operation] if member not in body]
    assert missing == []
    asked = answered.call.get("body") or {}
    if operation == "DescribeTrainingJob":
        check_job(body)
    elif operation == "GetLogEvents":
        messages = [event["message"] for event in body["events"]]
        assert messages == ([] if "nextToken" in asked else list(LINES))
    elif operation == "DescribeLogStreams":
        assert all(stream["logStreamName"].startswith(asked["logStreamNamePrefix"]) for stream in body["logStreams"])
        assert body["logStreams"]
    elif operation == "GetRole":
        assert body["Role"]["Arn"].endswith(f":role/{asked['RoleName']}")
    elif operation == "GetCallerIdentity":
        assert body["Account"] == ACCOUNT
    elif operation == "SimulatePrincipalPolicy":
        assert [result["EvalDecision"] for result in body["EvaluationResults"]]
    elif operation == "GetMetricStatistics" and answered.step != "cli2_metrics":  # whose job had no such metric
        assert [point["Average"] for point in body["Datapoints"]] == [0.5]


def check_job(job: dict[str, Any]) -> None:
    if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
        assert job.keys() >= READ_OF_ENDED
        assert job["SecondaryStatusTransitions"][-1]["Status"] == job["SecondaryStatus"] == job["TrainingJobStatus"]
    if job["TrainingJobStatus"] == "Completed":
        assert job["ModelArtifacts"]["S3ModelArtifacts"].endswith("/output/model.tar.gz")
    if job["TrainingJobStatus"] == "Failed":
        assert "ValueError: no data" in job["FailureReason"]


def check_object(answered: Answered) -> None:
    call, answer = answered.call, answered.answer
    path, _, query = call["path"].partition("?")
    if call["method"] == "PUT" and not recorded.makes_bucket(call):
        assert answer.headers["ETag"]
        if "x-amz-server-side-encryption" in call["headers"]:
            assert answer.headers["x-amz-server-side-encryption"] == call["headers"]["x-amz-server-side-encryption"]
    elif call["method"] == "POST":
        assert ("<UploadId>" if query == "uploads" else "<ETag>") in answer.text
    elif answer.status_code == 206:
        assert answer.headers["Content-Range"].startswith("bytes 0-8388607/")
        assert len(answer.content) == 8388608
    elif call["method"] in ("GET", "HEAD") and path.count("/") == 2:
        assert int(answer.headers["Content-Length"]) == SIZES[path]
        assert answer.headers["ETag"]
        assert answer.headers["Last-Modified"]
    elif call["method"] == "GET":
        assert ("<ListBucketResult" if query else "<ListAllMyBucketsResult") in answer.text
