"""A job's role and instance types as columns, and indexes along which lists of jobs are filtered and ordered

Revision: 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_BATCH = 1_000


def upgrade() -> None:
    op.add_column("jobs", sa.Column("role_arn", sa.String(length=256), nullable=True))
    op.add_column("jobs", sa.Column("instance_types", sa.String(length=512), nullable=True))
    _fill()
    op.create_index("jobs_by_state_and_creation", "jobs", ["state", "created_at", "id"])
    op.create_index("jobs_by_user_and_state", "jobs", ["user_id", "state"])
    op.create_index("jobs_by_role", "jobs", ["role_arn", "created_at", "id"])
    op.create_index("jobs_by_instance_types", "jobs", ["instance_types", "created_at", "id"])
    op.create_index("tags_by_key", "tags", ["key", "value", "resource_arn"])


def downgrade() -> None:
    op.drop_index("tags_by_key", "tags")
    for name in ("jobs_by_instance_types", "jobs_by_role", "jobs_by_user_and_state", "jobs_by_state_and_creation"):
        op.drop_index(name, "jobs")
    with op.batch_alter_table("jobs") as table:
        table.drop_column("instance_types")
        table.drop_column("role_arn")


def _fill() -> None:
    """From the requests, which stay as they are."""
    jobs = sa.table(
        "jobs",
        sa.column("id", sa.Integer),
        sa.column("request", sa.JSON),
        sa.column("role_arn", sa.String),
        sa.column("instance_types", sa.String),
    )
    connection = op.get_bind()
    last = 0
    while rows := connection.execute(
        sa.select(jobs.c.id, jobs.c.request).where(jobs.c.id > last).order_by(jobs.c.id).limit(_BATCH)
    ).all():
        last = rows[-1].id
        for job_id, request in rows:
            resources = (request or {}).get("ResourceConfig") or {}
            groups = resources.get("InstanceGroups") or [resources]
            types = sorted({group["InstanceType"] for group in groups if group.get("InstanceType")})
            values = {"role_arn": (request or {}).get("RoleArn", "")[:256], "instance_types": ",".join(types)[:512]}
            connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(values))
