"""Tables of the service. Times are epoch seconds (float, UTC); JSON columns hold objects as the APIs show them.

The last line of defence stands here: CHECK constraints name every legal state, and partial unique indexes keep one
live attempt per job and one live holding per node, whatever the code above does. Log and metric tables live in the
logs database, which is a file of its own on SQLite (one writer each) and the same database on PostgreSQL.
"""

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from trainshed_service.jobs.states import AttemptState, ClusterState, JobState, NodeState

NEVER_REUSED = {"sqlite_autoincrement": True}
"""Numbers that others remember (answers kept in memory, cursors of readers) are not given to a second row once the
first was deleted, which SQLite otherwise does with the highest one."""


def _one_of(column: str, states: type[StrEnum]) -> CheckConstraint:
    words = ", ".join(f"'{state.value}'" for state in states)
    return CheckConstraint(f"{column} IN ({words})", name=f"{column}_known")


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012


class Meta(Base):
    """Facts about the installation itself: account id, region, sealed keys, last heartbeat of the service."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class User(Base):
    """`restricted`: runs jobs only in the roles of its `role_passes`.

    A user that left keeps its row, under another name (`identity.users`), since jobs refer to it.
    """

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    is_admin: Mapped[bool] = mapped_column(Boolean, default=False)
    created_at: Mapped[float] = mapped_column(Float)
    deleted_at: Mapped[float | None] = mapped_column(Float)
    restricted: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())


class AccessKey(Base):
    """A SigV4 key of a user, or (attempt_id set) the short-lived one of a job's attempt with its own policy."""

    __tablename__ = "access_keys"
    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    attempt_id: Mapped[str | None] = mapped_column(String(64), index=True)
    secret_sealed: Mapped[bytes] = mapped_column(LargeBinary)
    session_token_hash: Mapped[str | None] = mapped_column(String(64))
    policy: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    active: Mapped[bool] = mapped_column(Boolean, default=True)
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float | None] = mapped_column(Float)


class BearerToken(Base):
    __tablename__ = "bearer_tokens"
    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    name: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float | None] = mapped_column(Float)


class Role(Base):
    __tablename__ = "roles"
    arn: Mapped[str] = mapped_column(String(256), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), index=True)
    created_at: Mapped[float] = mapped_column(Float)


class RolePass(Base):
    """This user may run jobs in this role (administrators may in every one)."""

    __tablename__ = "role_passes"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    role_arn: Mapped[str] = mapped_column(ForeignKey("roles.arn", ondelete="CASCADE"), primary_key=True)
    created_at: Mapped[float] = mapped_column(Float)


class Quota(Base):
    """How many instances a subject may hold at once. `subject`: a user's name, a role's ARN, '*' for kind 'all'.

    `instance_type` '*': of all types together. `instances` and `warm_instances` None: no limit. `hard`: a job that does
    not fit is refused at create; else it waits.
    """

    __tablename__ = "quotas"
    subject_kind: Mapped[str] = mapped_column(String(8), primary_key=True)
    subject: Mapped[str] = mapped_column(String(256), primary_key=True)
    instance_type: Mapped[str] = mapped_column(String(64), primary_key=True)
    instances: Mapped[int | None] = mapped_column(Integer)
    warm_instances: Mapped[int | None] = mapped_column(Integer)
    hard: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[float] = mapped_column(Float)

    __table_args__ = (
        CheckConstraint("subject_kind IN ('all', 'user', 'role')", name="subject_kind_known"),
        CheckConstraint("instances IS NULL OR instances >= 0", name="instances_not_negative"),
        CheckConstraint("warm_instances IS NULL OR warm_instances >= 0", name="warm_instances_not_negative"),
    )


