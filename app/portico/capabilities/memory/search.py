"""Search of the memory: two legs that rank chunks, by words and by vectors, and the fusion of their ranks.

Reciprocal rank fusion needs no scores that can be compared. A chunk of rank r in a leg gets 1 / (60 + r) of it; the sum
is divided by the most that the legs which answered can give, so that a score is between 0 and 1. One leg may fail.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from portico.capabilities.memory.document_embedder import PATIENCE_S
from portico.capabilities.memory.embedder import Embedder, EmbeddingError
from portico.capabilities.memory.vector_cache import VectorCache, VectorSizeError
from portico.capabilities.memory.words import query_words, word_hash
from portico.domain.access.principal import Principal
from portico.domain.failures import StorageFailure
from portico.domain.memory import (
    EmbeddingCharge,
    FoundChunk,
    LegState,
    MemoryScope,
    MemorySearchResult,
    private_scope,
    shared_scope,
)
from portico.domain.value import replace, value
from portico.ports.memory import ChunkText, MemoryIndex
from portico.ports.runtime import ThreadPool

if TYPE_CHECKING:
    from portico.capabilities.memory.scores import Ranked

RANK_CONSTANT: Final = 60
RANKED_PER_CHUNK: Final = 2
"""Chunks that each leg ranks, for each one that is asked for."""
_MAX_QUERY: Final = 8_192
"""Characters of a query that are searched for."""
_REMEMBERED: Final = 1_000
_NOTHING: Final = MemorySearchResult((), LegState.FAILED, LegState.FAILED)


@value
class _Readable:
    """Scopes that a caller reads, with their versions, and the shared chunks that its own documents hide."""

    scopes: tuple[MemoryScope, MemoryScope]
    versions: Sequence[str | None]
    hidden: frozenset[int]


@value
class _Leg:
    """Result of one leg: the ids of the chunks, best first."""

    state: LegState
    chunk_ids: Sequence[int] = ()
    charge: EmbeddingCharge | None = None


class HybridSearch:
    """Implementation of the `MemorySearch` port."""

    def __init__(self, index: MemoryIndex, embedder: Embedder, vectors: VectorCache, thread_pool: ThreadPool) -> None:
        self._index = index
        self._embedder = embedder
        self._vectors = vectors
        self._thread_pool = thread_pool
        self._hidden: OrderedDict[MemoryScope, tuple[Sequence[str | None], frozenset[int]]] = OrderedDict()

    async def search(
        self, principal: Principal, query: str, *, max_chunks: int, min_score: float = 0.0
    ) -> MemorySearchResult:
        query = query[:_MAX_QUERY]
        try:
            readable = await self._readable(principal)
            lexical = await self._by_words(readable, query, RANKED_PER_CHUNK * max_chunks)
            vector = await self._by_vectors(readable, query, principal, RANKED_PER_CHUNK * max_chunks)
            scores = fused_scores([each.chunk_ids for each in (lexical, vector)], _answered(lexical, vector))
            texts = await self._index.texts(readable.scopes, list(scores))
        except StorageFailure:
            return _NOTHING
        found = _found(texts, scores)
        best = tuple(each for each in found if each.score >= min_score)[:max_chunks]
        return MemorySearchResult(best, lexical.state, vector.state, vector.charge)

    async def _readable(self, principal: Principal) -> _Readable:
        """Return the scopes that the caller reads. Raises: StorageFailure."""
        private, shared = private_scope(principal.tenant, principal.user), shared_scope(principal.tenant)
        versions = await self._index.versions((private, shared))
        if None in versions:
            return _Readable((private, shared), versions, frozenset())
        known = self._hidden.get(private)
        if known is None or known[0] != versions:
            known = versions, frozenset(await self._index.hidden_chunks(principal.own))
            self._hidden[private] = known
        self._hidden.move_to_end(private)
        while len(self._hidden) > _REMEMBERED:
            self._hidden.popitem(last=False)
        return _Readable((private, shared), versions, known[1])

    async def _by_words(self, readable: _Readable, query: str, limit: int) -> _Leg:
        words = query_words(query)
        if not words:
            return _Leg(LegState.ANSWERED)
        hashes = [[word_hash(word, scope) for scope in readable.scopes] for word in words]
        try:
            matches = await self._index.matches(readable.scopes, hashes)
        except StorageFailure:
            return _Leg(LegState.FAILED)

        def rank() -> "Ranked":
            # numpy is imported when it is used first, by a thread, since it takes 0.1 s.
            from portico.capabilities.memory.scores import rank_by_words  # noqa: PLC0415 - see above

            return rank_by_words(matches, limit + len(readable.hidden))

        return _leg([await self._thread_pool.run(rank)], readable, limit)

    async def _by_vectors(self, readable: _Readable, query: str, principal: Principal, limit: int) -> _Leg:
        charge = None
        scopes = list(zip(readable.scopes, readable.versions, strict=True))
        try:
            if all([await self._vectors.is_empty(*each) for each in scopes]):
                return _Leg(LegState.SKIPPED)
            embedded = None
            with anyio.move_on_after(PATIENCE_S):
                embedded = await self._embedder.embed([query], principal)
            if embedded is None:
                return _Leg(LegState.FAILED)
            charge, most = embedded.charge, limit + len(readable.hidden)
            ranked = [await self._vectors.rank(*each, embedded.vectors[0], most) for each in scopes]
        except (EmbeddingError, StorageFailure, VectorSizeError):
            return _Leg(LegState.FAILED, charge=charge)
        return replace(_leg(ranked, readable, limit), charge=charge)


def fused_scores(legs: Sequence[Sequence[int]], answered: int) -> Mapping[int, float]:
    """Return the score of each chunk that a leg has ranked."""
    scores: dict[int, float] = {}
    for leg in legs:
        for rank, chunk_id in enumerate(leg, 1):
            scores[chunk_id] = scores.get(chunk_id, 0.0) + 1 / (RANK_CONSTANT + rank)
    most = answered / (RANK_CONSTANT + 1)
    return {chunk_id: min(1.0, score / most) for chunk_id, score in scores.items()}


def _answered(*legs: _Leg) -> int:
    return sum(leg.state is LegState.ANSWERED for leg in legs)


def _leg(ranked: Sequence["Ranked"], readable: _Readable, limit: int) -> _Leg:
    """Return the best chunks of all scopes that the caller reads."""
    merged = sorted((each for part in ranked for each in part), key=lambda each: (-each[1], each[0]))
    return _Leg(LegState.ANSWERED, [chunk_id for chunk_id, _ in merged if chunk_id not in readable.hidden][:limit])


def _found(texts: Sequence[ChunkText], scores: Mapping[int, float]) -> list[FoundChunk]:
    """Return the chunks that still exist, best first."""
    found = [FoundChunk(each.document_id, each.number, each.text, scores[each.chunk_id]) for each in texts]
    return sorted(found, key=lambda each: (-each.score, each.document_id, each.number))
