"""Reports of real users about the API: pagination, throttling, names, limits. One test for each."""

import itertools
import json
import statistics
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tests.support.depth import DEEP, size
from tests.support.jobs import events_of, job_request, log_lines, run_script, upload_source, wait_for_end, wait_for_line
from tests.support.stack import Stack
from tests.support.wait import patient

SLEEP = {"t.py": "import signal\nprint('up', flush=True)\nsignal.pause()\n"}
NEVER_PLACED = 99


def error_of(call, **arguments) -> tuple[str, str]:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    error = refused.value.response["Error"]
    return error["Code"], error["Message"]


def queue_jobs(stack: Stack, bucket: str, prefix: str, count: int) -> list[str]:
    """Jobs that wait for ever (more instances than there are), so that they cost nothing."""
    client = stack.client("sagemaker", config=Config(max_pool_connections=8))
    names = [f"{prefix}-{number:04d}" for number in range(count)]

    def create(name: str) -> None:
        client.create_training_job(**job_request(stack, bucket, name, count=NEVER_PLACED))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, names))
    return names


def stop_jobs(stack: Stack, names: list[str]) -> None:
    client = stack.client("sagemaker", config=Config(max_pool_connections=8))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: client.stop_training_job(TrainingJobName=name), names))


def test_pages_stay_stable_while_jobs_are_added(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker")
    prefix = job_name[-8:]
    old = queue_jobs(stack, bucket, f"{prefix}-old", 9)
    page = client.list_training_jobs(NameContains=prefix, MaxResults=3)
    seen = [job["TrainingJobName"] for job in page["TrainingJobSummaries"]]
    created = [job["CreationTime"] for job in page["TrainingJobSummaries"]]
    new = queue_jobs(stack, bucket, f"{prefix}-new", 5)
    while token := page.get("NextToken"):
        page = client.list_training_jobs(NameContains=prefix, MaxResults=3, NextToken=token)
        seen += [job["TrainingJobName"] for job in page["TrainingJobSummaries"]]
        created += [job["CreationTime"] for job in page["TrainingJobSummaries"]]
    assert sorted(seen) == sorted(old)
    assert created == sorted(created, reverse=True)
    stop_jobs(stack, old + new)


def test_a_token_that_was_tampered_with_is_refused(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker")
    prefix = job_name[-8:]
    names = queue_jobs(stack, bucket, prefix, 3)
    token = client.list_training_jobs(NameContains=prefix, MaxResults=1)["NextToken"]
    middle = len(token) // 2
    changed = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    assert error_of(client.list_training_jobs, NameContains=prefix, MaxResults=1, NextToken=changed)[0] == (
        "ValidationException"
    )
    assert error_of(client.list_training_jobs, NameContains="other", MaxResults=1, NextToken=token)[0] == (
        "ValidationException"
    )
    stop_jobs(stack, names)


def test_a_filter_in_the_future_ends_at_once(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker")
    names = queue_jobs(stack, bucket, job_name[-8:], size(20, 1_000))
    start = time.monotonic()
    page = client.list_training_jobs(LastModifiedTimeAfter=datetime.now(UTC) + timedelta(days=1))
    assert time.monotonic() - start < 1
    assert page["TrainingJobSummaries"] == [] and "NextToken" not in page
    stop_jobs(stack, names)


def test_a_burst_from_fifty_threads_is_accepted(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker", config=Config(max_pool_connections=50, retries={"mode": "standard"}))
    prefix = job_name[-8:]
    names = [f"{prefix}-{number:03d}" for number in range(200)]
    requests = [job_request(stack, bucket, name, count=NEVER_PLACED) for name in names]
    with ThreadPoolExecutor(50) as pool:
        arns = list(pool.map(lambda request: client.create_training_job(**request)["TrainingJobArn"], requests))
    assert len(set(arns)) == 200
    paginator = client.get_paginator("list_training_jobs")
    listed = [
        job["TrainingJobName"]
        for page in paginator.paginate(NameContains=prefix, PaginationConfig={"PageSize": 100})
        for job in page["TrainingJobSummaries"]
    ]
    assert sorted(listed) == names
    stop_jobs(stack, names)


def test_whoever_reads_everything_is_not_throttled(stack: Stack, bucket: str, job_name: str):
    """The names page by page, and every job by 16 threads, with botocore's default retries."""
    prefix = job_name[-8:]
    names = queue_jobs(stack, bucket, prefix, size(200, 5_000))
    client = stack.client("sagemaker", config=Config(max_pool_connections=16))
    pages = client.get_paginator("list_training_jobs").paginate(NameContains=prefix)
    listed = [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]
    assert sorted(listed) == names
    with ThreadPoolExecutor(16) as pool:
        described = list(pool.map(lambda name: client.describe_training_job(TrainingJobName=name), listed))
    assert [job["TrainingJobName"] for job in described] == listed
    assert {job["ResponseMetadata"]["RetryAttempts"] for job in described} == {0}
    stop_jobs(stack, names)


def test_of_two_creates_of_one_name_one_wins(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker", config=Config(max_pool_connections=8, retries={"total_max_attempts": 1}))
    request = job_request(stack, bucket, job_name, count=NEVER_PLACED)

    def create(_: int) -> str:
        try:
            return client.create_training_job(**request)["TrainingJobArn"]
        except ClientError as error:
            assert error.response["Error"]["Code"] == "ResourceInUse"
            assert "Training job names must be unique within an AWS account and region" in str(error)
            return ""

    with ThreadPoolExecutor(8) as pool:
        arns = [arn for arn in pool.map(create, range(8)) if arn]
    assert len(arns) == 1
    stop_jobs(stack, [job_name])


def test_stop_answers_at_once_whatever_the_state(stack: Stack, bucket: str, job_name: str):
    client = stack.client("sagemaker")
    done, failed, running = (f"{job_name[-8:]}-{state}" for state in ("done", "failed", "running"))
    run_script(stack, bucket, done, {"t.py": "print('done')\n"}, "t.py")
    run_script(stack, bucket, failed, {"t.py": "raise SystemExit(3)\n"}, "t.py")
    run_script(stack, bucket, running, SLEEP, "t.py")
    for name, status in ((done, "Completed"), (failed, "Failed")):
        assert wait_for_end(stack, name)["TrainingJobStatus"] == status
    wait_for_line(stack, running, "up")
    client.stop_training_job(TrainingJobName=running)
    client.stop_training_job(TrainingJobName=running)
    assert wait_for_end(stack, running)["TrainingJobStatus"] == "Stopped"
    rejected = "The request was rejected because the training job is in status {}."
    answers = {name: rejected.format(status) for name, status in ((done, "Completed"), (failed, "Failed"))}
    answers |= {running: rejected.format("Stopped"), "never-was": "Requested resource not found."}
    client = stack.client("sagemaker", config=Config(retries={"total_max_attempts": 1}))
    for name, words in answers.items():
        took = []
        for _ in range(7):
            start = time.monotonic()
            assert error_of(client.stop_training_job, TrainingJobName=name) == ("ValidationException", words)
            took.append(time.monotonic() - start)
        assert statistics.median(took) < patient(0.2), (name, took)


@pytest.mark.parametrize(
    ("spot", "limits"),
    [
        (False, {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120}),
        (True, {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 30}),
    ],
)
def test_max_wait_is_for_spot_only_and_no_less_than_max_runtime(stack: Stack, bucket: str, job_name: str, spot, limits):
    request = job_request(stack, bucket, job_name, StoppingCondition=limits, EnableManagedSpotTraining=spot)
    code, message = error_of(stack.client("sagemaker").create_training_job, **request)
    assert code == "ValidationException" and "MaxWaitTimeInSeconds" in message


def post(stack: Stack, target: str, body: dict) -> tuple[int, dict]:
    """A signed call of raw JSON, as curl would send it."""
    request = AWSRequest(
        "POST",
        stack.env["AWS_ENDPOINT_URL"] + "/",
        data=json.dumps(body),
        headers={"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"},
    )
    credentials = Credentials(stack.env["AWS_ACCESS_KEY_ID"], stack.env["AWS_SECRET_ACCESS_KEY"])
    SigV4Auth(credentials, "sagemaker", stack.env["AWS_REGION"]).add_auth(request)
    prepared = request.prepare()
    call = urllib.request.Request(prepared.url, prepared.body.encode(), dict(prepared.headers), method="POST")
    try:
        with urllib.request.urlopen(call, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_an_unknown_member_is_named(stack: Stack, bucket: str, job_name: str):
    body = job_request(stack, bucket, job_name, count=NEVER_PLACED, metric_definitons=[])
    status, _ = post(stack, "SageMaker.CreateTrainingJob", body)
    assert status == 200
    shown = json.loads(stack.trainshed("describe", job_name).stdout)
    assert "metric_definitons" in json.dumps(shown["Notices"])
    call = urllib.request.Request(
        f"{stack.env['AWS_ENDPOINT_URL']}/v1/training-jobs",
        json.dumps(body | {"TrainingJobName": f"{job_name}-rest"[:63]}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {stack.env['TRAINSHED_TOKEN']}"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(call, timeout=30)
    assert refused.value.code == 400 and "metric_definitons" in refused.value.read().decode()
    stop_jobs(stack, [job_name])


def test_names_are_checked_as_aws_checks_them(stack: Stack, bucket: str):
    client = stack.client("sagemaker")
    code, message = error_of(client.list_training_jobs, NameContains="a b")
    assert code == "ValidationException" and "nameContains" in message
    assert client.list_training_jobs(NameContains="a" * 63)["TrainingJobSummaries"] == []
    assert error_of(client.list_training_jobs, NameContains="a" * 64)[0] == "ValidationException"
    code, message = error_of(client.create_training_job, **job_request(stack, bucket, "n" * 64))
    assert code == "ValidationException" and "Member must have length less than or equal to 63" in message


def test_listing_does_not_slow_the_start_of_jobs(stack: Stack, bucket: str, job_name: str):
    """A job is submitted each second; then again while others list 50 times a second."""
    seconds = size(2, 60)
    quiet = waits_for_a_place(stack, bucket, f"{job_name}-quiet", seconds)
    client = stack.client("sagemaker", config=Config(max_pool_connections=8, retries={"total_max_attempts": 1}))
    done, asked = threading.Event(), itertools.count(1)
    begin = time.monotonic()

    def list_jobs() -> int:
        """The calls of this thread, each sent when its turn of the 50 a second has come."""
        for calls in itertools.count():
            if done.wait(max(0.0, begin + next(asked) / 50 - time.monotonic())):
                return calls
            assert len(client.list_training_jobs(MaxResults=100)["TrainingJobSummaries"]) >= 1
        raise AssertionError("unreachable")

    with ThreadPoolExecutor(8) as pool:
        listers = [pool.submit(list_jobs) for _ in range(8)]
        try:
            busy = waits_for_a_place(stack, bucket, f"{job_name}-busy", seconds)
        finally:
            done.set()
        calls = sum(lister.result() for lister in listers)
        rate = calls / (time.monotonic() - begin)
    print(f"{rate:.1f} lists/s; longest until placed: {max(quiet):.4f} s quiet, {max(busy):.4f} s while others list")
    assert calls >= 8
    if DEEP:
        assert rate > 45 / patient(1)
        assert max(busy) <= 1.1 * max(quiet) + 0.01 * patient(1), (sorted(quiet), sorted(busy))


def waits_for_a_place(stack: Stack, bucket: str, prefix: str, count: int) -> list[float]:
    """Submit a job a second, and let each run; the seconds from creation to placement."""
    client = stack.client("sagemaker")
    source = upload_source(stack, bucket, {"t.py": "print('ran')\n"})
    names = [f"{prefix}-{number:02d}" for number in range(count)]
    for name in names:
        begin = time.monotonic()
        client.create_training_job(**job_request(stack, bucket, name, source=source, program="t.py"))
        time.sleep(max(0.0, begin + 1 - time.monotonic()))
    waits = []
    for name in names:
        assert wait_for_end(stack, name)["TrainingJobStatus"] == "Completed"
        assert log_lines(stack, name)["algo-1"].count("ran") == 1
        at = {event["kind"]: event["at"] for event in events_of(stack, name)}
        waits.append(at["job.placed"] - at["job.created"])
    return waits
