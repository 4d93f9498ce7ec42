"""Faults of nodes and of the service itself: kills at every phase, silence, late and doubled messages."""

from collections.abc import Callable

import pytest

from tests.integration.core.driving import create, describe, run_until, secondary, step_until, until_phase
from tests.support.api_process import ApiProcess
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until
from trainshed_worker.protocol import Action, FailureCause, InstanceFailure, Phase

Join = Callable[..., ScriptedAgent]
StartApi = Callable[..., ApiProcess]


def restart(api: ApiProcess) -> None:
    api.kill()
    api.start()


def test_the_service_is_killed_at_every_phase_and_the_job_completes(api: ApiProcess, join: Join) -> None:
    create(api, "survivor", count=2)
    restart(api)
    agent = join(api, slots=2)
    for phase in (Phase.ACCEPTED, Phase.DOWNLOADING, Phase.READY, Phase.RUNNING):
        agent.frozen_at = {"algo-1": phase, "algo-2": phase}
        until_phase([agent], phase, 2)
        restart(api)
    agent.frozen_at = {"algo-1": Phase.EXITED, "algo-2": Phase.PART_UPLOADED}
    agent.exit("algo-1")
    agent.exit("algo-2")
    step_until([agent], lambda: agent.phases() == {"algo-1": Phase.EXITED, "algo-2": Phase.PART_UPLOADED})
    step_until([agent], lambda: Action.ASSEMBLE in [action for _, action in agent.seen_actions])
    restart(api)
    agent.frozen_at = {}
    found = run_until(api, [agent], "survivor", "Completed")
    restart(api)
    assert describe(api, "survivor")["SecondaryStatusTransitions"] == found["SecondaryStatusTransitions"]
    assert secondary(api, "survivor") == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    agent.exits = 0
    create(api, "next", count=2)
    run_until(api, [agent], "next", "Completed")


def test_a_kill_between_the_last_report_and_the_verdict_loses_nothing(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "edge")
    agent.frozen_at = {"algo-1": Phase.EXITED}
    until_phase([agent], Phase.RUNNING, 1)
    agent.exit("algo-1")
    step_until([agent], lambda: Action.ASSEMBLE in [action for _, action in agent.seen_actions])
    agent.host("algo-1").to(Phase.FINISHED)
    agent.report()
    restart(api)
    wait_until(lambda: describe(api, "edge")["TrainingJobStatus"] == "Completed", what="the verdict after the restart")


def test_late_doubled_and_foreign_reports_change_nothing(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "doubled")
    until_phase([agent], Phase.ACCEPTED, 1)
    old = agent.last_request
    assert old is not None
    until_phase([agent], Phase.RUNNING, 1)
    assert agent.send(old).status_code == 200
    forged = old.model_copy(deep=True)
    report = forged.slots[0].assignment
    assert report is not None
    report.epoch, report.revision, report.phase = report.epoch - 1, 99, Phase.FINISHED
    report.failure = InstanceFailure(cause=FailureCause.ALGORITHM, message="of another life", at=1.0)
    assert agent.send(forged).status_code == 200
    assert describe(api, "doubled")["SecondaryStatus"] == "Training"
    agent.exit("algo-1")
    found = run_until(api, [agent], "doubled", "Completed")
    for _ in range(2):
        assert agent.send(old).status_code == 200
    assert describe(api, "doubled")["SecondaryStatusTransitions"] == found["SecondaryStatusTransitions"]
    agent.exits = 0
    create(api, "after")
    run_until(api, [agent], "after", "Completed")


def test_a_silent_agent_is_lost_and_its_job_failed_by_infrastructure(start_api: StartApi, join: Join) -> None:
    api = start_api(lease_seconds=2)
    silent, healthy = join(api, slots=1, name="silent"), join(api, slots=1, name="healthy")
    create(api, "gang", count=2)
    until_phase([silent, healthy], Phase.RUNNING, 1 + 1)
    found = run_until(api, [healthy], "gang", "Failed")
    assert found["FailureReason"].startswith(
        "InternalServerError: We encountered an internal error. Please try again. algo-"
    )
    assert "agent silent has been silent for" in found["FailureReason"]
    healthy.exits = 0
    create(api, "small")
    run_until(api, [healthy], "small", "Completed")
    # The lost agent comes back: its slot is used again only when it has emptied it.
    assert [held.phase for held in silent.held.values()] == [Phase.RUNNING]
    silent.exits = 0
    create(api, "both", count=2)
    run_until(api, [silent, healthy], "both", "Completed")


