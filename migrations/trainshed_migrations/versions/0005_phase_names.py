"""Names of phases say in words how a process was started: longer than PostgreSQL took until now

Revision: 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("job_phases") as table:
        table.alter_column(
            "phase", type_=sa.String(length=256), existing_type=sa.String(length=32), existing_nullable=False
        )


def downgrade() -> None:
    with op.batch_alter_table("job_phases") as table:
        table.alter_column(
            "phase", type_=sa.String(length=32), existing_type=sa.String(length=256), existing_nullable=False
        )
