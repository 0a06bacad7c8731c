"""Memory: documents that are stored for retrieval, and the chunks of them that a search finds."""

from enum import StrEnum
from typing import Final, NewType

from portico.domain.fingerprints import digest
from portico.domain.ids import DocumentId, TenantId, UserId
from portico.domain.value import value

DEFAULT_CHUNKS: Final = 5
MAX_CHUNKS: Final = 50
"""Number of chunks that a search returns at most, by default and at all."""
MAX_DOCUMENT_BYTES: Final = 2**20
"""Size of a document's text in UTF-8."""
DEFAULT_DIMENSION: Final = 256
"""Size of the vectors of hashed n-grams."""
MemoryScope = NewType("MemoryScope", str)
"""Name of a set of documents that the same callers may read."""


class LegState(StrEnum):
    """State of one of the two legs of a search, which rank the chunks by words and by vectors.

    A leg that is `skipped` has nothing to search: no readable chunk has a vector. It is no failure.
    """

    ANSWERED = "answered"
    FAILED = "failed"
    SKIPPED = "skipped"


@value
class EmbeddingCharge:
    """Tokens and cost of an embedding by an engine, which were charged to the caller's limits and usage."""

    provider: str
    model: str
    tokens: int
    cost: float


@value
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


@value
class MemorySearchResult:
    """Found chunks, best first, with the states of the two legs, and the charge for the embedding of the query.

    If both legs failed there are no chunks.
    """

    chunks: tuple[FoundChunk, ...]
    lexical: LegState
    vector: LegState
    embedding: EmbeddingCharge | None = None


def private_scope(tenant: TenantId, user: UserId) -> MemoryScope:
    """Return the scope of the documents that only their user may read."""
    return MemoryScope(digest("memory", tenant, user))


def shared_scope(tenant: TenantId) -> MemoryScope:
    """Return the scope of the documents that all users of the tenant may read."""
    return MemoryScope(digest("memory", tenant))
