"""Corrections of the token estimate, by tenant and model."""

from alembic import op
from sqlalchemy import Column, Double, PrimaryKeyConstraint, Text

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "token_ratios",
        Column("tenant", _TEXT, nullable=False),
        Column("model", _TEXT, nullable=False),
        Column("ratio", Double, nullable=False),
        Column("learned_at", Double, nullable=False),
        PrimaryKeyConstraint("tenant", "model"),
    )