class QuotaHolding(Base):
    """What a job that has not ended holds of one type; kept only while some quota is hard (`quotas.holdings`)."""

    __tablename__ = "quota_holdings"
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    instance_type: Mapped[str] = mapped_column(String(64), primary_key=True)
    instances: Mapped[int] = mapped_column(Integer)
    user_id: Mapped[int | None] = mapped_column(Integer)
    role_arn: Mapped[str] = mapped_column(String(256))

    __table_args__ = (
        Index("quota_holdings_by_type", "instance_type"),
        Index("quota_holdings_by_user", "user_id", "instance_type"),
        Index("quota_holdings_by_role", "role_arn", "instance_type"),
    )


class Usage(Base):
    """What a user has used, for fair shares: decayed instance-seconds as of `at`."""

    __tablename__ = "usage"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    instance_seconds: Mapped[float] = mapped_column(Float)
    at: Mapped[float] = mapped_column(Float)


class Job(Base):
    """`request_raw` is the body as it came; `request` the same parsed. `version` grows with each change of the row.

    `role_arn` and `instance_types` (each once, ordered, with commas between) repeat the request, to filter lists by.
    """

    __tablename__ = "jobs"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    name: Mapped[str] = mapped_column(String(63), unique=True)
    arn: Mapped[str] = mapped_column(String(256), unique=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    state: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16))
    secondary_status: Mapped[str] = mapped_column(String(32))
    status_message: Mapped[str] = mapped_column(Text)
    failure_reason: Mapped[str | None] = mapped_column(Text)
    pending_failure: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    stop_reason: Mapped[str | None] = mapped_column(String(32))
    request_raw: Mapped[bytes] = mapped_column(LargeBinary)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    notices: Mapped[list[Any]] = mapped_column(JSON, default=list)
    instance_count: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[float] = mapped_column(Float)
    modified_at: Mapped[float] = mapped_column(Float)
    training_started_at: Mapped[float | None] = mapped_column(Float)
    training_ended_at: Mapped[float | None] = mapped_column(Float)
    final_metrics: Mapped[list[Any]] = mapped_column(JSON, default=list)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    version: Mapped[int] = mapped_column(Integer, default=0)
    priority: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    pool_status: Mapped[str | None] = mapped_column(String(16))
    pool_reused_by: Mapped[str | None] = mapped_column(String(63))
    pool_retained_seconds: Mapped[int | None] = mapped_column(Integer)
    role_arn: Mapped[str | None] = mapped_column(String(256))
    instance_types: Mapped[str | None] = mapped_column(String(512))

    __table_args__ = (
        _one_of("state", JobState),
        CheckConstraint("pool_status IN ('InUse', 'Available', 'Reused', 'Terminated')", name="pool_status_known"),
        CheckConstraint("instance_count >= 1", name="instances_positive"),
        Index("jobs_by_creation", "created_at", "id"),
        Index("jobs_by_status", "status", "created_at", "id"),
        Index("jobs_by_modification", "modified_at", "id"),
        Index("jobs_by_state", "state", "id"),
        Index("jobs_by_pool_status", "pool_status", "created_at", "id"),
        Index("jobs_by_user", "user_id", "created_at", "id"),
        Index("jobs_by_state_and_creation", "state", "created_at", "id"),
        Index("jobs_by_user_and_state", "user_id", "state"),
        Index("jobs_by_role", "role_arn", "created_at", "id"),
        Index("jobs_by_instance_types", "instance_types", "created_at", "id"),
        NEVER_REUSED,
    )


class JobTransition(Base):
    __tablename__ = "job_transitions"
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True)
    status: Mapped[str] = mapped_column(String(32))
    message: Mapped[str] = mapped_column(Text)
    started_at: Mapped[float] = mapped_column(Float)
    ended_at: Mapped[float | None] = mapped_column(Float)


class Cluster(Base):
    """Instances held together for one job and then kept warm. `epoch` grows whenever it changes hands.

    `match_key` (a hash of `match_fields`) is set where the cluster may become a warm pool. `last_job_id`: the job whose
    pool it is while it is warm, from `warm_since` to `warm_until`; `warn_at`: when its end is to be told of, null where
    that was done.
    """

    __tablename__ = "clusters"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    epoch: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[float] = mapped_column(Float)
    released_at: Mapped[float | None] = mapped_column(Float)
    match_key: Mapped[str | None] = mapped_column(String(64))
    match_fields: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    last_job_id: Mapped[int | None] = mapped_column(Integer)
    warm_since: Mapped[float | None] = mapped_column(Float)
    warm_until: Mapped[float | None] = mapped_column(Float)
    warn_at: Mapped[float | None] = mapped_column(Float)

    __table_args__ = (_one_of("state", ClusterState), Index("clusters_by_state", "state"))


