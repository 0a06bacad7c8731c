"""Columns of the status, and a table, by which executions are found."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, PrimaryKeyConstraint, Text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("executions", Column("started_at", Double))
    for name in ("provider", "model", "agent"):
        op.add_column("executions", Column(name, _TEXT))
    op.add_column("executions", Column("fork_points", BigInteger))
    op.create_table(
        "metadata_entries",
        Column("tenant", _TEXT, nullable=False),
        Column("execution_id", _TEXT, nullable=False),
        Column("entry", _TEXT, nullable=False),
        PrimaryKeyConstraint("execution_id", "entry"),
    )
    op.create_index("metadata_entries_found", "metadata_entries", ["tenant", "entry", "execution_id"])
