"""Tables of live replicas and of requested cancellations."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, PrimaryKeyConstraint, Text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "cancels",
        Column("execution_id", _TEXT, nullable=False),
        Column("tenant", _TEXT, nullable=False),
        Column("asked_at", Double, nullable=False),
        PrimaryKeyConstraint("execution_id"),
    )
    op.create_table(
        "replicas",
        Column("replica", _TEXT, nullable=False),
        Column("beats", BigInteger, nullable=False),
        PrimaryKeyConstraint("replica"),
    )
