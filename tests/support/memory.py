"""A memory whose search ranks chunks by the number of words that they share with the query, for executions in tests."""

import re
from collections.abc import Mapping

from portico.domain.access.principal import Principal
from portico.domain.ids import DocumentId
from portico.domain.memory import EmbeddingCharge, FoundChunk, LegState, MemorySearchResult


class FixedMemory:
    """Implementation of `MemorySearch` over documents of one chunk each; it notes every search."""

    def __init__(self, documents: Mapping[str, str] | None = None) -> None:
        self.documents = dict(documents or {})
        self.lexical = LegState.ANSWERED
        self.vector = LegState.SKIPPED
        self.embedding: EmbeddingCharge | None = None
        self.searches: list[tuple[Principal, str, int, float]] = []

    async def search(
        self, principal: Principal, query: str, *, max_chunks: int, min_score: float = 0.0
    ) -> MemorySearchResult:
        self.searches.append((principal, query, max_chunks, min_score))
        if LegState.ANSWERED not in {self.lexical, self.vector}:
            return MemorySearchResult((), self.lexical, self.vector, self.embedding)
        wanted = _words(query)
        ranked = sorted(
            (-len(wanted & _words(text)) / max(1, len(wanted)), name) for name, text in self.documents.items()
        )
        chunks = [
            FoundChunk(DocumentId(name), 1, self.documents[name], -score)
            for score, name in ranked
            if score < 0 and -score >= min_score
        ]
        return MemorySearchResult(tuple(chunks[:max_chunks]), self.lexical, self.vector, self.embedding)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))
