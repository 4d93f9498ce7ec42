"""Users that left, users with a list of roles, and what counts against hard quotas

Revision: 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("deleted_at", sa.Float(), nullable=True))
    op.add_column("users", sa.Column("restricted", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "quota_holdings",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("instance_type", sa.String(length=64), nullable=False),
        sa.Column("instances", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("role_arn", sa.String(length=256), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "instance_type"),
    )
    op.create_index("quota_holdings_by_type", "quota_holdings", ["instance_type"], unique=False)
    op.create_index("quota_holdings_by_user", "quota_holdings", ["user_id", "instance_type"], unique=False)
    op.create_index("quota_holdings_by_role", "quota_holdings", ["role_arn", "instance_type"], unique=False)
    # One row for all to look at (and, on PostgreSQL, to lock) before there is any quota.
    op.execute("INSERT INTO meta (key, value) VALUES ('quota_version', 'none')")


def downgrade() -> None:
    op.execute("DELETE FROM meta WHERE key = 'quota_version'")
    op.drop_table("quota_holdings")
    op.drop_column("users", "restricted")
    op.drop_column("users", "deleted_at")
