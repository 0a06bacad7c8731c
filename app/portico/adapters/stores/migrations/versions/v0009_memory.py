"""Documents that are stored for retrieval, their chunks, the vectors of these, and the index of words."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, LargeBinary, PrimaryKeyConstraint, Text, text

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_ID = BigInteger().with_variant(Integer, "sqlite")
_OWNER = ("tenant", "user_id", "document_id")


def upgrade() -> None:
    _create_documents()
    op.create_table(
        "memory_chunks",
        Column("chunk_id", _ID, primary_key=True),
        *(Column(name, _TEXT, nullable=False) for name in _OWNER),
        Column("number", BigInteger, nullable=False),
        Column("scope", _TEXT, nullable=False),
        Column("words", BigInteger, nullable=False),
        *(Column(name, LargeBinary, nullable=False) for name in ("terms", "text")),
        sqlite_autoincrement=True,
    )
    op.create_index("memory_chunks_document", "memory_chunks", [*_OWNER, "number"], unique=True)
    op.create_table(
        "memory_vectors",
        Column("chunk_id", _ID, primary_key=True, autoincrement=False),
        *(Column(name, _TEXT, nullable=False) for name in ("tenant", "scope", "embedder", "model")),
        Column("dimension", BigInteger, nullable=False),
        Column("vector", LargeBinary, nullable=False),
    )
    op.create_index("memory_vectors_scope", "memory_vectors", ["scope", "embedder", "model", "chunk_id"])
    op.create_index("memory_vectors_tenant", "memory_vectors", ["tenant", "embedder", "model"])
    op.create_table(
        "memory_scopes",
        Column("scope", _TEXT, primary_key=True),
        Column("version", _TEXT, nullable=False),
        *(Column(name, BigInteger, nullable=False) for name in ("chunks", "words")),
    )
    op.create_table(
        "memory_tenants",
        Column("tenant", _TEXT, primary_key=True),
        Column("size", BigInteger, nullable=False),
    )
    if op.get_context().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE memory_index USING fts5(terms, content = '', detail = none, columnsize = 0)")
    else:
        op.execute("CREATE TABLE memory_index (rowid BIGINT PRIMARY KEY, terms TSVECTOR NOT NULL)")
        op.execute("CREATE INDEX memory_index_terms ON memory_index USING gin (terms)")


def _create_documents() -> None:
    op.create_table(
        "memory_documents",
        *(Column(name, _TEXT, nullable=False) for name in (*_OWNER, "revision", "scope")),
        Column("shared", BigInteger, nullable=False),
        Column("digest", _TEXT, nullable=False),
        *(Column(name, BigInteger, nullable=False) for name in ("size", "chunks")),
        *(Column(name, Double, nullable=False) for name in ("created_at", "updated_at")),
        Column("key_id", _TEXT),
        Column("embed_at", Double),
        Column("failures", BigInteger, nullable=False),
        Column("content", LargeBinary, nullable=False),
        PrimaryKeyConstraint(*_OWNER),
    )
    op.create_index("memory_documents_page", "memory_documents", ["tenant", "document_id", "user_id"])
    for name, columns, condition, unique in (
        ("memory_documents_shared", ["tenant", "document_id"], "shared = 1", True),
        ("memory_documents_due", ["embed_at"], "embed_at IS NOT NULL", False),
    ):
        where = text(condition)
        op.create_index(name, "memory_documents", columns, unique=unique, sqlite_where=where, postgresql_where=where)
