"""What an operation may use: one object, built once in `api`, handed to every request as `ctx.services`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainshed_service.clock import Clock
    from trainshed_service.events import EventLog
    from trainshed_service.identity import IdentityService
    from trainshed_service.jobs import JobService
    from trainshed_service.logs import LogStore
    from trainshed_service.metrics import MetricStore
    from trainshed_service.nodes import NodeService
    from trainshed_service.notifications import NotificationService
    from trainshed_service.quotas import QuotaService
    from trainshed_service.settings import Settings
    from trainshed_service.store import Database


@dataclass
class Services:
    settings: Settings
    clock: Clock
    database: Database
    logs_database: Database
    identity: IdentityService
    jobs: JobService
    nodes: NodeService
    events: EventLog
    logs: LogStore
    metrics: MetricStore
    quotas: QuotaService
    notifications: NotificationService
