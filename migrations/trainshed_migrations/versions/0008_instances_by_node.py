"""Which jobs ran on a node, found by an index

Revision: 0008, after 0007.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("instances_by_node", "instances", ["node_id"])


def downgrade() -> None:
    op.drop_index("instances_by_node", "instances")