def test_a_lost_node_is_retried_where_the_job_says_so(start_api: StartApi, join: Join) -> None:
    api = start_api(lease_seconds=2)
    dying, spare = join(api, slots=1, name="a-dying"), None
    create(api, "again", RetryStrategy={"MaximumRetryAttempts": 1})
    until_phase([dying], Phase.RUNNING, 1)
    spare = join(api, slots=1, name="b-spare")
    spare.exits = 0
    found = run_until(api, [spare], "again", "Completed")
    assert secondary(api, "again").count("Starting") == 2
    assert "FailureReason" not in found


def test_nodes_that_reject_a_start_are_tried_a_few_times_then_the_job_fails(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "rejected")

    def reject() -> bool:
        for held in agent.held.values():
            if held.failure is None and held.phase is Phase.ACCEPTED:
                held.failure = InstanceFailure(cause=FailureCause.NODE, message="no namespaces here", at=1.0)
                held.to(Phase.EXITED)
        return bool(describe(api, "rejected")["TrainingJobStatus"] == "Failed")

    step_until([agent], reject, what="the job has failed")
    found = describe(api, "rejected")
    assert found["FailureReason"].endswith("algo-1: no namespaces here")
    attempts = {identifier for identifier, action in agent.seen_actions if action is Action.PREPARE}
    assert len(attempts) == 3


def test_bad_input_fails_the_job_as_the_clients_error(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=2)
    create(api, "bad-input", count=2)
    until_phase([agent], Phase.DOWNLOADING, 2)
    agent.exit("algo-2", cause=FailureCause.USER_INPUT, message="s3://b/dir/ must be a .tar.gz object")
    agent.host("algo-2").failure.exit_code = None  # type: ignore[union-attr]
    found = run_until(api, [agent], "bad-input", "Failed")
    assert found["FailureReason"] == "ClientError: algo-2: s3://b/dir/ must be a .tar.gz object"
    assert secondary(api, "bad-input") == ["Starting", "Downloading", "Failed"]


def test_enrolling_again_is_idempotent_and_keeps_the_job(api: ApiProcess, join: Join) -> None:
    agent = join(api, slots=1)
    create(api, "kept")
    until_phase([agent], Phase.RUNNING, 1)
    before, first_boot = list(agent.node_ids), agent.last_request
    for _ in range(20):
        agent.restart()
    assert agent.node_ids == before
    agent.step()
    assert agent.phases() == {"algo-1": Phase.RUNNING}
    assert first_boot is not None
    assert agent.send(first_boot).status_code == 409
    agent.exit("algo-1")
    run_until(api, [agent], "kept", "Completed")


@pytest.mark.parametrize("token", ["wrong", "tse_wrong"])
def test_a_wrong_enrollment_token_or_key_is_refused(api: ApiProcess, token: str) -> None:
    stranger = ScriptedAgent(api.url, token)
    answer = stranger.http.post("/agent/v1/reports", content="{}", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    with pytest.raises(Exception, match="401"):
        stranger.enroll()
    stranger.close()


def test_an_outage_of_the_service_extends_leases_but_offers_no_unheard_node(start_api: StartApi, join: Join) -> None:
    api = start_api(lease_seconds=30)
    agent, silent = join(api, slots=1, name="a"), join(api, slots=1, name="b", types=["ml.m5.large"])
    create(api, "running")
    until_phase([agent], Phase.RUNNING, 1)
    silent.step()
    api.kill()
    api.start()
    create(api, "for-b", ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1})
    step_until([agent], lambda: True)
    assert describe(api, "running")["SecondaryStatus"] == "Training"
    message = describe(api, "for-b")["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert "Preparing" not in message
    silent.exits = 0
    run_until(api, [silent, agent], "for-b", "Completed")


def test_sigterm_ends_the_process_while_an_agent_waits(api: ApiProcess, join: Join) -> None:
    import threading
    import time

    agent = join(api, slots=1)
    version = agent.desired().version
    answered: list[int] = []
    poll = threading.Thread(target=lambda: answered.append(agent.desired(wait=60).version))
    poll.start()
    began = time.monotonic()
    assert api.stop() in (0, -15)
    poll.join(timeout=30)
    assert time.monotonic() - began < 20
    assert answered in ([version], [])
