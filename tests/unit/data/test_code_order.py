"""Which code can be fetched while the channels still are."""

from __future__ import annotations

import pytest

from tests.support.agent_gang import gang, nowhere
from trainshed_worker.data import needs_channels


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"sagemaker_submit_directory": "s3://b/code.tar.gz", "sagemaker_program": "train.py"}, False),
        ({"sagemaker_submit_directory": '"s3://b/code.tar.gz"', "sagemaker_program": '"train.py"'}, False),
        ({"sagemaker_submit_directory": "/opt/ml/input/data/code/x.tar.gz", "sagemaker_program": "train.py"}, True),
        ({"sagemaker_submit_directory": "s3://b/c.tar.gz", "sagemaker_program": "/opt/ml/input/data/code/t.py"}, True),
        ({}, True),
    ],
)
def test_code_waits_for_channels_only_where_it_may_be_in_one(parameters: dict[str, str], expected: bool) -> None:
    (member,) = gang(nowhere(), "b", HyperParameters=parameters)
    assert needs_channels(member) is expected
