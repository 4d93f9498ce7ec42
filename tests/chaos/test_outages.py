"""Each part is killed while a job runs and comes back after an outage: the job completes, every line is there once."""

from __future__ import annotations

import pytest

from tests.support.jobs import wait_for_end
from tests.support.parts import outage
from tests.support.stack import Stack
from tests.support.ticks import assert_ran_whole, start_ticks

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("parts", "seconds", "runs"),
    [
        pytest.param(["api", "ingest", "gateway", "store", "agent"], 60, 65, id="everything-60"),
        pytest.param(["api", "ingest"], 20, 25, id="service-and-ingest-20"),
        pytest.param(["gateway", "store"], 20, 8, id="gateway-and-store-20-while-the-job-ends"),
        pytest.param(["agent"], 20, 8, id="agent-20-while-the-job-ends"),
        pytest.param(["api"], 0, 6, id="service-0"),
        pytest.param(["ingest"], 0, 6, id="ingest-0"),
        pytest.param(["gateway"], 0, 6, id="gateway-0"),
        pytest.param(["agent"], 0, 6, id="agent-0"),
    ],
)
def test_a_job_survives_the_loss_of(stack: Stack, job_name: str, parts: list[str], seconds: float, runs: float):
    start_ticks(stack, job_name, runs)
    outage(stack, parts, seconds)
    assert_ran_whole(stack, wait_for_end(stack, job_name, timeout=90 + runs))
