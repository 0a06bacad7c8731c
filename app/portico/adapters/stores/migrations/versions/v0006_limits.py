"""State of limits, and usage."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, PrimaryKeyConstraint, Text

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_GROUPS = ("user", "key_id", "agent", "model", "source")


def upgrade() -> None:
    op.create_table(
        "limit_rates",
        Column("name", _TEXT, primary_key=True),
        Column("full_at", Double, nullable=False),
    )
    op.create_table(
        "limit_slots",
        Column("name", _TEXT, nullable=False),
        Column("replica", _TEXT, nullable=False),
        Column("slots", BigInteger, nullable=False),
        Column("expires_at", Double, nullable=False),
        PrimaryKeyConstraint("name", "replica"),
    )
    op.create_table(
        "usage",
        Column("tenant", _TEXT, nullable=False),
        Column("hour", BigInteger, nullable=False),
        *(Column(name, _TEXT, nullable=False) for name in _GROUPS),
        *(Column(name, BigInteger, nullable=False) for name in ("executions", "input_tokens", "output_tokens")),
        Column("cost", Double, nullable=False),
        PrimaryKeyConstraint("tenant", "hour", *_GROUPS),
    )
