"""A search of memory that answers from a list, for tests of those who use it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.domain.access.principal import Principal
from app.domain.ids import DocumentId
from app.domain.memory import FoundChunk, LegState, MemorySearchResult

NOTHING_FOUND = MemorySearchResult((), LegState.FAILED, LegState.FAILED)


@dataclass
class ListedMemory:
    """Implementation of the `MemorySearch` port: chunks rank by the share of the query's words that they contain."""

    texts: Sequence[tuple[str, str]] = ()
    """Ids of documents and their texts, each of which is one chunk."""
    lexical: LegState = LegState.ANSWERED
    vector: LegState = LegState.ANSWERED
    queries: list[tuple[Principal, str]] = field(default_factory=list)
    """The searches so far."""

    async def search(
        self, principal: Principal, query: str, *, max_chunks: int, min_score: float = 0.0
    ) -> MemorySearchResult:
        self.queries.append((principal, query))
        if self.lexical is LegState.FAILED and self.vector is LegState.FAILED:
            return NOTHING_FOUND
        words = set(query.lower().split())
        chunks = [
            FoundChunk(DocumentId(document_id), 1, text, len(words & set(text.lower().split())) / max(1, len(words)))
            for document_id, text in self.texts
        ]
        found = sorted((each for each in chunks if each.score > 0), key=lambda each: (-each.score, each.document_id))
        result = MemorySearchResult((), self.lexical, self.vector)
        return replace(result, chunks=tuple(each for each in found if each.score >= min_score)[:max_chunks])
