"""The tables of `models` as SQLAlchemy Core objects, for the statements on hot paths.

Rooms read and write rows with Core (no identity map, no lazy loading): a guarded update says in its row count whether
somebody else was faster.
"""

from typing import Any, cast

from sqlalchemy import CursorResult, Table
from sqlalchemy.orm import Session
from sqlalchemy.sql import Executable

from trainshed_service.store import models

meta = cast(Table, models.Meta.__table__)
users = cast(Table, models.User.__table__)
access_keys = cast(Table, models.AccessKey.__table__)
bearer_tokens = cast(Table, models.BearerToken.__table__)
roles = cast(Table, models.Role.__table__)
role_passes = cast(Table, models.RolePass.__table__)
quotas = cast(Table, models.Quota.__table__)
quota_holdings = cast(Table, models.QuotaHolding.__table__)
usage = cast(Table, models.Usage.__table__)
jobs = cast(Table, models.Job.__table__)
job_transitions = cast(Table, models.JobTransition.__table__)
job_phases = cast(Table, models.PhaseRecord.__table__)
clusters = cast(Table, models.Cluster.__table__)
attempts = cast(Table, models.Attempt.__table__)
agents = cast(Table, models.Agent.__table__)
nodes = cast(Table, models.Node.__table__)
instances = cast(Table, models.Instance.__table__)
tags = cast(Table, models.Tag.__table__)
events = cast(Table, models.Event.__table__)
notification_targets = cast(Table, models.NotificationTarget.__table__)
leases = cast(Table, models.Lease.__table__)


def changed(session: Session, statement: Executable) -> int:
    """Run an UPDATE or DELETE; return how many rows it changed."""
    result = cast(CursorResult[Any], session.execute(statement))
    return result.rowcount
