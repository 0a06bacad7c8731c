"""The first schema. Until the first release it changes in place and takes another id each time: `1a`, `1b`, …"""

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, LargeBinary, PrimaryKeyConstraint, Text, text

revision = "1n"
down_revision = None
branch_labels = None
depends_on = None

_ID = BigInteger().with_variant(Integer, "sqlite")
_ENDED = "state IN ('COMPLETE', 'ERROR', 'CANCELLED')"
_DOCUMENT = ("tenant", "user_id", "document_id")
_USAGE_GROUPS = ("user", "key_id", "agent", "model", "source")


def upgrade() -> None:
    _executions()
    _ancestors()
    _metadata_entries()
    _commits()
    _suspensions()
    _grants()
    _credentials()
    _sessions()
    _replicas()
    _delayed_starts()
    _schedules()
    _limits()
    _api_keys()
    _documents()
    _chunks()
    _vectors()
    _word_index()
    _token_ratios()
    _webhooks()


def _executions() -> None:
    op.create_table(
        "executions",
        *map(_text, ("execution_id", "tenant", "request_id")),
        _text("session_id", nullable=True),
        *map(_text, ("mode", "state")),
        *map(_number, ("created_at", "entered_at")),
        *map(_count, ("attempt", "total_steps")),
        _text("last_step", nullable=True),
        _text("last_error", nullable=True),
        *map(_count, ("commits", "events")),
        _text("owner", nullable=True),
        _count("epoch"),
        _data("response", nullable=True),
        _number("started_at", nullable=True),
        *(_text(name, nullable=True) for name in ("provider", "model", "agent")),
        _count("fork_points"),
        _data("header", nullable=True),
        _count("erase_at_end"),
        _text("user_id"),
        _text("key_id", nullable=True),
        _data("title", nullable=True),
        _text("origin", nullable=True),
        _count("origin_step", nullable=True),
        _text("channel"),
        _number("run_at", nullable=True),
        PrimaryKeyConstraint("execution_id"),
    )
    op.create_index("executions_request", "executions", ["tenant", "request_id"], unique=True)
    op.create_index("executions_newest", "executions", ["tenant", "execution_id"])
    op.create_index("executions_of_user", "executions", ["tenant", "user_id", "execution_id"])
    counted = ["tenant", "created_at", "state", "started_at", "entered_at", "user_id"]
    _partial_index("executions_ended", "executions", counted, _ENDED)
    _partial_index("executions_with_history", "executions", ["entered_at"], f"header IS NULL AND {_ENDED}")
    _partial_index("executions_without_history", "executions", ["entered_at"], "header IS NOT NULL")
    _partial_index("executions_live", "executions", ["execution_id"], _ENDED.replace(" IN ", " NOT IN "))
    in_session = ["tenant", "session_id", "execution_id"]
    _partial_index("executions_session", "executions", in_session, "session_id IS NOT NULL")
    from_origin = ["tenant", "origin", "execution_id"]
    _partial_index("executions_origin", "executions", from_origin, "origin IS NOT NULL")


def _ancestors() -> None:
    op.create_table(
        "ancestors",
        *map(_text, ("tenant", "execution_id", "ancestor_id")),
        PrimaryKeyConstraint("execution_id", "ancestor_id"),
    )
    op.create_index("ancestors_descendants", "ancestors", ["tenant", "ancestor_id", "execution_id"])


def _metadata_entries() -> None:
    op.create_table(
        "metadata_entries",
        *map(_text, ("tenant", "execution_id", "entry")),
        PrimaryKeyConstraint("execution_id", "entry"),
    )
    op.create_index("metadata_entries_found", "metadata_entries", ["tenant", "entry", "execution_id"])


def _commits() -> None:
    op.create_table(
        "commits",
        _text("execution_id"),
        *map(_count, ("number", "epoch")),
        *(_count(name, nullable=True) for name in ("first_event", "last_event")),
        *(_text(name, nullable=True) for name in ("key", "fingerprint")),
        _number("at", nullable=True),
        *(_data(name, nullable=True) for name in ("outcome", "events")),
        PrimaryKeyConstraint("execution_id", "number"),
    )
    _partial_index("commits_step", "commits", ["execution_id", "key"], "key IS NOT NULL", unique=True)


def _suspensions() -> None:
    op.create_table(
        "suspensions",
        *map(_text, ("tenant", "execution_id", "suspension_id")),
        _number("expires_at"),
        _number("answered_at", nullable=True),
        _data("suspension"),
        *map(_text, ("kind", "tool")),
        _number("asked_at", nullable=True),
        PrimaryKeyConstraint("execution_id", "suspension_id"),
    )
    _partial_index("suspensions_open", "suspensions", ["tenant", "execution_id"], "answered_at IS NULL")