class Attempt(Base):
    __tablename__ = "attempts"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    number: Mapped[int] = mapped_column(Integer)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"))
    state: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[float] = mapped_column(Float)
    running_at: Mapped[float | None] = mapped_column(Float)
    ended_at: Mapped[float | None] = mapped_column(Float)
    deadline_at: Mapped[float] = mapped_column(Float)
    outcome: Mapped[dict[str, Any] | None] = mapped_column(JSON)

    __table_args__ = (
        _one_of("state", AttemptState),
        UniqueConstraint("job_id", "number"),
        Index(
            "one_live_attempt_per_job",
            "job_id",
            unique=True,
            sqlite_where=text("state <> 'cleared'"),
            postgresql_where=text("state <> 'cleared'"),
        ),
    )


class Agent(Base):
    __tablename__ = "agents"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    key_hash: Mapped[str] = mapped_column(String(64))
    boot_id: Mapped[str] = mapped_column(String(64))
    facts: Mapped[dict[str, Any]] = mapped_column(JSON)
    last_seen_at: Mapped[float] = mapped_column(Float)
    lease_expires_at: Mapped[float] = mapped_column(Float)


class Node(Base):
    """One slot of an agent. `instance_types` empty: it becomes whatever known type a job asks for. `draining_since`: it
    takes no new job."""

    __tablename__ = "nodes"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    agent_id: Mapped[str] = mapped_column(ForeignKey("agents.id"))
    slot: Mapped[int] = mapped_column(Integer)
    instance_types: Mapped[list[Any]] = mapped_column(JSON, default=list)
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(Text)
    cluster_id: Mapped[str | None] = mapped_column(ForeignKey("clusters.id"))
    draining_since: Mapped[float | None] = mapped_column(Float)

    __table_args__ = (_one_of("state", NodeState), UniqueConstraint("agent_id", "slot"))


class Instance(Base):
    """One member of an attempt on one node: `algo-<rank+1>`, with the newest report of its agent."""

    __tablename__ = "instances"
    id: Mapped[str] = mapped_column(String(80), primary_key=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id", ondelete="CASCADE"))
    rank: Mapped[int] = mapped_column(Integer)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    host: Mapped[str] = mapped_column(String(32))
    instance_type: Mapped[str] = mapped_column(String(64))
    instance_group: Mapped[str] = mapped_column(String(64))
    phase: Mapped[str | None] = mapped_column(String(16))
    revision: Mapped[int] = mapped_column(Integer, default=-1)
    report: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    cleared: Mapped[bool] = mapped_column(Boolean, default=False)

    __table_args__ = (
        UniqueConstraint("attempt_id", "rank"),
        Index("instances_by_node", "node_id"),
        Index(
            "one_live_instance_per_node",
            "node_id",
            unique=True,
            sqlite_where=text("cleared = 0"),
            postgresql_where=text("NOT cleared"),
        ),
    )


class PhaseRecord(Base):
    """The phase ledger: submit, persist, place, agent ack, code, data, environment, process, first line, upload …"""

    __tablename__ = "job_phases"
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    host: Mapped[str] = mapped_column(String(32), primary_key=True)
    phase: Mapped[str] = mapped_column(String(256), primary_key=True)
    started_at: Mapped[float] = mapped_column(Float)
    ended_at: Mapped[float | None] = mapped_column(Float)


class Tag(Base):
    __tablename__ = "tags"
    resource_arn: Mapped[str] = mapped_column(String(256), primary_key=True)
    key: Mapped[str] = mapped_column(String(128), primary_key=True)
    value: Mapped[str] = mapped_column(String(256))

    __table_args__ = (Index("tags_by_key", "key", "value", "resource_arn"),)


class Event(Base):
    """What happened, for people and for SSE: subject is `job/<name>`, `node/<id>` …"""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(Float)
    kind: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(256), index=True)
    message: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)

    __table_args__ = (NEVER_REUSED,)


