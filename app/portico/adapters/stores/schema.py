"""Tables of both databases. The migration makes the same ones, and a test compares the two.

Times are Unix seconds. Text sorts bytewise on both databases, and only our ids, names and codes are text: data of
others is stored as bytes of the codec, because PostgreSQL text cannot contain NUL. Every table has a tenant column,
except `commits`, which belongs to an execution, and `replicas`. A row of `commits` has a recorded step and the events
of one commit; commit 0 has the header as its outcome, together with the steps that were recorded in memory before.
`epoch` counts the owners of an execution: writes of an earlier owner are refused. `metadata_entries` has a digest of
each pair of the client's metadata, by which executions are found. `ancestors` has every execution from which a fork
comes, and so holds copies of its messages. `header` is set when the steps and events of an ended execution are deleted;
an execution with `erase_at_end` is erased by the commit that ends it. `origin` is the request id of the execution that
it goes on from: from a step, or without `origin_step` from the end.

`limit_rates` and `limit_slots` have the state of limits by name, which names the key or the tenant, the latter for each
replica. `usage` has the counts of one source each, an execution or a process, by hour.

A table of timers begins with the columns of `timer_columns`: a row is due at `due_at`, and belongs to the replica that
it is `claimed_by`. `schedules` is one: a schedule is due at its next time, which is `planned_at`, or later if a run is
tried again. `delayed_starts` is another: a row is there until its execution, whose id it has, starts or ends.
`schedule_runs` has what became of each of its times, under the request id of the run.

A document of the memory is in the scope of its user, or if it is shared in that of its tenant. `memory_scopes` has what
BM25 needs to know of each, and a version that changes with it; `memory_tenants` has what counts towards a limit.
`memory_index` is the index of words, which each database has its own way to make. It has hashes of words only.

`webhook_endpoints` has the endpoints that were made over the API, `webhook_states` those of which an attempt has
failed, the file's included. A row of `webhook_deliveries` is written in the commit of what it announces. Its `lane` is
the tenant together with the endpoint.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

IS_LIVE: Final = "state NOT IN ('COMPLETE', 'ERROR', 'CANCELLED')"
TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
IS_ENDED: Final = "state IN ('COMPLETE', 'ERROR', 'CANCELLED')"
NOT_DELAYED: Final = "NOT EXISTS (SELECT 1 FROM delayed_starts WHERE delayed_starts.timer_id = executions.execution_id)"
"""The execution does not wait for the time at which it is to start."""
HAS_HISTORY: Final = f"header IS NULL AND {IS_ENDED}"
HAS_NO_HISTORY: Final = "header IS NOT NULL"
CONDITION: Final = "condition"
"""Key of the condition of a partial index. Both databases write it alike; as an option it would load both dialects."""
metadata: Final = MetaData()


IS_UNCLAIMED: Final = "due_at IS NOT NULL AND claimed_by IS NULL"


def timer_columns() -> tuple[Column[Any], ...]:
    """Return the columns with which each table of timers begins."""
    return (
        Column("timer_id", TEXT, primary_key=True),
        Column("tenant", TEXT, nullable=False),
        Column("due_at", Double),
        Column("claimed_by", TEXT),
    )


def timer_indexes(table: str) -> tuple[Index, Index]:
    """Return the indexes by which due and claimed rows of a table of timers are found."""
    due, claimed = "due_at IS NOT NULL AND claimed_by IS NULL", "claimed_by IS NOT NULL"
    return (
        Index(f"{table}_due", "due_at", info={CONDITION: due}),
        Index(f"{table}_claimed", "claimed_by", info={CONDITION: claimed}),
    )


executions: Final = Table(
    "executions",
    metadata,
    Column("execution_id", TEXT, primary_key=True),
    Column("tenant", TEXT, nullable=False),
    Column("request_id", TEXT, nullable=False),
    Column("session_id", TEXT),
    Column("mode", TEXT, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("entered_at", Double, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("total_steps", BigInteger, nullable=False),
    Column("last_step", TEXT),
    Column("last_error", TEXT),
    Column("commits", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("owner", TEXT),
    Column("epoch", BigInteger, nullable=False),
    Column("response", LargeBinary),
    Column("started_at", Double),
    Column("provider", TEXT),
    Column("model", TEXT),
    Column("agent", TEXT),
    Column("fork_points", BigInteger, nullable=False),
    Column("header", LargeBinary),
    Column("erase_at_end", BigInteger, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("key_id", TEXT),
    Column("title", LargeBinary),
    Column("origin", TEXT),
    Column("origin_step", BigInteger),
    Column("channel", TEXT, nullable=False),
    Column("run_at", Double),
    Index("executions_request", "tenant", "request_id", unique=True),
    Index("executions_newest", "tenant", "execution_id"),
    Index("executions_of_user", "tenant", "user_id", "execution_id"),
    Index(
        "executions_ended",
        *("tenant", "created_at", "state", "started_at", "entered_at", "user_id"),
        info={CONDITION: IS_ENDED},
    ),
    Index(
        "executions_with_history",
        "entered_at",
        info={CONDITION: HAS_HISTORY},
    ),
    Index(
        "executions_without_history",
        "entered_at",
        info={CONDITION: HAS_NO_HISTORY},
    ),
    Index(
        "executions_live",
        "execution_id",
        info={CONDITION: IS_LIVE},
    ),
    Index(
        "executions_session",
        "tenant",
        "session_id",
        "execution_id",
        info={CONDITION: "session_id IS NOT NULL"},
    ),
    Index(
        "executions_origin",
        "tenant",
        "origin",
        "execution_id",
        info={CONDITION: "origin IS NOT NULL"},
    ),
)

ancestors: Final = Table(
    "ancestors",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("ancestor_id", TEXT, nullable=False),
    PrimaryKeyConstraint("execution_id", "ancestor_id"),
    Index("ancestors_descendants", "tenant", "ancestor_id", "execution_id"),
)

metadata_entries: Final = Table(
    "metadata_entries",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("entry", TEXT, nullable=False),
    PrimaryKeyConstraint("execution_id", "entry"),
    Index("metadata_entries_found", "tenant", "entry", "execution_id"),
)

commits: Final = Table(
    "commits",
    metadata,
    Column("execution_id", TEXT, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("first_event", BigInteger),
    Column("last_event", BigInteger),
    Column("key", TEXT),
    Column("fingerprint", TEXT),
    Column("at", Double),
    Column("outcome", LargeBinary),
    Column("events", LargeBinary),
    PrimaryKeyConstraint("execution_id", "number"),
    Index(
        "commits_step",
        "execution_id",
        "key",
        unique=True,
        info={CONDITION: "key IS NOT NULL"},
    ),
)

suspensions: Final = Table(
    "suspensions",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("suspension_id", TEXT, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("answered_at", Double),
    Column("suspension", LargeBinary, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("tool", TEXT, nullable=False),
    Column("asked_at", Double),
    PrimaryKeyConstraint("execution_id", "suspension_id"),
    Index(
        "suspensions_open",
        "tenant",
        "execution_id",
        info={CONDITION: "answered_at IS NULL"},
    ),
)

sessions: Final = Table(
    "sessions",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("session_id", TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("messages", BigInteger, nullable=False),
    Column("holder", TEXT),
    Column("details", LargeBinary),
    Column("user_id", TEXT, nullable=False),
    PrimaryKeyConstraint("tenant", "session_id"),
    Index("sessions_newest", "tenant", "updated_at", "session_id"),
    Index("sessions_of_user", "tenant", "user_id", "updated_at", "session_id"),
    Index("sessions_idle", "updated_at"),
)

messages: Final = Table(
    "messages",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("session_id", TEXT, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("at", Double, nullable=False),
    Column("message", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tenant", "session_id", "number"),
)

cancels: Final = Table(
    "cancels",
    metadata,
    Column("execution_id", TEXT, primary_key=True),
    Column("tenant", TEXT, nullable=False),
    Column("asked_at", Double, nullable=False),
)

replicas: Final = Table(
    "replicas",
    metadata,
    Column("replica", TEXT, primary_key=True),
    Column("beats", BigInteger, nullable=False),
)

idempotency_keys: Final = Table(
    "idempotency_keys",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("key", TEXT, nullable=False),
    Column("body_digest", TEXT, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("tenant", "key"),
    Index("idempotency_keys_age", "created_at"),
    Index("idempotency_keys_execution", "execution_id"),
)

delayed_starts: Final = Table(
    "delayed_starts",
    metadata,
    *timer_columns(),
    Index("delayed_starts_tenant", "tenant"),
    *timer_indexes("delayed_starts"),
)

schedules: Final = Table(
    "schedules",
    metadata,
    *timer_columns(),
    Column("name", TEXT, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("planned_at", Double),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("started_id", TEXT),
    Column("last_run", TEXT),
    Column("last_at", Double),
    Column("last_started_at", Double),
    Column("last_outcome", TEXT),
    Column("last_code", TEXT),
    Index("schedules_name", "tenant", "name", unique=True),
    *timer_indexes("schedules"),
)

schedule_runs: Final = Table(
    "schedule_runs",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("run_id", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("at", Double, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("outcome", TEXT, nullable=False),
    Column("code", TEXT),
    PrimaryKeyConstraint("tenant", "run_id"),
    Index("schedule_runs_latest", "tenant", "name", "at", "run_id"),
    Index("schedule_runs_age", "started_at"),
)

limit_rates: Final = Table(
    "limit_rates",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("full_at", Double, nullable=False),
)

grants: Final = Table(
    "grants",
    metadata,
    Column("grant_id", TEXT, primary_key=True),
    Column("tenant", TEXT, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("tool", TEXT, nullable=False),
    Column("tool_digest", TEXT, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("request_id", TEXT, nullable=False),
    Column("session_id", TEXT),
    Column("agent", TEXT, nullable=False),
    Column("arguments_digest", TEXT, nullable=False),
    Column("granted_by", TEXT, nullable=False),
    Column("granted_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("uses", BigInteger, nullable=False),
    Index("grants_tool", "tenant", "user_id", "tool"),
    Index("grants_execution", "execution_id"),
)

credentials: Final = Table(
    "credentials",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("execution_id", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("set_at", Double, nullable=False),
    Column("rejected", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant", "user_id", "execution_id", "name"),
    Index("credentials_execution", "execution_id", info={CONDITION: "execution_id <> ''"}),
)

limit_slots: Final = Table(
    "limit_slots",
    metadata,
    Column("name", TEXT, nullable=False),
    Column("replica", TEXT, nullable=False),
    Column("slots", BigInteger, nullable=False),
    Column("expires_at", Double, nullable=False),
    PrimaryKeyConstraint("name", "replica"),
)

usage: Final = Table(
    "usage",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("user", TEXT, nullable=False),
    Column("key_id", TEXT, nullable=False),
    Column("agent", TEXT, nullable=False),
    Column("model", TEXT, nullable=False),
    Column("source", TEXT, nullable=False),
    Column("executions", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost", Double, nullable=False),
    PrimaryKeyConstraint("tenant", "hour", "user", "key_id", "agent", "model", "source"),
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("key_id", TEXT, primary_key=True),
    Column("tenant", TEXT, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("secret_hash", TEXT, nullable=False),
    Column("permissions", LargeBinary, nullable=False),
    Column("limits", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    Column("created_by", TEXT),
    Column("channel", TEXT),
    Index("api_keys_tenant", "tenant", "created_at", "key_id"),
)

memory_documents: Final = Table(
    "memory_documents",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("document_id", TEXT, nullable=False),
    Column("revision", TEXT, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("shared", BigInteger, nullable=False),
    Column("digest", TEXT, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("chunks", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("key_id", TEXT),
    Column("embed_at", Double),
    Column("failures", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("tenant", "user_id", "document_id"),
    Index("memory_documents_page", "tenant", "document_id", "user_id"),
    Index(
        "memory_documents_shared",
        "tenant",
        "document_id",
        unique=True,
        info={CONDITION: "shared = 1"},
    ),
    Index(
        "memory_documents_due",
        "embed_at",
        info={CONDITION: "embed_at IS NOT NULL"},
    ),
)

memory_chunks: Final = Table(
    "memory_chunks",
    metadata,
    Column("chunk_id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("tenant", TEXT, nullable=False),
    Column("user_id", TEXT, nullable=False),
    Column("document_id", TEXT, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("words", BigInteger, nullable=False),
    Column("terms", LargeBinary, nullable=False),
    Column("text", LargeBinary, nullable=False),
    Index("memory_chunks_document", "tenant", "user_id", "document_id", "number", unique=True),
    sqlite_autoincrement=True,
)

memory_vectors: Final = Table(
    "memory_vectors",
    metadata,
    Column("chunk_id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("tenant", TEXT, nullable=False),
    Column("scope", TEXT, nullable=False),
    Column("embedder", TEXT, nullable=False),
    Column("model", TEXT, nullable=False),
    Column("dimension", BigInteger, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Index("memory_vectors_scope", "scope", "embedder", "model", "chunk_id"),
    Index("memory_vectors_tenant", "tenant", "embedder", "model"),
)

memory_scopes: Final = Table(
    "memory_scopes",
    metadata,
    Column("scope", TEXT, primary_key=True),
    Column("version", TEXT, nullable=False),
    Column("chunks", BigInteger, nullable=False),
    Column("words", BigInteger, nullable=False),
)

memory_tenants: Final = Table(
    "memory_tenants",
    metadata,
    Column("tenant", TEXT, primary_key=True),
    Column("size", BigInteger, nullable=False),
)

token_ratios: Final = Table(
    "token_ratios",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("model", TEXT, nullable=False),
    Column("ratio", Double, nullable=False),
    Column("learned_at", Double, nullable=False),
    PrimaryKeyConstraint("tenant", "model"),
)

webhook_endpoints: Final = Table(
    "webhook_endpoints",
    metadata,
    Column("tenant", TEXT, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("url", LargeBinary, nullable=False),
    Column("events", LargeBinary, nullable=False),
    Column("always", BigInteger, nullable=False),
    Column("content", BigInteger, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("earlier_secret", LargeBinary),
    Column("earlier_until", Double, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("created_by", TEXT),
    PrimaryKeyConstraint("tenant", "name"),
    Index("webhook_endpoints_of_key", "created_by", info={CONDITION: "created_by IS NOT NULL"}),
)

webhook_states: Final = Table(
    "webhook_states",
    metadata,
    Column("endpoint", TEXT, primary_key=True),
    Column("tenant", TEXT, nullable=False),
    Column("failing_since", Double),
    Column("disabled_at", Double),
    Column("disabled_because", TEXT),
)

webhook_deliveries: Final = Table(
    "webhook_deliveries",
    metadata,
    *timer_columns(),
    Column("lane", TEXT, nullable=False),
    Column("endpoint_key", TEXT, nullable=False),
    Column("endpoint", TEXT, nullable=False),
    Column("type", TEXT, nullable=False),
    Column("execution_id", TEXT),
    Column("request_id", TEXT),
    Column("state", TEXT, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("last_status", BigInteger),
    Column("last_error", TEXT),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("body", LargeBinary, nullable=False),
    *timer_indexes("webhook_deliveries"),
    Index("webhook_deliveries_waiting", "lane", "due_at", info={CONDITION: IS_UNCLAIMED}),
    Index("webhook_deliveries_ended", "state", "ended_at", info={CONDITION: "ended_at IS NOT NULL"}),
    Index("webhook_deliveries_newest", "tenant", "created_at", "timer_id"),
    Index("webhook_deliveries_execution", "execution_id", info={CONDITION: "execution_id IS NOT NULL"}),
)

MEMORY_INDEX: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "sqlite": ("CREATE VIRTUAL TABLE memory_index USING fts5(terms, content = '', detail = none, columnsize = 0)",),
        "postgresql": (
            "CREATE TABLE memory_index (rowid BIGINT PRIMARY KEY, terms TSVECTOR NOT NULL)",
            "CREATE INDEX memory_index_terms ON memory_index USING gin (terms)",
        ),
    }
)
"""Statements that create the index of words."""
