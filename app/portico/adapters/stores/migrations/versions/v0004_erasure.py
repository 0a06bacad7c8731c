"""Ancestors of forks, headers without history, and executions that are erased when they end."""

from alembic import op
from sqlalchemy import BigInteger, Column, LargeBinary, PrimaryKeyConstraint, Text, text

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_RETENTION = (
    ("executions_with_history", "header IS NULL AND state IN ('COMPLETE', 'ERROR', 'CANCELLED')"),
    ("executions_without_history", "header IS NOT NULL"),
)


def upgrade() -> None:
    op.add_column("executions", Column("header", LargeBinary))
    op.add_column("executions", Column("erase_at_end", BigInteger, nullable=False, server_default=text("0")))
    for name, condition in _RETENTION:
        where = text(condition)
        op.create_index(name, "executions", ["entered_at"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "ancestors",
        Column("tenant", _TEXT, nullable=False),
        Column("execution_id", _TEXT, nullable=False),
        Column("ancestor_id", _TEXT, nullable=False),
        PrimaryKeyConstraint("execution_id", "ancestor_id"),
    )
    op.create_index("ancestors_descendants", "ancestors", ["tenant", "ancestor_id", "execution_id"])
    op.create_index("sessions_idle", "sessions", ["updated_at"])
    op.create_index("idempotency_keys_execution", "idempotency_keys", ["execution_id"])
