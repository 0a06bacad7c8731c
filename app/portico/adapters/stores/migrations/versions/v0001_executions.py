"""Executions with their commits and suspensions, sessions with their messages, idempotency keys."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, LargeBinary, PrimaryKeyConstraint, Text, text

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_LIVE = text("state NOT IN ('COMPLETE', 'ERROR', 'CANCELLED')")
_IN_SESSION = text("session_id IS NOT NULL")
_STEP = text("key IS NOT NULL")
_OPEN = text("answered_at IS NULL")


def upgrade() -> None:
    _executions()
    _commits()
    _suspensions()
    _sessions()
    _idempotency_keys()


def _executions() -> None:
    op.create_table(
        "executions",
        _text("execution_id"),
        _text("tenant"),
        _text("request_id"),
        _text("session_id", nullable=True),
        _text("mode"),
        _text("state"),
        _seconds("created_at"),
        _seconds("entered_at"),
        _count("attempt"),
        _count("total_steps"),
        _text("last_step", nullable=True),
        _text("last_error", nullable=True),
        _count("commits"),
        _count("events"),
        _text("owner", nullable=True),
        _count("epoch"),
        _json("response", nullable=True),
        PrimaryKeyConstraint("execution_id"),
    )
    op.create_index("executions_request", "executions", ["tenant", "request_id"], unique=True)
    op.create_index("executions_newest", "executions", ["tenant", "execution_id"])
    op.create_index("executions_live", "executions", ["execution_id"], sqlite_where=_LIVE, postgresql_where=_LIVE)
    op.create_index(
        "executions_session",
        "executions",
        ["tenant", "session_id", "execution_id"],
        sqlite_where=_IN_SESSION,
        postgresql_where=_IN_SESSION,
    )


def _commits() -> None:
    op.create_table(
        "commits",
        _text("execution_id"),
        _count("number"),
        _count("epoch"),
        _count("first_event", nullable=True),
        _count("last_event", nullable=True),
        _text("key", nullable=True),
        _text("fingerprint", nullable=True),
        _seconds("at", nullable=True),
        _json("outcome", nullable=True),
        _json("events", nullable=True),
        PrimaryKeyConstraint("execution_id", "number"),
    )
    op.create_index(
        "commits_step", "commits", ["execution_id", "key"], unique=True, sqlite_where=_STEP, postgresql_where=_STEP
    )


def _suspensions() -> None:
    op.create_table(
        "suspensions",
        _text("tenant"),
        _text("execution_id"),
        _text("suspension_id"),
        _seconds("expires_at"),
        _seconds("answered_at", nullable=True),
        _json("suspension"),
        PrimaryKeyConstraint("execution_id", "suspension_id"),
    )
    op.create_index(
        "suspensions_open", "suspensions", ["tenant", "execution_id"], sqlite_where=_OPEN, postgresql_where=_OPEN
    )


def _sessions() -> None:
    op.create_table(
        "sessions",
        _text("tenant"),
        _text("session_id"),
        _seconds("created_at"),
        _seconds("updated_at"),
        _count("messages"),
        _text("holder", nullable=True),
        _json("details", nullable=True),
        PrimaryKeyConstraint("tenant", "session_id"),
    )
    op.create_index("sessions_newest", "sessions", ["tenant", "updated_at", "session_id"])
    op.create_table(
        "messages",
        _text("tenant"),
        _text("session_id"),
        _count("number"),
        _text("execution_id"),
        _seconds("at"),
        _json("message"),
        PrimaryKeyConstraint("tenant", "session_id", "number"),
    )


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        _text("tenant"),
        _text("key"),
        _text("body_digest"),
        _text("execution_id"),
        _seconds("created_at"),
        PrimaryKeyConstraint("tenant", "key"),
    )
    op.create_index("idempotency_keys_age", "idempotency_keys", ["created_at"])


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    """Text that sorts bytewise."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=nullable)


def _count(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _seconds(name: str, *, nullable: bool = False) -> Column[float]:
    return Column(name, Double, nullable=nullable)


def _json(name: str, *, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)
