"""Notification targets, who delivers to them, and when a warm pool's end is told of

Revision: 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notification_targets",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("url_sealed", sa.LargeBinary(), nullable=False),
        sa.Column("shown_url", sa.String(length=512), nullable=False),
        sa.Column("by_admin", sa.Boolean(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failing_since", sa.Float(), nullable=True),
        sa.Column("next_try_at", sa.Float(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("delivered_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.execute("INSERT INTO leases (name, holder, expires_at) VALUES ('notifications', '', 0)")
    op.add_column("clusters", sa.Column("warn_at", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("clusters", "warn_at")
    op.drop_table("leases")
    op.drop_table("notification_targets")
