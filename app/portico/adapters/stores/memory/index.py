"""Index of the chunks, as it is searched: by words, and by the vectors that a replica takes into memory."""

from collections.abc import Sequence
from typing import Any, Final

from portico.adapters.stores.database import Database, Transaction, execute, execute_each
from portico.adapters.stores.memory import statements
from portico.adapters.stores.memory.word_index import COUNT_MATCHES, FIND_MATCHES, query_of
from portico.domain.access.principal import AccessScope
from portico.domain.ids import DocumentId
from portico.domain.memory import MemoryScope
from portico.ports.memory import ChunkText, LexicalMatch, LexicalMatches, VectorSpace

ENOUGH_MATCHES: Final = 1_000
"""Matches of the rarest words after which no chunk is looked for by more frequent ones."""
MOST_MATCHES: Final = 10_000
"""Matches that are looked at if even the rarest word has more."""


class DatabaseMemoryIndex:
    """Implementation of the `MemoryIndex` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def matches(self, scopes: Sequence[MemoryScope], words: Sequence[Sequence[bytes]]) -> LexicalMatches:
        return await self._database.read(lambda: _matches(scopes, words))

    async def versions(self, scopes: Sequence[MemoryScope]) -> Sequence[str | None]:
        rows = await self._database.read(lambda: execute_each(statements.SCOPE, _each(scopes)))
        versions = {row[0]: str(row[1]) for row in rows}
        return [versions.get(scope) for scope in scopes]

    async def vectors(
        self, scope: MemoryScope, space: VectorSpace, *, after: int, limit: int
    ) -> Sequence[tuple[int, bytes]]:
        values = {
            "the_scope": scope,
            "the_embedder": space.embedder,
            "the_model": space.model,
            "the_dimension": space.dimension or 0,
            "after": after,
            "at_most": limit,
        }
        rows = await self._database.read(lambda: execute(statements.VECTORS, values))
        return [(row[0], row[1]) for row in rows]

    async def hidden_chunks(self, reader: AccessScope) -> Sequence[int]:
        values = {"the_tenant": reader.tenant, "the_user_id": reader.user}
        return [row[0] for row in await self._database.read(lambda: execute(statements.HIDDEN_CHUNKS, values))]

    async def texts(self, scopes: Sequence[MemoryScope], chunk_ids: Sequence[int]) -> Sequence[ChunkText]:
        wanted = [{"the_chunk_id": chunk_id} for chunk_id in chunk_ids]
        rows = await self._database.read(lambda: execute_each(statements.TEXT_OF_CHUNK, wanted))
        return [
            ChunkText(row[0], DocumentId(row[1]), row[2], bytes(row[3]).decode("utf-8", "surrogatepass"))
            for row in rows
            if row[4] in scopes
        ]


def _each(scopes: Sequence[MemoryScope]) -> list[dict[str, Any]]:
    return [{"the_scope": scope} for scope in scopes]


def _matches(scopes: Sequence[MemoryScope], words: Sequence[Sequence[bytes]]) -> Transaction[LexicalMatches]:
    statistics = yield from execute_each(statements.SCOPE, _each(scopes))
    queries = [{"query": query_of(forms)} for forms in words]
    counts = yield from execute_each(COUNT_MATCHES, queries)
    frequencies = [(forms, int(count[0])) for forms, count in zip(words, counts, strict=True)]
    found = yield from execute(FIND_MATCHES, {"query": _query(frequencies), "at_most": MOST_MATCHES})
    return LexicalMatches(
        [LexicalMatch(row[0], row[1], row[2]) for row in found],
        frequencies,
        sum(row[2] for row in statistics),
        sum(row[3] for row in statistics),
    )


def _query(frequencies: Sequence[tuple[Sequence[bytes], int]]) -> str:
    """Return the query for chunks with the rarest of the words."""
    hashes: list[bytes] = []
    total = 0
    for forms, count in sorted((each for each in frequencies if each[1]), key=lambda each: each[1]):
        if hashes and total + count > ENOUGH_MATCHES:
            break
        hashes += forms
        total += count
    return query_of(hashes or frequencies[0][0])
