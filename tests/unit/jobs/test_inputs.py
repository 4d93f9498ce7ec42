"""What is refused at creation because the object store lacks it."""

from typing import Any

import pytest

from trainshed_service.jobs.inputs import InputChecks
from trainshed_service.s3 import ProbeError
from trainshed_service.wire.errors import ApiError


class Store:
    """A store with one bucket and one prefix; `silent`: it does not answer. Counts the questions."""

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.questions = 0

    async def object_exists_under(self, bucket: str, prefix: str) -> bool:
        self._asked()
        return bucket == "here" and "data/a".startswith(prefix)

    async def bucket_exists(self, bucket: str) -> bool:
        self._asked()
        return bucket == "here"

    def _asked(self) -> None:
        self.questions += 1
        if self.silent:
            raise ProbeError("the object store does not answer")


def request(
    source: str = "s3://here/data/", out: str = "s3://here/out", checkpoints: str | None = None
) -> dict[str, Any]:
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": source}}}
    spec: dict[str, Any] = {"RoleArn": "r", "InputDataConfig": [channel], "OutputDataConfig": {"S3OutputPath": out}}
    return spec | ({"CheckpointConfig": {"S3Uri": checkpoints}} if checkpoints else {})


async def test_what_exists_is_accepted_and_not_asked_for_again() -> None:
    store = Store()
    checks = InputChecks(store, "us-east-1")
    assert await checks.check(request()) == []
    assert store.questions == 2
    assert await checks.check(request()) == []
    assert store.questions == 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (request(source="s3://here/nothing"), 'No S3 objects found under S3 URL "s3://here/nothing"'),
        (request(source="s3://elsewhere/data/"), 'No S3 objects found under S3 URL "s3://elsewhere/data/"'),
        (request(out="s3://elsewhere/out"), 'The bucket "elsewhere" of OutputDataConfig.S3OutputPath'),
        (request(checkpoints="s3://elsewhere/c"), 'The bucket "elsewhere" of CheckpointConfig.S3Uri'),
    ],
)
async def test_what_is_missing_is_named(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ApiError) as refused:
        await InputChecks(Store(), "us-east-1").check(spec)
    assert refused.value.code == "ValidationException"
    assert words in refused.value.message


async def test_a_silent_store_refuses_nothing_and_is_noted() -> None:
    notices = await InputChecks(Store(silent=True), "us-east-1").check(request())
    assert len(notices) == 2 and all("did not answer" in notice for notice in notices)
