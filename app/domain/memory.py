"""Memory: documents that are stored for retrieval, and the chunks of them that a search finds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.domain.ids import DocumentId

DEFAULT_CHUNKS: Final = 5
MAX_CHUNKS: Final = 50
"""Number of chunks that a search returns at most, by default and at all."""


class LegState(StrEnum):
    """State of one of the two legs of a search, which rank the chunks by words and by vectors.

    A leg that is `skipped` has nothing to search: no readable chunk has a vector. It is no failure.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class EmbeddingCharge:
    """Tokens and cost of an embedding by an engine, which were charged to the caller's limits and usage."""

    provider: str
    model: str
    tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """Part of a document that fits a query.

    `number` counts the chunks of the document from 1; `score` is between 0 and 1.
    """

    document_id: DocumentId
    number: int
    text: str
    score: float

    @property
    def source(self) -> str:
        """The id of the chunk, without any text of the document or its metadata."""
        return f"{self.document_id}#{self.number}"


@dataclass(frozen=True, slots=True)
class MemorySearchResult:
    """Found chunks, best first, with the states of the two legs, and the charge for the embedding of the query.

    If both legs failed there are no chunks.
    """

    chunks: tuple[FoundChunk, ...]
    lexical: LegState
    vector: LegState
    embedding: EmbeddingCharge | None = None
