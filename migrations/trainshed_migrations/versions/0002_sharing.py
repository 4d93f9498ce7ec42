"""What sharing needs: priorities, quotas, who may pass which role, usage, warm pools

Revision: 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "role_passes",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role_arn", sa.String(length=256), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["role_arn"], ["roles.arn"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", "role_arn"),
    )
    op.create_table(
        "quotas",
        sa.Column("subject_kind", sa.String(length=8), nullable=False),
        sa.Column("subject", sa.String(length=256), nullable=False),
        sa.Column("instance_type", sa.String(length=64), nullable=False),
        sa.Column("instances", sa.Integer(), nullable=True),
        sa.Column("warm_instances", sa.Integer(), nullable=True),
        sa.Column("hard", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.CheckConstraint("subject_kind IN ('all', 'user', 'role')", name="subject_kind_known"),
        sa.CheckConstraint("instances IS NULL OR instances >= 0", name="instances_not_negative"),
        sa.CheckConstraint("warm_instances IS NULL OR warm_instances >= 0", name="warm_instances_not_negative"),
        sa.PrimaryKeyConstraint("subject_kind", "subject", "instance_type"),
    )
    op.create_table(
        "usage",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("instance_seconds", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id"),
    )
    op.add_column("clusters", sa.Column("match_key", sa.String(length=64), nullable=True))
    op.add_column("clusters", sa.Column("match_fields", sa.JSON(), nullable=True))
    op.add_column("clusters", sa.Column("last_job_id", sa.Integer(), nullable=True))
    op.add_column("clusters", sa.Column("warm_since", sa.Float(), nullable=True))
    op.add_column("clusters", sa.Column("warm_until", sa.Float(), nullable=True))
    op.create_index("clusters_by_state", "clusters", ["state"], unique=False)
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    # With its constraint in one statement: SQLite adds none later without a copy of the table, whose end would
    # take the rows of other tables that refer to it along.
    op.execute(
        "ALTER TABLE jobs ADD COLUMN pool_status VARCHAR(16) CONSTRAINT pool_status_known "
        "CHECK (pool_status IN ('InUse', 'Available', 'Reused', 'Terminated'))"
    )
    op.add_column("jobs", sa.Column("pool_reused_by", sa.String(length=63), nullable=True))
    op.add_column("jobs", sa.Column("pool_retained_seconds", sa.Integer(), nullable=True))
    op.create_index("jobs_by_pool_status", "jobs", ["pool_status", "created_at", "id"], unique=False)
    op.create_index("jobs_by_user", "jobs", ["user_id", "created_at", "id"], unique=False)


def downgrade() -> None:
    op.drop_index("jobs_by_user", "jobs")
    op.drop_index("jobs_by_pool_status", "jobs")
    for name in ("pool_retained_seconds", "pool_reused_by", "pool_status", "priority"):
        op.drop_column("jobs", name)
    op.drop_index("clusters_by_state", "clusters")
    for name in ("warm_until", "warm_since", "last_job_id", "match_fields", "match_key"):
        op.drop_column("clusters", name)
    for name in ("usage", "quotas", "role_passes"):
        op.drop_table(name)