def _grants() -> None:
    op.create_table(
        "grants",
        *map(_text, ("grant_id", "tenant", "user_id", "tool", "tool_digest", "scope", "execution_id", "request_id")),
        _text("session_id", nullable=True),
        *map(_text, ("agent", "arguments_digest", "granted_by")),
        *map(_number, ("granted_at", "expires_at")),
        _count("uses"),
        PrimaryKeyConstraint("grant_id"),
    )
    op.create_index("grants_tool", "grants", ["tenant", "user_id", "tool"])
    op.create_index("grants_execution", "grants", ["execution_id"])


def _credentials() -> None:
    op.create_table(
        "credentials",
        *map(_text, ("tenant", "user_id", "execution_id", "name")),
        _data("sealed"),
        _number("set_at"),
        _count("rejected"),
        PrimaryKeyConstraint("tenant", "user_id", "execution_id", "name"),
    )
    _partial_index("credentials_execution", "credentials", ["execution_id"], "execution_id <> ''")


def _sessions() -> None:
    op.create_table(
        "sessions",
        *map(_text, ("tenant", "session_id")),
        *map(_number, ("created_at", "updated_at")),
        _count("messages"),
        _text("holder", nullable=True),
        _data("details", nullable=True),
        _text("user_id"),
        PrimaryKeyConstraint("tenant", "session_id"),
    )
    op.create_index("sessions_newest", "sessions", ["tenant", "updated_at", "session_id"])
    op.create_index("sessions_of_user", "sessions", ["tenant", "user_id", "updated_at", "session_id"])
    op.create_index("sessions_idle", "sessions", ["updated_at"])
    op.create_table(
        "messages",
        *map(_text, ("tenant", "session_id")),
        _count("number"),
        _text("execution_id"),
        _number("at"),
        _data("message"),
        PrimaryKeyConstraint("tenant", "session_id", "number"),
    )


def _replicas() -> None:
    op.create_table(
        "cancels",
        *map(_text, ("execution_id", "tenant")),
        _number("asked_at"),
        PrimaryKeyConstraint("execution_id"),
    )
    op.create_table("replicas", _text("replica"), _count("beats"), PrimaryKeyConstraint("replica"))
    op.create_table(
        "idempotency_keys",
        *map(_text, ("tenant", "key", "body_digest", "execution_id")),
        _number("created_at"),
        PrimaryKeyConstraint("tenant", "key"),
    )
    op.create_index("idempotency_keys_age", "idempotency_keys", ["created_at"])
    op.create_index("idempotency_keys_execution", "idempotency_keys", ["execution_id"])


def _timers(name: str, *columns: Column[Any]) -> None:
    op.create_table(
        name,
        *map(_text, ("timer_id", "tenant")),
        _number("due_at", nullable=True),
        _text("claimed_by", nullable=True),
        *columns,
        PrimaryKeyConstraint("timer_id"),
    )
    _partial_index(f"{name}_due", name, ["due_at"], "due_at IS NOT NULL AND claimed_by IS NULL")
    _partial_index(f"{name}_claimed", name, ["claimed_by"], "claimed_by IS NOT NULL")


def _delayed_starts() -> None:
    _timers("delayed_starts")
    op.create_index("delayed_starts_tenant", "delayed_starts", ["tenant"])


def _schedules() -> None:
    _timers(
        "schedules",
        *map(_text, ("name", "user_id")),
        _number("planned_at", nullable=True),
        *map(_number, ("created_at", "updated_at")),
        _data("content"),
        *(_text(name, nullable=True) for name in ("started_id", "last_run")),
        *(_number(name, nullable=True) for name in ("last_at", "last_started_at")),
        *(_text(name, nullable=True) for name in ("last_outcome", "last_code")),
    )
    op.create_index("schedules_name", "schedules", ["tenant", "name"], unique=True)
    op.create_table(
        "schedule_runs",
        *map(_text, ("tenant", "run_id", "name")),
        *map(_number, ("at", "started_at")),
        _text("outcome"),
        _text("code", nullable=True),
        PrimaryKeyConstraint("tenant", "run_id"),
    )
    op.create_index("schedule_runs_latest", "schedule_runs", ["tenant", "name", "at", "run_id"])
    op.create_index("schedule_runs_age", "schedule_runs", ["started_at"])


def _limits() -> None:
    op.create_table("limit_rates", _text("name"), _number("full_at"), PrimaryKeyConstraint("name"))
    op.create_table(
        "limit_slots",
        *map(_text, ("name", "replica")),
        _count("slots"),
        _number("expires_at"),
        PrimaryKeyConstraint("name", "replica"),
    )
    op.create_table(
        "usage",
        _text("tenant"),
        _count("hour"),
        *map(_text, _USAGE_GROUPS),
        *map(_count, ("executions", "input_tokens", "output_tokens")),
        _number("cost"),
        PrimaryKeyConstraint("tenant", "hour", *_USAGE_GROUPS),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        *map(_text, ("key_id", "tenant", "user_id", "secret_hash")),
        *map(_data, ("permissions", "limits")),
        _number("created_at"),
        *(_number(name, nullable=True) for name in ("expires_at", "revoked_at", "last_used_at")),
        *(_text(name, nullable=True) for name in ("created_by", "channel")),
        PrimaryKeyConstraint("key_id"),
    )
    op.create_index("api_keys_tenant", "api_keys", ["tenant", "created_at", "key_id"])


