"""Columns by which open suspensions are listed; those of earlier ones stay empty."""

from alembic import op
from sqlalchemy import Column, Double, Text

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("suspensions", Column("kind", _TEXT))
    op.add_column("suspensions", Column("tool", _TEXT))
    op.add_column("suspensions", Column("asked_at", Double))
