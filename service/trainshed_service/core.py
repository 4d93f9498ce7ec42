"""Builds the services of the API process and takes them down again; the one place that knows how they hang together."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from trainshed_service.clock import Clock
from trainshed_service.events import EventLog
from trainshed_service.identity import IdentityService
from trainshed_service.jobs import JobService
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.inputs import InputChecks
from trainshed_service.logs import LogStore
from trainshed_service.metrics import MetricStore
from trainshed_service.nodes import NodeService
from trainshed_service.notifications import NotificationService
from trainshed_service.quotas import Admission, QuotaService
from trainshed_service.replicas import open_group
from trainshed_service.s3 import StoreProbe
from trainshed_service.sagemaker import load_instance_types
from trainshed_service.services import Services
from trainshed_service.settings import Settings
from trainshed_service.store import Database

_log = structlog.get_logger(__name__)


@dataclass
class Core:
    services: Services
    probe: StoreProbe | None
    account_id: str

    async def is_healthy(self) -> bool:
        """Whether the control database answers."""
        try:
            await self.services.database.read(lambda session: session.execute(text("SELECT 1")).all())
        except SQLAlchemyError:
            _log.exception("core.unhealthy")
            return False
        return True

    async def close(self) -> None:
        """End the background work, finish accepted writes, close the databases."""
        await self.services.notifications.stop()
        await self.services.nodes.stop()
        if self.probe is not None:
            await self.probe.close()
        self.services.database.close()
        self.services.logs_database.close()


async def build_core(settings: Settings, clock: Clock) -> Core:
    """Open the databases (migrated and bootstrapped before) and build the services over them."""
    load_instance_types(settings.home)
    database = Database(settings.resolved_database_url)
    logs_database = Database(settings.resolved_logs_database_url)
    identity = IdentityService(settings.home, clock)
    account_id = await database.read(identity.account_id)
    events = EventLog(database)
    logs = LogStore(logs_database, clock)
    metrics = MetricStore(logs_database)
    probe = StoreProbe(settings, clock) if settings.store_endpoint else None
    nodes = NodeService(
        group=open_group(settings.resolved_database_url),
        database=database,
        clock=clock,
        settings=settings,
        identity=identity,
        events=events,
        logs=logs,
        metrics=metrics,
    )
    jobs = JobService(
        database=database,
        clock=clock,
        settings=settings,
        events=events,
        logs=logs,
        metrics=metrics,
        inputs=InputChecks(probe, settings.region),
        account_id=account_id,
        carry_out=nodes.carry_out,
        scheduler=nodes.scheduler,
        admission=Admission(identity, settings.roles),
    )
    nodes.attach(jobs)
    notifications = NotificationService(
        database=database,
        clock=clock,
        settings=settings,
        identity=identity,
        events=events,
        account_id=account_id,
    )
    services = Services(
        settings=settings,
        clock=clock,
        database=database,
        logs_database=logs_database,
        identity=identity,
        jobs=jobs,
        nodes=nodes,
        events=events,
        logs=logs,
        metrics=metrics,
        quotas=QuotaService(database, clock, lambda soft: nodes.carry_out(Effects(planner=[soft]))),
        notifications=notifications,
    )
    return Core(services, probe, account_id)
