"""Index of words: FTS5 on SQLite, which has no copy of them, and a `tsvector` with a GIN index on PostgreSQL.

Both only find the chunks that have a word; scores are computed elsewhere, because theirs would mix tenants. The index
has hashes, so its tokens are hexadecimal digits on both databases, and neither a language nor a syntax of queries
matters. FTS5 marks what is deleted and drops it when it merges its segments, which `merge_index` makes it do.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnElement,
    Delete,
    Insert,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects import sqlite

from portico.adapters.stores.database import Insertion, Statement, Transaction, execute
from portico.adapters.stores.schema import memory_chunks

ENTRY_BYTES: Final = 10
HASH_BYTES: Final = 8
"""Size of a word in the terms of a chunk, and of its hash, which comes first."""
_MERGED_PAGES: Final = 500
_MERGES: Final = 100
_INDEX: Final = Table("memory_index", MetaData(), Column("rowid", BigInteger), Column("terms", Text))
_COMMANDS: Final = Table(
    "memory_index",
    MetaData(),
    *(Column("memory_index", Text), Column("rowid", BigInteger), Column("terms", Text), Column("rank", BigInteger)),
)
"""The same table as FTS5 takes commands: by a column with the name of the table."""
_ROW: BindParameter[int] = bindparam("chunk_id", type_=BigInteger)
_TERMS: BindParameter[str] = bindparam("tokens", type_=Text)
_QUERY: BindParameter[str] = bindparam("query", type_=Text)
_AT_MOST: BindParameter[int] = bindparam("at_most", type_=BigInteger)


def tokens_of(terms: bytes) -> str:
    """Return the words of a chunk as the index gets them."""
    return " ".join(terms[at : at + HASH_BYTES].hex() for at in range(0, len(terms), ENTRY_BYTES))


def query_of(hashes: Sequence[bytes]) -> str:
    """Return the query for chunks that have any of the words."""
    return " OR ".join(f'"{each.hex()}"' for each in hashes)


def merge_index() -> Transaction[None]:
    """Merge the segments of FTS5, so that it drops what was deleted, as far as it gets in a limited time."""
    pages = -_MERGED_PAGES
    for _ in range(_MERGES):
        before = yield from execute(_CHANGES, {})
        yield from execute(_MERGE, {"pages": pages})
        after = yield from execute(_CHANGES, {})
        if after[0][0] - before[0][0] <= 1:
            return
        pages = _MERGED_PAGES


def _is_sqlite(insert: Insertion) -> bool:
    return insert is sqlite.insert


def _add(insert: Insertion) -> Insert:
    if _is_sqlite(insert):
        return insert(_INDEX).values(rowid=_ROW, terms=_TERMS)
    from sqlalchemy.dialects.postgresql import TSVECTOR  # noqa: PLC0415 - SQLite needs nothing of PostgreSQL

    return insert(_INDEX).values(rowid=_ROW, terms=cast(_TERMS, TSVECTOR))


def _remove(insert: Insertion) -> Insert | Delete:
    """Return the deletion of a row, whose tokens FTS5 has to be given, since it has no copy of them."""
    if _is_sqlite(insert):
        return insert(_COMMANDS).values(memory_index="delete", rowid=_ROW, terms=_TERMS)
    return delete(_INDEX).where(_INDEX.c.rowid == _ROW)


def _matching(insert: Insertion) -> ColumnElement[bool]:
    if _is_sqlite(insert):
        return literal_column("memory_index").op("MATCH", is_comparison=True)(_QUERY)
    from sqlalchemy.dialects.postgresql import TSQUERY  # noqa: PLC0415 - SQLite needs nothing of PostgreSQL

    query = func.replace(func.replace(_QUERY, " OR ", " | "), '"', "'")
    return _INDEX.c.terms.op("@@", is_comparison=True)(cast(query, TSQUERY))


def _count(insert: Insertion) -> Select[Any]:
    return select(func.count()).select_from(_INDEX).where(_matching(insert))


def _find(insert: Insertion) -> Select[Any]:
    found = select(_INDEX.c.rowid).where(_matching(insert)).limit(_AT_MOST)
    columns = memory_chunks.c
    return select(columns.chunk_id, columns.words, columns.terms).where(columns.chunk_id.in_(found))


ADD_TO_INDEX: Final = Statement(_add)
REMOVE_FROM_INDEX: Final = Statement(_remove)
COUNT_MATCHES: Final = Statement(_count)
FIND_MATCHES: Final = Statement(_find)
_MERGE: Final = Statement(lambda insert: insert(_COMMANDS).values(memory_index="merge", rank=bindparam("pages")))
_CHANGES: Final = Statement(lambda _: select(func.total_changes()))
