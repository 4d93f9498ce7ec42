"""The service over jobs: what the AWS operations and REST are thin over.

Invariants: an answer to a change goes out after the change is durable; of two creates of one name exactly one wins (a
unique constraint decides); nothing here waits for a node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from trainshed_service.clock import Clock
from trainshed_service.events import EventLog, record
from trainshed_service.identity import Principal
from trainshed_service.jobs import search
from trainshed_service.jobs.describe import Descriptions, with_message
from trainshed_service.jobs.effects import Effects
from trainshed_service.jobs.extended import read_extended
from trainshed_service.jobs.inputs import InputChecks
from trainshed_service.jobs.lifecycle import first_transition, move_job
from trainshed_service.jobs.listing import JobPage, JobQuery, list_jobs
from trainshed_service.jobs.priority import priority_of, refuse_change
from trainshed_service.jobs.reach import EVERYBODY, Reach
from trainshed_service.jobs.spec import gang, instance_types
from trainshed_service.jobs.states import (
    ACTIVE,
    AWS_STATUS,
    LIVE_ATTEMPT,
    TERMINAL,
    Cause,
    ClusterState,
    JobState,
    PoolStatus,
)
from trainshed_service.jobs.stopping import request_stop
from trainshed_service.jobs.tagging import drop_tags, get_tags, put_tags
from trainshed_service.logs import LogStore
from trainshed_service.metrics import MetricStore
from trainshed_service.pools.keep_alive import change_keep_alive, check_keep_alive
from trainshed_service.pools.match import keep_alive_seconds
from trainshed_service.quotas.admission import Admission
from trainshed_service.scheduling.applier import Scheduler
from trainshed_service.settings import Settings
from trainshed_service.store import Database
from trainshed_service.store.prepared import Prepared
from trainshed_service.store.tables import attempts, changed, clusters, job_phases, jobs
from trainshed_service.wire.errors import ApiError, not_found, resource_in_use, validation_error

Cursor = list[Any]
Tags = list[dict[str, str]]

_UPDATABLE = ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig")

_NEW_JOB = Prepared.insert(
    jobs,
    "name",
    "arn",
    "user_id",
    "state",
    "status",
    "secondary_status",
    "status_message",
    "request_raw",
    "request",
    "notices",
    "instance_count",
    "created_at",
    "modified_at",
    "final_metrics",
    "attempts",
    "version",
    "priority",
    "role_arn",
    "instance_types",
    returning=jobs.c.id,
)
_WARM_SINCE = Prepared(
    select(clusters.c.warm_since).where(
        clusters.c.last_job_id == bindparam("wanted"), clusters.c.state == ClusterState.WARM.value
    )
)
_NEW_PHASE = Prepared.insert(job_phases, "job_id", "attempt", "host", "phase", "started_at", "ended_at")


class JobService:
    """`carry_out` does what follows from a commit; `scheduler` is told of new jobs and says why a queued one waits."""

    def __init__(
        self,
        *,
        database: Database,
        clock: Clock,
        settings: Settings,
        events: EventLog,
        logs: LogStore,
        metrics: MetricStore,
        inputs: InputChecks,
        account_id: str,
        carry_out: Callable[[Effects], None],
        scheduler: Scheduler,
        admission: Admission,
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._events = events
        self._logs = logs
        self._metrics = metrics
        self._inputs = inputs
        self._account_id = account_id
        self._carry_out = carry_out
        self._scheduler = scheduler
        self._admission = admission
        self._described = Descriptions()

    def arn(self, name: str) -> str:
        return f"arn:aws:sagemaker:{self._settings.region}:{self._account_id}:training-job/{name.lower()}"

    async def create(
        self,
        request: dict[str, Any],
        *,
        principal: Principal,
        raw_body: bytes | None = None,
        notices: Sequence[str] = (),
    ) -> str:
        """Store a validated CreateTrainingJob request; its ARN. ResourceInUse where the name is taken."""
        submitted = self._clock.now()
        self._check_policy(request)
        name = request["TrainingJobName"]
        priority = priority_of(request.get("Tags") or [], principal)
        all_notices = [*notices, *await self._inputs.check(request)]
        spec = {member: value for member, value in request.items() if member != "Tags"}
        row = {
            "name": name,
            "arn": self.arn(name),
            "user_id": principal.user_id,
            "state": JobState.QUEUED.value,
            "status": AWS_STATUS[JobState.QUEUED].status,
            "secondary_status": AWS_STATUS[JobState.QUEUED].secondary,
            "status_message": AWS_STATUS[JobState.QUEUED].message,
            "request_raw": raw_body if raw_body is not None else json.dumps(request).encode(),
            "request": spec,
            "notices": all_notices,
            "instance_count": len(gang(request)),
            "final_metrics": [],
            "attempts": 0,
            "version": 0,
            "priority": priority,
            "role_arn": request["RoleArn"],
            "instance_types": instance_types(request),
        }
        now = self._clock.now()
        wanted = request.get("Tags") or []

        def store(session: Session) -> int:
            is_counted = self._admission.admit(session, principal.user_id, request)
            ((job_id,),) = _NEW_JOB.run(session, {**row, "created_at": now, "modified_at": now})
            first_transition(session, job_id, now)
            _NEW_PHASE.run(
                session,
                {
                    "job_id": job_id,
                    "attempt": 0,
                    "host": "service",
                    "phase": "submit",
                    "started_at": submitted,
                    "ended_at": now,
                },
            )
            if is_counted:
                self._admission.hold(session, job_id, principal.user_id, request)
            if wanted:
                put_tags(session, row["arn"], wanted)
            record(session, now, "job.created", f"job/{name}", "Training job created", {"state": "queued"})
            return int(job_id)

        try:
            job_id = await self._database.write(store)
        except IntegrityError as error:
            if not await self._is_taken(name):
                raise
            raise self._name_taken(name) from error
        queued = self._scheduler.queued(
            job_id, name, request, user_id=principal.user_id, priority=priority, queued_at=now
        )
        self._carry_out(Effects(planner=[queued]))
        return str(row["arn"])

    async def check_new(self, request: dict[str, Any], principal: Principal) -> list[str]:
        """What `create` would refuse of a validated request, raised; its notices. Stores nothing."""
        if await self._is_taken(request["TrainingJobName"]):
            raise self._name_taken(request["TrainingJobName"])
        self._check_policy(request)
        priority_of(request.get("Tags") or [], principal)
        await self._database.read(lambda session: self._admission.preview(session, principal.user_id, request))
        return await self._inputs.check(request)

    def _check_policy(self, request: dict[str, Any]) -> None:
        check_keep_alive(keep_alive_seconds(request), self._settings)

    def _name_taken(self, name: str) -> ApiError:
        return resource_in_use(
            "Training job names must be unique within an AWS account and region, and a training job with this "
            f"name already exists ({self.arn(name)})"
        )

    async def describe(self, name: str, reach: Reach = EVERYBODY) -> dict[str, Any]:
        """The members of DescribeTrainingJobResponse; times in epoch seconds."""
        state, job_id, answer = await self._described.read(self._database, name, reach)
        waiting = self._scheduler.explain(job_id) if state == JobState.QUEUED else None
        if waiting is not None:
            return with_message(answer, waiting)
        if (answer.get("WarmPoolStatus") or {}).get("Status") == PoolStatus.AVAILABLE:
            return await self._with_retained_time(job_id, answer)
        return dict(answer)

    async def _with_retained_time(self, job_id: int, answer: dict[str, Any]) -> dict[str, Any]:
        """With the seconds for which the job's pool has been kept up to now."""
        since = await self._database.look(_WARM_SINCE, {"wanted": job_id})
        seconds = max(0, round(self._clock.now() - since[0][0])) if since else 0
        return {
            **answer,
            "WarmPoolStatus": {**answer["WarmPoolStatus"], "ResourceRetainedBillableTimeInSeconds": seconds},
        }

    async def describe_extended(self, name: str, reach: Reach = EVERYBODY) -> dict[str, Any]:
        """`describe` plus what AWS has no members for: state, notices, why it waits, streams, phases, attempts."""
        found = await self._database.read(lambda session: read_extended(session, name, reach))
        job_id = found.pop("id")
        found["Description"] = await self.describe(name, reach)
        waiting = self._scheduler.explain(job_id)
        if waiting is not None:
            found["WaitingReason"] = waiting
            found["QueuePosition"] = self._scheduler.queue_position(job_id)
            found["ProjectedStart"] = self._scheduler.projected_start(job_id)
        return found

    async def list(self, query: JobQuery, cursor: Cursor | None = None, reach: Reach = EVERYBODY) -> JobPage:
        """One page of summaries and the cursor of the next."""
        return await list_jobs(self._database, query, cursor, reach)

    async def search(
        self,
        matches: Callable[[dict[str, Any]], bool],
        *,
        names: Sequence[str] | None = None,
        sort_by: str = "LastModifiedTime",
        descending: bool = True,
        limit: int = search.DEFAULT_LIMIT,
        cursor: Cursor | None = None,
        reach: Reach = EVERYBODY,
    ) -> search.SearchPage:
        """Jobs (as `describe` shows them, with Tags) for which `matches` is true. `names`: only these can match."""
        return await search.search_jobs(
            self._database,
            matches,
            names=names,
            sort_by=sort_by,
            descending=descending,
            limit=limit,
            cursor=cursor,
            reach=reach,
        )

    async def stop(self, name: str, reach: Reach = EVERYBODY) -> None:
        """StopTrainingJob. Returns when the stop is durable; the processes get their grace afterwards."""
        now = self._clock.now()
        effects = await self._database.write(lambda session: request_stop(session, name, now, self._settings, reach))
        self._carry_out(effects)

    async def update(self, request: dict[str, Any], reach: Reach = EVERYBODY) -> str:
        """UpdateTrainingJob: debug and profiler settings are kept and shown; a keep-alive acts on the warm pool."""
        name = request["TrainingJobName"]
        now = self._clock.now()
        changes = {member: request[member] for member in _UPDATABLE if request.get(member) is not None}
        keep_alive = (request.get("ResourceConfig") or {}).get("KeepAlivePeriodInSeconds")

        def apply(session: Session) -> tuple[str, Effects]:
            effects = Effects()
            job = session.execute(
                select(
                    jobs.c.id,
                    jobs.c.name,
                    jobs.c.arn,
                    jobs.c.state,
                    jobs.c.status,
                    jobs.c.request,
                    jobs.c.user_id,
                    jobs.c.pool_status,
                )
                .where(jobs.c.name == name)
                .with_for_update()
            ).first()
            if job is None:
                raise not_found()
            reach.require(job.user_id)
            if changes and JobState(job.state) not in ACTIVE:
                raise validation_error(f"The request was rejected because the training job is in status {job.status}.")
            if changes:
                merged = dict(job.request)
                for member, value in changes.items():
                    old = merged.get(member)
                    merged[member] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
                session.execute(
                    update(jobs)
                    .where(jobs.c.id == job.id)
                    .values(request=merged, modified_at=now, version=jobs.c.version + 1)
                )
                record(session, now, "job.updated", f"job/{name}", "Updated: " + ", ".join(sorted(changes)))
            if keep_alive is not None:
                effects = change_keep_alive(session, job, keep_alive, now, self._settings)
            return str(job.arn), effects

        arn, effects = await self._database.write(apply)
        self._carry_out(effects)
        return arn

    async def delete(self, name: str, reach: Reach = EVERYBODY) -> None:
        """DeleteTrainingJob: of ended jobs only. The name is free when the slots of the job are proven empty."""
        now = self._clock.now()

        def mark(session: Session) -> int:
            job = session.execute(
                select(jobs.c.id, jobs.c.state, jobs.c.status, jobs.c.user_id, jobs.c.pool_status)
                .where(jobs.c.name == name)
                .with_for_update()
            ).first()
            if job is None:
                raise not_found()
            reach.require(job.user_id)
            state = JobState(job.state)
            if state is JobState.DELETING:
                return int(job.id)
            if state not in TERMINAL:
                raise validation_error(
                    f"The request was rejected because the training job is in status {job.status}. "
                    "Stop it, and delete it when it has ended."
                )
            if job.pool_status in (PoolStatus.AVAILABLE, PoolStatus.IN_USE):
                raise validation_error(
                    "The request was rejected because the training job still has a warm pool. End the pool by "
                    "UpdateTrainingJob with KeepAlivePeriodInSeconds 0, or wait until it has ended, then delete the "
                    "job."
                )
            move_job(session, job.id, name, state, Cause.DELETE_REQUESTED, now)
            return int(job.id)

        job_id = await self._database.write(mark)
        await self.remove(job_id)

    async def remove(self, job_id: int) -> bool:
        """Take a job in state DELETING away with its lines and metrics; False while one of its slots is still held."""

        def ready(session: Session) -> str | None:
            name = session.scalar(select(jobs.c.name).where(jobs.c.id == job_id, jobs.c.state == JobState.DELETING))
            return None if name is None or _is_live(session, job_id) else name

        name = await self._database.read(ready)
        if name is None:
            return False
        await self._logs.delete_job(name)
        await self._metrics.delete_job(name)
        now = self._clock.now()

        def drop(session: Session) -> None:
            drop_tags(session, self.arn(name))
            if changed(session, delete(jobs).where(jobs.c.id == job_id, jobs.c.state == JobState.DELETING.value)):
                record(session, now, "job.deleted", f"job/{name}", "Training job deleted")

        await self._database.write(drop)
        self._carry_out(Effects())
        return True

    async def add_tags(self, arn: str, tags: Sequence[dict[str, Any]], reach: Reach = EVERYBODY) -> Tags:
        """Set tags of a job; all that it has then."""
        refuse_change(tags)

        def put(session: Session) -> Tags:
            self._need_arn(session, arn, reach)
            put_tags(session, arn, tags)
            return get_tags(session, arn)

        return await self._database.write(put)

    async def list_tags(
        self, arn: str, after: str | None = None, limit: int | None = None, reach: Reach = EVERYBODY
    ) -> Tags:
        """Tags in order of their keys, those behind `after`."""

        def read(session: Session) -> Tags:
            self._need_arn(session, arn, reach)
            return get_tags(session, arn, after, limit)

        return await self._database.read(read)

    async def delete_tags(self, arn: str, keys: Sequence[str], reach: Reach = EVERYBODY) -> None:
        def drop(session: Session) -> None:
            self._need_arn(session, arn, reach)
            drop_tags(session, arn, keys)

        await self._database.write(drop)

    def _need_arn(self, session: Session, arn: str, reach: Reach) -> None:
        job = session.execute(select(jobs.c.user_id).where(jobs.c.arn == arn)).first()
        refusal = None if job is None else reach.refusal(job.user_id)
        if job is None or (refusal is not None and reach.denial is None):
            raise ApiError("ResourceNotFound", f"Requested resource not found: {arn}")
        if refusal is not None:
            raise refusal

    async def _is_taken(self, name: str) -> bool:
        arn = self.arn(name)
        return await self._database.read(
            lambda session: session.scalar(select(jobs.c.id).where(jobs.c.arn == arn)) is not None
        )


def _is_live(session: Session, job_id: int) -> bool:
    live = [state.value for state in LIVE_ATTEMPT]
    return (
        session.scalar(select(attempts.c.id).where(attempts.c.job_id == job_id, attempts.c.state.in_(live))) is not None
    )
