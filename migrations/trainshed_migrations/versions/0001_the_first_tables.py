"""The first tables

Revision: 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("boot_id", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("last_seen_at", sa.Float(), nullable=False),
        sa.Column("lease_expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "clusters",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("released_at", sa.Float(), nullable=True),
        sa.CheckConstraint("state IN ('held', 'warm', 'releasing', 'gone')", name="state_known"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=256), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_subject"), ["subject"], unique=False)

    op.create_table(
        "log_sources",
        sa.Column("attempt_id", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("job_name", sa.String(length=63), nullable=False),
        sa.Column("next_seq", sa.Integer(), nullable=False),
        sa.Column("last_contact_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "source"),
    )
    with op.batch_alter_table("log_sources", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_log_sources_job_name"), ["job_name"], unique=False)

    op.create_table(
        "log_streams",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("job_name", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=160), nullable=False),
        sa.Column("host", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("next_seq", sa.Integer(), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_ingest_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("log_streams", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_log_streams_job_name"), ["job_name"], unique=False)

    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "metric_samples",
        sa.Column("job_name", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=32), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("point", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("job_name", "name", "host", "at_ms", "point"),
    )
    op.create_table(
        "roles",
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("arn"),
    )
    with op.batch_alter_table("roles", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_roles_name"), ["name"], unique=False)

    op.create_table(
        "tags",
        sa.Column("resource_arn", sa.String(length=256), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("value", sa.String(length=256), nullable=False),
        sa.PrimaryKeyConstraint("resource_arn", "key"),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("is_admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "access_keys",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("attempt_id", sa.String(length=64), nullable=True),
        sa.Column("secret_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("session_token_hash", sa.String(length=64), nullable=True),
        sa.Column("policy", sa.JSON(), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("access_keys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_access_keys_attempt_id"), ["attempt_id"], unique=False)

    op.create_table(
        "bearer_tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("arn", sa.String(length=256), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("secondary_status", sa.String(length=32), nullable=False),
        sa.Column("status_message", sa.Text(), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("pending_failure", sa.JSON(), nullable=True),
        sa.Column("stop_reason", sa.String(length=32), nullable=True),
        sa.Column("request_raw", sa.LargeBinary(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("notices", sa.JSON(), nullable=False),
        sa.Column("instance_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("modified_at", sa.Float(), nullable=False),
        sa.Column("training_started_at", sa.Float(), nullable=True),
        sa.Column("training_ended_at", sa.Float(), nullable=True),
        sa.Column("final_metrics", sa.JSON(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "state IN ('queued', 'placed', 'downloading', 'training', 'stopping', 'uploading', 'completed', 'failed', "
            "'stopped', 'deleting')",
            name="state_known",
        ),
        sa.CheckConstraint("instance_count >= 1", name="instances_positive"),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("arn"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index("jobs_by_creation", ["created_at", "id"], unique=False)
        batch_op.create_index("jobs_by_modification", ["modified_at", "id"], unique=False)
        batch_op.create_index("jobs_by_state", ["state", "id"], unique=False)
        batch_op.create_index("jobs_by_status", ["status", "created_at", "id"], unique=False)

    op.create_table(
        "log_chunks",
        sa.Column("stream_id", sa.Integer(), nullable=False),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.Column("ingested_ms", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["stream_id"], ["log_streams.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("stream_id", "first_seq"),
    )
    with op.batch_alter_table("log_chunks", schema=None) as batch_op:
        batch_op.create_index("log_chunks_by_time", ["stream_id", "last_ms"], unique=False)

    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("instance_types", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cluster_id", sa.String(length=64), nullable=True),
        sa.CheckConstraint("state IN ('free', 'leased', 'warm', 'quarantined', 'lost')", name="state_known"),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["clusters.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "slot"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("cluster_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("running_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("deadline_at", sa.Float(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.CheckConstraint(
            "state IN ('preparing', 'running', 'ending', 'assembling', 'ended', 'cleared')", name="state_known"
        ),
        sa.ForeignKeyConstraint(
            ["cluster_id"],
            ["clusters.id"],
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "number"),
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(
            "one_live_attempt_per_job",
            ["job_id"],
            unique=True,
            sqlite_where=sa.text("state <> 'cleared'"),
            postgresql_where=sa.text("state <> 'cleared'"),
        )

    op.create_table(
        "job_phases",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "host", "phase"),
    )
    op.create_table(
        "job_transitions",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq"),
    )
    op.create_table(
        "instances",
        sa.Column("id", sa.String(length=80), nullable=False),
        sa.Column("attempt_id", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=32), nullable=False),
        sa.Column("instance_type", sa.String(length=64), nullable=False),
        sa.Column("instance_group", sa.String(length=64), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("cleared", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["node_id"],
            ["nodes.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("attempt_id", "rank"),
    )
    with op.batch_alter_table("instances", schema=None) as batch_op:
        batch_op.create_index(
            "one_live_instance_per_node",
            ["node_id"],
            unique=True,
            sqlite_where=sa.text("cleared = 0"),
            postgresql_where=sa.text("NOT cleared"),
        )


def downgrade() -> None:
    with op.batch_alter_table("instances", schema=None) as batch_op:
        batch_op.drop_index(
            "one_live_instance_per_node", sqlite_where=sa.text("cleared = 0"), postgresql_where=sa.text("NOT cleared")
        )

    op.drop_table("instances")
    op.drop_table("job_transitions")
    op.drop_table("job_phases")
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_index(
            "one_live_attempt_per_job",
            sqlite_where=sa.text("state <> 'cleared'"),
            postgresql_where=sa.text("state <> 'cleared'"),
        )

    op.drop_table("attempts")
    op.drop_table("nodes")
    with op.batch_alter_table("log_chunks", schema=None) as batch_op:
        batch_op.drop_index("log_chunks_by_time")

    op.drop_table("log_chunks")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("jobs_by_status")
        batch_op.drop_index("jobs_by_state")
        batch_op.drop_index("jobs_by_modification")
        batch_op.drop_index("jobs_by_creation")

    op.drop_table("jobs")
    op.drop_table("bearer_tokens")
    with op.batch_alter_table("access_keys", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_access_keys_attempt_id"))

    op.drop_table("access_keys")
    op.drop_table("users")
    op.drop_table("tags")
    op.drop_table("roles")
    op.drop_table("metric_samples")
    op.drop_table("meta")
    with op.batch_alter_table("log_streams", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_log_streams_job_name"))

    op.drop_table("log_streams")
    with op.batch_alter_table("log_sources", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_log_sources_job_name"))

    op.drop_table("log_sources")
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_events_subject"))

    op.drop_table("events")
    op.drop_table("clusters")
    op.drop_table("agents")
