"""The event of a job's end says enough to be told when the job is deleted."""

from __future__ import annotations

from tests.unit.jobs.test_job_service import USER, create
from trainshed_service.clock import ManualClock
from trainshed_service.core import Core


async def test_the_end_says_whose_job_it_was_and_how_long_it_took(core: Core, clock: ManualClock) -> None:
    arn = await create(core, "told", ResourceConfig=_resources(600))
    clock.advance(90)
    await core.services.jobs.stop("told")
    (ended,) = [event for event in await core.services.events.read(subject="job/told") if event.kind == "job.stopped"]
    assert ended.data["jobArn"] == arn
    assert ended.data["userId"] == USER.user_id
    assert (ended.data["instanceType"], ended.data["instanceCount"]) == ("ml.c5.xlarge", 2)
    assert (ended.data["keepAliveSeconds"], ended.data["wallSeconds"]) == (600, 90.0)


def _resources(keep_alive: int) -> dict[str, object]:
    return {
        "InstanceType": "ml.c5.xlarge",
        "InstanceCount": 2,
        "VolumeSizeInGB": 10,
        "KeepAlivePeriodInSeconds": keep_alive,
    }