class NotificationTarget(Base):
    """Somewhere that events are told to. `user_id` null: of everybody; else of this user (`notifications.receivers`).

    `cursor`: all events up to this id are delivered or none of the target's business. `kinds` empty: all.
    `by_admin`: made by an administrator, whose targets may be in private networks.
    """

    __tablename__ = "notification_targets"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    url_sealed: Mapped[bytes] = mapped_column(LargeBinary)
    shown_url: Mapped[str] = mapped_column(String(512))
    by_admin: Mapped[bool] = mapped_column(Boolean)
    kinds: Mapped[list[Any]] = mapped_column(JSON)
    created_at: Mapped[float] = mapped_column(Float)
    cursor: Mapped[int] = mapped_column(BigInteger)
    failures: Mapped[int] = mapped_column(Integer, default=0)
    failing_since: Mapped[float | None] = mapped_column(Float)
    next_try_at: Mapped[float | None] = mapped_column(Float)
    last_error: Mapped[str | None] = mapped_column(Text)
    delivered_at: Mapped[float | None] = mapped_column(Float)


class Lease(Base):
    """Work that one process of the service does at a time: `holder` until `expires_at`, unless it says it again."""

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    holder: Mapped[str] = mapped_column(String(64))
    expires_at: Mapped[float] = mapped_column(Float)


class LogStream(Base):
    """One CloudWatch stream: `<job>/algo-N-<epoch>` of `/aws/sagemaker/TrainingJobs`."""

    __tablename__ = "log_streams"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=True)
    job_name: Mapped[str] = mapped_column(String(63), index=True)
    name: Mapped[str] = mapped_column(String(160), unique=True)
    host: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[float] = mapped_column(Float)
    next_seq: Mapped[int] = mapped_column(Integer, default=0)
    first_ms: Mapped[int | None] = mapped_column(BigInteger)
    last_ms: Mapped[int | None] = mapped_column(BigInteger)
    last_ingest_ms: Mapped[int | None] = mapped_column(BigInteger)

    __table_args__ = (NEVER_REUSED,)


class LogChunk(Base):
    """Consecutive lines of a stream, zstd-compressed. `first_seq`..`last_seq` are inclusive positions in the stream."""

    __tablename__ = "log_chunks"
    stream_id: Mapped[int] = mapped_column(ForeignKey("log_streams.id", ondelete="CASCADE"), primary_key=True)
    first_seq: Mapped[int] = mapped_column(Integer, primary_key=True)
    last_seq: Mapped[int] = mapped_column(Integer)
    first_ms: Mapped[int] = mapped_column(BigInteger)
    last_ms: Mapped[int] = mapped_column(BigInteger)
    ingested_ms: Mapped[int] = mapped_column(BigInteger)
    data: Mapped[bytes] = mapped_column(LargeBinary)

    __table_args__ = (Index("log_chunks_by_time", "stream_id", "last_ms"),)


class LogSource(Base):
    """How far one host's lines are stored, per attempt: what makes a batch that is sent twice harmless."""

    __tablename__ = "log_sources"
    attempt_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    source: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_name: Mapped[str] = mapped_column(String(63), index=True)
    next_seq: Mapped[int] = mapped_column(Integer, default=0)
    last_contact_ms: Mapped[int] = mapped_column(BigInteger)


class MetricSample(Base):
    """One value. `point` makes a batch that is sent twice harmless (log line number, or the time for samples)."""

    __tablename__ = "metric_samples"
    job_name: Mapped[str] = mapped_column(String(63), primary_key=True)
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    host: Mapped[str] = mapped_column(String(32), primary_key=True)
    at_ms: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    point: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    value: Mapped[float] = mapped_column(Float)