def _documents() -> None:
    op.create_table(
        "memory_documents",
        *map(_text, (*_DOCUMENT, "revision", "scope")),
        _count("shared"),
        _text("digest"),
        *map(_count, ("size", "chunks")),
        *map(_number, ("created_at", "updated_at")),
        _text("key_id", nullable=True),
        _number("embed_at", nullable=True),
        _count("failures"),
        _data("content"),
        PrimaryKeyConstraint(*_DOCUMENT),
    )
    op.create_index("memory_documents_page", "memory_documents", ["tenant", "document_id", "user_id"])
    shared = ["tenant", "document_id"]
    _partial_index("memory_documents_shared", "memory_documents", shared, "shared = 1", unique=True)
    _partial_index("memory_documents_due", "memory_documents", ["embed_at"], "embed_at IS NOT NULL")


def _chunks() -> None:
    op.create_table(
        "memory_chunks",
        Column("chunk_id", _ID, primary_key=True),
        *map(_text, _DOCUMENT),
        _count("number"),
        _text("scope"),
        _count("words"),
        *map(_data, ("terms", "text")),
        sqlite_autoincrement=True,
    )
    op.create_index("memory_chunks_document", "memory_chunks", [*_DOCUMENT, "number"], unique=True)
    op.create_table(
        "memory_scopes",
        *map(_text, ("scope", "version")),
        *map(_count, ("chunks", "words")),
        PrimaryKeyConstraint("scope"),
    )
    op.create_table("memory_tenants", _text("tenant"), _count("size"), PrimaryKeyConstraint("tenant"))


def _vectors() -> None:
    op.create_table(
        "memory_vectors",
        Column("chunk_id", _ID, primary_key=True, autoincrement=False),
        *map(_text, ("tenant", "scope", "embedder", "model")),
        _count("dimension"),
        _data("vector"),
    )
    op.create_index("memory_vectors_scope", "memory_vectors", ["scope", "embedder", "model", "chunk_id"])
    op.create_index("memory_vectors_tenant", "memory_vectors", ["tenant", "embedder", "model"])


def _word_index() -> None:
    if op.get_context().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE memory_index USING fts5(terms, content = '', detail = none, columnsize = 0)")
    else:
        op.execute("CREATE TABLE memory_index (rowid BIGINT PRIMARY KEY, terms TSVECTOR NOT NULL)")
        op.execute("CREATE INDEX memory_index_terms ON memory_index USING gin (terms)")


def _token_ratios() -> None:
    op.create_table(
        "token_ratios",
        *map(_text, ("tenant", "model")),
        *map(_number, ("ratio", "learned_at")),
        PrimaryKeyConstraint("tenant", "model"),
    )


def _webhooks() -> None:
    op.create_table(
        "webhook_endpoints",
        *map(_text, ("tenant", "name")),
        *map(_data, ("url", "events")),
        *map(_count, ("always", "content")),
        _data("secret"),
        _data("earlier_secret", nullable=True),
        *map(_number, ("earlier_until", "created_at", "updated_at")),
        _text("created_by", nullable=True),
        PrimaryKeyConstraint("tenant", "name"),
    )
    _partial_index("webhook_endpoints_of_key", "webhook_endpoints", ["created_by"], "created_by IS NOT NULL")
    op.create_table(
        "webhook_states",
        *map(_text, ("endpoint", "tenant")),
        *(_number(name, nullable=True) for name in ("failing_since", "disabled_at")),
        _text("disabled_because", nullable=True),
        PrimaryKeyConstraint("endpoint"),
    )
    _webhook_deliveries()


def _webhook_deliveries() -> None:
    name = "webhook_deliveries"
    _timers(
        name,
        *map(_text, ("lane", "endpoint_key", "endpoint", "type")),
        *(_text(each, nullable=True) for each in ("execution_id", "request_id")),
        _text("state"),
        _count("attempts"),
        _count("last_status", nullable=True),
        _text("last_error", nullable=True),
        _number("created_at"),
        _number("ended_at", nullable=True),
        _data("body"),
    )
    _partial_index(f"{name}_waiting", name, ["lane", "due_at"], "due_at IS NOT NULL AND claimed_by IS NULL")
    _partial_index(f"{name}_ended", name, ["state", "ended_at"], "ended_at IS NOT NULL")
    op.create_index(f"{name}_newest", name, ["tenant", "created_at", "timer_id"])
    _partial_index(f"{name}_execution", name, ["execution_id"], "execution_id IS NOT NULL")


def _partial_index(name: str, table: str, columns: list[str], condition: str, *, unique: bool = False) -> None:
    where = text(condition)
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    """Return a column of text that sorts bytewise."""
    return Column(name, Text().with_variant(Text(collation="C"), "postgresql"), nullable=nullable)


def _count(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> Column[float]:
    """Return a column of floating-point numbers: Unix seconds, costs, ratios."""
    return Column(name, Double, nullable=nullable)


def _data(name: str, *, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)
