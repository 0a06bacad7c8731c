"""Users and keys of executions, and users of sessions; what there was before belongs to the user `local`."""

from alembic import op
from sqlalchemy import Column, Text, text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_LOCAL = text("'local'")


def upgrade() -> None:
    for table in ("executions", "sessions"):
        op.add_column(table, Column("user_id", _TEXT, nullable=False, server_default=_LOCAL))
    op.add_column("executions", Column("key_id", _TEXT))
    op.create_index("executions_of_user", "executions", ["tenant", "user_id", "execution_id"])
    op.create_index("sessions_of_user", "sessions", ["tenant", "user_id", "updated_at", "session_id"])
