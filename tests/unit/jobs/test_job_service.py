"""The service over jobs with real databases: creation, listing, searching, tags, and how AWS's own model reads it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import botocore.session
import pytest
from botocore.parsers import create_parser

from trainshed_service.clock import ManualClock
from trainshed_service.core import Core
from trainshed_service.identity import Principal
from trainshed_service.identity.policy import evaluate
from trainshed_service.jobs import JobQuery
from trainshed_service.jobs.grants import policy_of
from trainshed_service.wire import ApiError

USER = Principal("user", "admin", "123456789012", "arn:aws:iam::123456789012:user/admin", is_admin=True, user_id=1)


def request(name: str, **members: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/R",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"},
        "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        **members,
    }


async def create(core: Core, name: str, **members: Any) -> str:
    return await core.services.jobs.create(request(name, **members), principal=USER, raw_body=b"{}")


async def test_of_concurrent_creates_of_one_name_exactly_one_wins(core: Core) -> None:
    results = await asyncio.gather(*(create(core, "same") for _ in range(20)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, ApiError)]
    assert len(refused) == 19
    assert {error.code for error in refused} == {"ResourceInUse"}
    assert "already exists (arn:aws:sagemaker:us-east-1:123456789012:training-job/same)" in refused[0].message


async def test_names_that_differ_by_case_alone_are_one_name(core: Core) -> None:
    await create(core, "Case")
    with pytest.raises(ApiError) as caught:
        await create(core, "case")
    assert caught.value.code == "ResourceInUse"


async def test_describe_is_what_botocores_model_says(core: Core) -> None:
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/data/"}},
    }
    await create(
        core,
        "shape",
        HyperParameters={"a": "1"},
        InputDataConfig=[channel],
        ProfilerConfig={"S3OutputPath": "s3://bucket/p", "DisableProfiler": False},
        Environment={"X": "y"},
        CheckpointConfig={"S3Uri": "s3://bucket/ck"},
        RetryStrategy={"MaximumRetryAttempts": 2},
    )
    answer = await core.services.jobs.describe("shape")
    shape = botocore.session.get_session().get_service_model("sagemaker").shape_for("DescribeTrainingJobResponse")
    assert set(answer) <= set(shape.members)
    assert set(shape.required_members) <= set(answer)
    body = {"status_code": 200, "headers": {}, "body": json.dumps(answer).encode()}
    parsed = create_parser("json").parse(body, shape)
    assert parsed["CreationTime"].timestamp() == answer["CreationTime"]
    assert parsed["ResourceConfig"] == request("shape")["ResourceConfig"]
    assert parsed["OutputDataConfig"] == {
        "KmsKeyId": "",
        "CompressionType": "GZIP",
        "S3OutputPath": "s3://bucket/out/",
    }
    assert parsed["InputDataConfig"] == [{**channel, "CompressionType": "None", "RecordWrapperType": "None"}]
    assert parsed["ModelArtifacts"] == {"S3ModelArtifacts": "s3://bucket/out/shape/output/model.tar.gz"}
    (transition,) = parsed["SecondaryStatusTransitions"]
    assert transition["Status"] == "Starting" and transition["StatusMessage"]
    assert answer["EnableManagedSpotTraining"] is False


async def test_pages_neither_repeat_nor_skip_while_jobs_are_added(core: Core, clock: ManualClock) -> None:
    for number in range(7):
        clock.advance(1)
        await create(core, f"old-{number}")
    query = JobQuery(limit=3)
    page = await core.services.jobs.list(query)
    names = [job["TrainingJobName"] for job in page.summaries]
    assert names == ["old-6", "old-5", "old-4"]
    for number in range(5):
        clock.advance(1)
        await create(core, f"new-{number}")
    while page.cursor is not None:
        page = await core.services.jobs.list(query, page.cursor)
        names += [job["TrainingJobName"] for job in page.summaries]
    assert names == [f"old-{number}" for number in reversed(range(7))]


@pytest.mark.parametrize("sort_by", ["Name", "CreationTime", "Status"])
@pytest.mark.parametrize("descending", [True, False])
async def test_every_order_pages_completely(core: Core, sort_by: str, descending: bool) -> None:
    for number in range(9):  # one and the same creation time
        await create(core, f"j{number}")
    for number in (2, 5):
        await core.services.jobs.stop(f"j{number}")
    query = JobQuery(limit=2, sort_by=sort_by, descending=descending)
    names, cursor = [], None
    while True:
        page = await core.services.jobs.list(query, cursor)
        names += [job["TrainingJobName"] for job in page.summaries]
        if page.cursor is None:
            break
        cursor = page.cursor
    assert sorted(names) == [f"j{number}" for number in range(9)]
    if sort_by == "Name":
        assert names == sorted(names, reverse=descending)


async def test_status_with_a_limit_filters_the_newest_as_aws_does(core: Core, clock: ManualClock) -> None:
    for number in range(6):
        clock.advance(1)
        await create(core, f"j{number}")
    await core.services.jobs.stop("j0")
    page = await core.services.jobs.list(JobQuery(limit=2, status="Stopped"))
    assert page.summaries == [] and page.cursor is not None
    page = await core.services.jobs.list(JobQuery(status="Stopped"))
    assert [job["TrainingJobName"] for job in page.summaries] == ["j0"] and page.cursor is None


async def test_filters(core: Core, clock: ManualClock) -> None:
    await create(core, "alpha-1")
    middle = clock.now()
    clock.advance(10)
    await create(core, "ALPHA-2")
    await create(core, "beta_x".replace("_", "-"))
    found = await core.services.jobs.list(JobQuery(name_contains="alpha"))
    assert [job["TrainingJobName"] for job in found.summaries] == ["ALPHA-2", "alpha-1"]
    assert (await core.services.jobs.list(JobQuery(name_contains="a%"))).summaries == []
    found = await core.services.jobs.list(JobQuery(created_after=middle))
    assert len(found.summaries) == 2
    found = await core.services.jobs.list(JobQuery(modified_after=clock.now() + 1))
    assert (found.summaries, found.cursor) == ([], None)


async def test_search_by_names_and_by_predicate(core: Core, clock: ManualClock) -> None:
    for number in range(5):
        clock.advance(1)
        await create(core, f"j{number}", HyperParameters={"n": str(number)}, Tags=[{"Key": "k", "Value": str(number)}])
    page = await core.services.jobs.search(lambda job: True, names=["j1", "j3", "none"])
    assert {job["TrainingJobName"] for job in page.jobs} == {"j1", "j3"}
    page = await core.services.jobs.search(lambda job: int(job["HyperParameters"]["n"]) % 2 == 0, limit=2)
    assert [job["TrainingJobName"] for job in page.jobs] == ["j4", "j2"]
    page = await core.services.jobs.search(
        lambda job: int(job["HyperParameters"]["n"]) % 2 == 0, limit=2, cursor=page.cursor
    )
    assert [job["TrainingJobName"] for job in page.jobs] == ["j0"] and page.cursor is None
    assert page.jobs[0]["Tags"] == [{"Key": "k", "Value": "0"}]


async def test_tags_are_set_listed_replaced_and_removed(core: Core) -> None:
    arn = await create(core, "tagged", Tags=[{"Key": "a", "Value": "1"}])
    jobs = core.services.jobs
    await jobs.add_tags(arn, [{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}])
    assert await jobs.list_tags(arn) == [{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}]
    await jobs.delete_tags(arn, ["a"])
    assert await jobs.list_tags(arn) == [{"Key": "b", "Value": "3"}]
    with pytest.raises(ApiError):
        await jobs.add_tags(arn, [{"Key": f"k{number}", "Value": ""} for number in range(50)])
    assert await jobs.list_tags(arn) == [{"Key": "b", "Value": "3"}]


async def test_stop_and_delete_answer_by_state(core: Core) -> None:
    jobs = core.services.jobs
    await create(core, "life")
    with pytest.raises(ApiError, match="in status InProgress"):
        await jobs.delete("life")
    await jobs.stop("life")
    with pytest.raises(ApiError, match=r"rejected because the training job is in status Stopped\."):
        await jobs.stop("life")
    for call in (jobs.stop, jobs.delete, jobs.describe):
        with pytest.raises(ApiError, match="Requested resource not found"):
            await call("nobody")
    await jobs.delete("life")
    with pytest.raises(ApiError, match="Requested resource not found"):
        await jobs.describe("life")
    await create(core, "life")


@pytest.mark.parametrize("second", ["other", "first"])
async def test_a_job_made_after_another_was_deleted_is_described_as_itself(core: Core, second: str) -> None:
    jobs = core.services.jobs
    await create(core, "first", HyperParameters={"of": "the first"})
    assert (await jobs.describe("first"))["HyperParameters"] == {"of": "the first"}
    await jobs.stop("first")
    await jobs.delete("first")
    await create(core, second, HyperParameters={"of": "the second"})
    described = await jobs.describe(second)
    assert (described["TrainingJobName"], described["HyperParameters"]) == (second, {"of": "the second"})


async def test_the_grants_of_a_job_are_its_own_prefixes(core: Core) -> None:
    policy = policy_of(
        request(
            "mine",
            InputDataConfig=[
                {
                    "ChannelName": "train",
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/set1/"}},
                }
            ],
            HyperParameters={"sagemaker_submit_directory": '"s3://bucket/code/sourcedir.tar.gz"'},
            CheckpointConfig={"S3Uri": "s3://bucket/ck/mine"},
        )
    )

    def may(action: str, key: str) -> bool:
        return evaluate(policy, action, f"arn:aws:s3:::{key}", {})

    assert may("s3:GetObject", "data/set1/a") and not may("s3:PutObject", "data/set1/a")
    assert may("s3:GetObject", "bucket/code/sourcedir.tar.gz")
    assert may("s3:PutObject", "bucket/out/mine/output/model.tar.gz")
    assert may("s3:PutObject", "bucket/ck/mine/step-1") and not may("s3:PutObject", "bucket/ck/mine2/step-1")
    assert not may("s3:GetObject", "bucket/out/mine2/output/model.tar.gz")
    assert not may("s3:GetObject", "data/set2/a")
