"""Two processes of the service on one PostgreSQL: one schedules, both serve, either may be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError
from sqlalchemy.engine import make_url

from tests.support.api_process import ApiProcess
from tests.support.fixtures import job_name
from tests.support.postgres import PostgresServer, postgres
from tests.support.scripted_agent import ScriptedAgent
from tests.support.wait import wait_until
from trainshed_service.replicas.postgres import LOCK

__all__ = ["job_name", "postgres"]

pytestmark = pytest.mark.needs("postgres")


class Pair:
    """Both processes have the same home, as containers with one volume; `leader` began first."""

    def __init__(self, home: Path, server: PostgresServer) -> None:
        self.url = server.new_database()
        self.leader, self.other = (ApiProcess(home, name=name, database_url=self.url) for name in ("one", "two"))

    def start(self) -> None:
        for api in (self.leader, self.other):
            api.start()
        assert self.leads(self.leader) and not self.leads(self.other)

    def leads(self, api: ApiProcess) -> bool:
        return "core.started" in api.log()

    def run_sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        plain = make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()


@pytest.fixture
def pair(tmp_path: Path, postgres: PostgresServer) -> Iterator[Pair]:
    made = Pair(tmp_path / "home", postgres)
    made.start()
    yield made
    made.leader.kill()
    made.other.kill()


@pytest.fixture
def join(request: pytest.FixtureRequest) -> Callable[..., ScriptedAgent]:
    def make(api: ApiProcess, name: str, **options: Any) -> ScriptedAgent:
        agent = ScriptedAgent(api.url, api.bootstrap.enrollment_token, name=name, **options)
        request.addfinalizer(agent.close)
        agent.enroll()
        agent.report().raise_for_status()
        return agent

    return make


def create(api: ApiProcess, name: str, count: int = 1) -> None:
    api.client().create_training_job(
        TrainingJobName=name,
        RoleArn=api.bootstrap.role_arn,
        AlgorithmSpecification={"TrainingImage": "image", "TrainingInputMode": "File"},
        OutputDataConfig={"S3OutputPath": "s3://bucket/out"},
        ResourceConfig={"InstanceType": "ml.c5.xlarge", "InstanceCount": count, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 3600},
    )


def status(api: ApiProcess, name: str) -> str:
    found: str = api.client().describe_training_job(TrainingJobName=name)["TrainingJobStatus"]
    return found


def complete(api: ApiProcess, name: str, *agents: ScriptedAgent) -> None:
    """Step the agents until the job is Completed, as `api` tells it."""

    def done() -> bool:
        for agent in agents:
            agent.step()
        return status(api, name) == "Completed"

    wait_until(done, timeout=60, what=f"{name} is Completed")


def test_of_20_creators_of_one_name_at_both_one_wins(pair: Pair, job_name: str) -> None:
    def attempt(number: int) -> str:
        try:
            create((pair.leader, pair.other)[number % 2], job_name)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "created"

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(attempt, range(20)))
    assert sorted(outcomes) == ["ResourceInUse"] * 19 + ["created"]


def test_what_one_wrote_the_other_reads_at_once(pair: Pair, job_name: str) -> None:
    apis = (pair.leader, pair.other)
    for number in range(20):
        writer, reader = apis[number % 2], apis[1 - number % 2]
        name = f"{job_name}-{number}"
        create(writer, name)
        assert status(reader, name) == "InProgress"
        assert reader.client().list_training_jobs(NameContains=name)["TrainingJobSummaries"]
        reader.client().stop_training_job(TrainingJobName=name)
        assert status(writer, name) in ("Stopping", "Stopped")


def test_jobs_of_both_run_on_nodes_of_both(pair: Pair, join: Callable[..., ScriptedAgent], job_name: str) -> None:
    agents = (join(pair.leader, "at-leader", slots=1), join(pair.other, "at-other", slots=1))
    for agent in agents:
        agent.exits = 0
    for number, api in enumerate((pair.leader, pair.other)):
        name = f"{job_name}-{number}"
        create(api, name, 2)
        complete((pair.other, pair.leader)[number], name, *agents)
    placed = pair.run_sql("SELECT count(*) FROM attempts")
    assert placed == [(2,)]
    assert pair.run_sql(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s", LOCK & 0xFFFFFFFF
    ) == [(1,)]


def test_a_poll_at_one_is_answered_for_a_stop_at_the_other(
    pair: Pair, join: Callable[..., ScriptedAgent], job_name: str
) -> None:
    agent = join(pair.leader, "agent", slots=1)
    create(pair.other, job_name)
    wait_until(lambda: agent.step() and agent.held, timeout=30, what="the job has come to the agent")
    wait_until(lambda: agent.step() and agent.host("algo-1").phase == "running", timeout=30, what="it runs")
    before = agent.version = agent.desired().version
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(agent.desired, 25.0)
        pair.other.client().stop_training_job(TrainingJobName=job_name)
        state = poll.result()
    assert state.version != before
    assert [item.action for item in state.assignments] == ["stop"]


def test_the_queue_is_told_alike(pair: Pair, job_name: str) -> None:
    for number in range(3):
        create(pair.leader, f"{job_name}-{number}")

    def names(api: ApiProcess) -> list[tuple[str, int]]:
        return [(each["name"], each["queuePosition"]) for each in api.rest("/v1/queue")["jobs"]]

    wait_until(lambda: len(names(pair.other)) == 3, timeout=30, what="the other process knows the queue")
    assert names(pair.other) == names(pair.leader)


def test_the_other_leads_when_the_leader_is_killed(
    pair: Pair, join: Callable[..., ScriptedAgent], job_name: str
) -> None:
    agent = join(pair.other, "agent", slots=1)
    create(pair.leader, f"{job_name}-before")
    wait_until(lambda: agent.step() and agent.held, timeout=30, what="the first job has come to the agent")
    pair.leader.kill()
    create(pair.other, f"{job_name}-after")
    agent.exits = 0
    for name in ("before", "after"):
        complete(pair.other, f"{job_name}-{name}", agent)
    assert pair.leads(pair.other)
    pair.leader.start()
    create(pair.leader, f"{job_name}-last")
    complete(pair.leader, f"{job_name}-last", agent)


def test_what_one_committed_and_told_nobody_is_done_by_the_leader(
    pair: Pair, join: Callable[..., ScriptedAgent], job_name: str
) -> None:
    """`other` is killed as soon as it has answered the last report: whether its word went out is chance."""
    agent = join(pair.other, "agent", slots=1)
    agent.exits = 0
    create(pair.leader, job_name)
    wait_until(lambda: agent.step() and "finished" in agent.phases().values(), timeout=30, what="all is reported")
    pair.other.kill()
    wait_until(lambda: status(pair.leader, job_name) == "Completed", timeout=60, what="the leader concluded it")


def test_connections_that_the_database_ends_lose_nothing(
    pair: Pair, join: Callable[..., ScriptedAgent], job_name: str
) -> None:
    agent = join(pair.other, "agent", slots=1)
    agent.exits = 0
    ended = pair.run_sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'trainshed-%'"
    )
    assert len(ended) == 4
    for number, api in enumerate((pair.leader, pair.other)):
        create(api, f"{job_name}-{number}")
        complete(api, f"{job_name}-{number}", agent)
