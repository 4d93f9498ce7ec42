"""The whole installation ends while a job runs, as asked or by a crash, and comes up again (docs/operations.md)."""

from __future__ import annotations

import os
import signal

import pytest

from tests.chaos.conftest import SETTINGS
from tests.support.jobs import log_lines, wait_for_end
from tests.support.parts import parts_of, processes_of, supervisor_of
from tests.support.stack import TRAINSHED, Stack, plain_environment, run
from tests.support.ticks import assert_ran_whole, start_ticks
from tests.support.wait import patient, wait_until

pytestmark = pytest.mark.timeout(300)


def test_down_ends_the_job_and_the_next_up_says_so(stack: Stack, job_name: str):
    start_ticks(stack, job_name, 600)
    said = run(TRAINSHED, "down", "--home", stack.home, env=plain_environment()).stderr
    assert job_name in said and "end now, without artifacts" in said
    assert processes_of(stack.home) == []
    again = Stack.up(stack.home, settings=SETTINGS)
    described = wait_for_end(again, job_name, timeout=60)
    assert described["TrainingJobStatus"] == "Failed"
    assert described["FailureReason"].startswith("InternalServerError: We encountered an internal error.")
    assert "algo-" in described["FailureReason"]
    read = log_lines(again, job_name)
    assert any(f"tick 3 of {host}" in lines for host, lines in read.items())
    for host, lines in read.items():
        ticks = [line for line in lines if line.startswith("tick ")]
        assert ticks == [f"tick {number} of {host}" for number in range(len(ticks))]


def test_down_that_keeps_jobs_is_only_an_outage(stack: Stack, job_name: str):
    start_ticks(stack, job_name, patient(15))
    said = run(TRAINSHED, "down", "--keep-jobs", "--home", stack.home, env=plain_environment()).stderr
    assert job_name in said and "go on and are taken up by the next" in said
    assert parts_of(stack.home) == {}
    again = Stack.up(stack.home, settings=SETTINGS)
    assert_ran_whole(again, wait_for_end(again, job_name))


def test_the_job_outlives_a_killed_supervisor(stack: Stack, job_name: str):
    start_ticks(stack, job_name, patient(15))
    os.kill(supervisor_of(stack).pid, signal.SIGKILL)
    wait_until(lambda: parts_of(stack.home) == {}, timeout=30, what="the parts end with their supervisor")
    again = Stack.up(stack.home, settings=SETTINGS)
    assert_ran_whole(again, wait_for_end(again, job_name))
