"""Nodes that take no new job: since when

Revision: 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("draining_since", sa.Float(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("nodes") as table:
        table.drop_column("draining_since")
