"""Processes of the service on a home of their own, without a supervisor, for tests that kill and restart them."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config
from sqlalchemy import select

from tests.support.databases import database_settings, make_database
from tests.support.forks import ForkedProcess
from tests.support.ports import free_port
from tests.support.processes import start_process
from tests.support.wait import patient
from trainshed_service.clock import SystemClock
from trainshed_service.embedded.home import Home, HomeConfig
from trainshed_service.identity import IdentityService
from trainshed_service.jobs.states import AWS_STATUS, JobState
from trainshed_service.scheduling.placement import log_stream_epoch, stream_name
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.models import Agent, Attempt, Cluster, Instance, Job, Node, User

_MODULES = {"api": "trainshed_service.api", "logs": "trainshed_service.logs.__main__"}
AGENT_KEY = "agent-key-of-a-test"


def attempt_of(job: str) -> str:
    """The attempt's id of a job that was placed; a job's name may be as long as the id may be."""
    return f"{job[:50]}-attempt"


class LocalService:
    """`api` and `logs` (the ingest) of one home. Use as a context manager: every process ends with it."""

    def __init__(self, home: Path) -> None:
        self._database = database_settings(home)
        ports = {name: free_port() for name in ("port", "ingest_port", "gateway_port")}
        self.settings = Settings.model_validate({"home": home, **ports, **self._database})
        self._processes: dict[str, ForkedProcess] = {}
        home.mkdir(parents=True, exist_ok=True)
        for url in (self.settings.resolved_database_url, self.settings.resolved_logs_database_url):
            make_database(url)
        self._identity = IdentityService(home, SystemClock())
        self.control = Database(self.settings.resolved_database_url)
        self.bootstrap = self.control.write_sync(self._identity.bootstrap)
        self.settings = self.settings.model_copy(update={"account_id": self.bootstrap.account_id})
        self.token = self.control.write_sync(
            lambda session: self._identity.create_bearer_token(
                session, session.scalars(select(User.id).where(User.name == "admin")).one(), "test"
            )
        )

    def __enter__(self) -> LocalService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in list(self._processes):
            self.kill(part)
        self.control.close()

    @property
    def url(self) -> str:
        return self.settings.resolved_public_url

    @property
    def ingest_url(self) -> str:
        return self.settings.resolved_ingest_url

    def start(self, part: str) -> None:
        """`api` or `logs`; returns when it answers."""
        settings = self.settings
        names = ("home", "port", "ingest_port", "gateway_port", "account_id")
        self._processes[part] = start_process(
            _MODULES[part],
            {name: getattr(settings, name) for name in names} | self._database,
            settings.home / f"{part}.log",
            (self.url if part == "api" else self.ingest_url) + "/healthz",
        )

    def pids(self) -> dict[str, int]:
        return {part: process.pid for part, process in self._processes.items()}

    def kill(self, part: str, number: signal.Signals = signal.SIGKILL) -> int:
        process = self._processes.pop(part)
        process.send_signal(number)
        return process.wait(timeout=patient(30))

    def write_home(self) -> Path:
        """What the commands read of the home; its folder."""
        settings = self.settings
        home = Home(settings.home)
        home.prepare()
        home.write(
            HomeConfig(
                account_id=self.bootstrap.account_id,
                ports={"main": settings.port, "gateway": settings.gateway_port, "ingest": settings.ingest_port},
                access_key_id=self.bootstrap.admin.access_key_id,
                secret_access_key=self.bootstrap.admin.secret_access_key,
                token=self.token,
                role_arn=self.bootstrap.role_arn,
            )
        )
        return home.folder

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=self.settings.region,
            aws_access_key_id=self.bootstrap.admin.access_key_id,
            aws_secret_access_key=self.bootstrap.admin.secret_access_key,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def request(self, name: str, hosts: int = 1, **more: Any) -> dict[str, Any]:
        """A valid CreateTrainingJob request."""
        return {
            "TrainingJobName": name,
            "RoleArn": self.bootstrap.role_arn,
            "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "ResourceConfig": {"InstanceType": "ml.c5.xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            **more,
        }

    def add_agent(self, agent_id: str, key: str) -> None:
        self.control.write_sync(lambda session: _add_agent(session, agent_id, key))

    def place_job(self, name: str, hosts: int = 1, *, attempt: str | None = None) -> list[str]:
        """Rows of a job that trains on `hosts` nodes of one agent, whose key is AGENT_KEY; the names of its streams."""
        at = 1_790_000_000.0
        attempt_id, cluster_id = attempt or attempt_of(name), f"{name[:50]}-cluster"
        state = JobState.TRAINING

        def store(session: Any) -> None:
            if session.get(Agent, "agent") is None:
                _add_agent(session, "agent", AGENT_KEY)
            job = Job(name=name, arn=f"arn:{name}", state=state.value, status=AWS_STATUS[state].status)
            job.secondary_status, job.status_message = AWS_STATUS[state].secondary, AWS_STATUS[state].message
            job.request_raw, job.request, job.instance_count = b"{}", self.request(name, hosts), hosts
            job.role_arn, job.instance_types = self.bootstrap.role_arn, "ml.c5.xlarge"
            job.created_at = job.modified_at = job.training_started_at = at
            session.add(job)
            session.add(Cluster(id=cluster_id, state="held", epoch=1, created_at=at))
            session.flush()
            row = Attempt(id=attempt_id, job_id=job.id, number=1, cluster_id=cluster_id, state="running")
            row.created_at, row.deadline_at = at, 4_000_000_000.0
            session.add(row)
            session.flush()
            taken = session.query(Node).count()
            for rank in range(hosts):
                node_id = (
                    f"node-{hashlib.sha256(name.encode()).hexdigest()[:12]}-{rank}"  # nodes are not named after jobs
                )
                node = Node(id=node_id, agent_id="agent", slot=taken + rank, state="leased")
                node.cluster_id = cluster_id
                session.add(node)
                session.flush()
                instance = Instance(id=f"{name[:50]}-{rank}", attempt_id=attempt_id, rank=rank, node_id=node_id)
                instance.host, instance.instance_type = f"algo-{rank + 1}", "ml.c5.xlarge"
                instance.instance_group = "homogeneousCluster"
                session.add(instance)

        self.control.write_sync(store)
        return [stream_name(name, f"algo-{rank + 1}", log_stream_epoch(at)) for rank in range(hosts)]


def _add_agent(session: Any, agent_id: str, key: str) -> None:
    agent = Agent(id=agent_id, name=agent_id, key_hash=hashlib.sha256(key.encode()).hexdigest(), boot_id="b", facts={})
    agent.last_seen_at = agent.lease_expires_at = 4_000_000_000.0
    session.add(agent)
    session.flush()
