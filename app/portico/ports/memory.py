"""Memory ports: the search of documents that are stored for retrieval, their storage, and the embedding of texts."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from portico.domain.access.principal import AccessScope, Principal
from portico.domain.ids import DocumentId, KeyId, TenantId, UserId
from portico.domain.memory import MemoryScope, MemorySearchResult
from portico.domain.value import value
from portico.ports.model import EngineProfile
from portico.ports.storage import ResultPage


class MemorySearch(Protocol):
    """Search of the documents that a caller may read: its own, and those that are shared in its tenant."""

    async def search(
        self, principal: Principal, query: str, *, max_chunks: int, min_score: float = 0.0
    ) -> MemorySearchResult:
        """Return the chunks that fit the query best, at most so many and with at least that score.

        Nothing is raised for a failure: a leg that fails is reported in the result. What the embedding of the query
        takes is charged to the limits and the usage of the principal.
        """
        ...


@value
class VectorSpace:
    """Vectors that can be compared: those of one embedder and model.

    Without a configured `dimension` it is that of the first document of a tenant.
    """

    embedder: str
    model: str
    dimension: int | None


@value
class DocumentKey:
    """Name of one version of a stored document."""

    tenant: TenantId
    user: UserId
    document_id: DocumentId
    revision: str


@value
class IndexedChunk:
    """Chunk of a document: its text, its number of words, and the hash and the count of each different one.

    `terms` has 10 bytes for each word: its hash, and its count as a little-endian number.
    """

    text: str
    word_count: int
    terms: bytes


@value
class DocumentEntry:
    """Stored document without its text; `size` is what it takes of the tenant's limit, times are Unix seconds."""

    key: DocumentKey
    shared: bool
    digest: str
    size: int
    chunk_count: int
    created_at: float
    updated_at: float
    is_embedded: bool
    """True if its chunks have vectors that are searched now."""


@value
class StoredDocument:
    """Stored document with its text."""

    entry: DocumentEntry
    text: str
    metadata: Mapping[str, str]


@value
class NewDocument:
    """Document to be stored. From `embed_at` on it is due to be embedded; `key_id` is charged for that."""

    key: DocumentKey
    text: str
    metadata: Mapping[str, str]
    shared: bool
    digest: str
    chunks: Sequence[IndexedChunk]
    at: float
    embed_at: float
    key_id: KeyId | None


class DocumentStore(Protocol):
    """Stored documents. Every method raises StorageFailure."""

    async def find(
        self, reader: AccessScope, document_id: DocumentId, space: VectorSpace, *, of_tenant: bool = False
    ) -> StoredDocument | None:
        """Return the user's own document with that id, else the shared one; `of_tenant` else that of another user."""
        ...

    async def page(
        self, reader: AccessScope, space: VectorSpace, *, of_tenant: bool = False, after: str | None, limit: int
    ) -> ResultPage[DocumentEntry]:
        """Return a page of the user's own and the shared documents, or of all of the tenant, in the order of ids."""
        ...

    async def put(self, document: NewDocument, *, max_bytes: int | None) -> bool:
        """Store the document in place of the user's earlier one with that id; return True if there was none.

        Raises: RequestFailure (REQUEST_TOO_LARGE if the tenant would have more than `max_bytes`; REQUEST_ID_CONFLICT if
        another user shares a document with that id); nothing is changed then.
        """
        ...

    async def delete(self, owner: AccessScope, document_id: DocumentId, revision: str) -> bool:
        """Delete the user's document with all that was made of it; return False if there is none.

        `revision` is the name of the version that its scope has from then on.
        """
        ...


@value
class DueDocument:
    """Document that is to be embedded, and how often that has failed."""

    key: DocumentKey
    key_id: KeyId | None
    failures: int


class EmbeddingQueue(Protocol):
    """Documents whose chunks have no vectors yet. Every method raises StorageFailure."""

    async def claim(self, *, now: float, until: float, limit: int) -> Sequence[DueDocument]:
        """Return documents that are due, which no other replica is given before that time."""
        ...

    async def texts(self, key: DocumentKey) -> Sequence[str]:
        """Return the texts of the document's chunks in order; none if there is a newer version."""
        ...

    async def finish(self, key: DocumentKey, space: VectorSpace, vectors: Sequence[bytes], revision: str) -> bool:
        """Store the vectors of all chunks, unless there is a newer version; `revision` is a new name of the scope's.

        Return False, with nothing changed, if their size is not that of the other vectors of the tenant.
        """
        ...

    async def postpone(self, key: DocumentKey, *, until: float, failures: int) -> None:
        """Let the document be due again at that time."""
        ...


@value
class LexicalMatch:
    """Chunk that has words of a query, with its words as in `IndexedChunk`."""

    chunk_id: int
    word_count: int
    terms: bytes


@value
class LexicalMatches:
    """Chunks that have words of a query, and the statistics of what was searched.

    `frequencies` has for each word its hashes in the scopes, and the number of chunks that have it.
    """

    chunks: Sequence[LexicalMatch]
    frequencies: Sequence[tuple[Sequence[bytes], int]]
    chunk_count: int
    word_count: int


@value
class ChunkText:
    """Text of a chunk, and where it stands."""

    chunk_id: int
    document_id: DocumentId
    number: int
    text: str


class MemoryIndex(Protocol):
    """Index of the chunks. Every method raises StorageFailure."""

    async def matches(self, scopes: Sequence[MemoryScope], words: Sequence[Sequence[bytes]]) -> LexicalMatches:
        """Return chunks of the scopes that have one of the words, each of which is given by its hash in each scope.

        Of very many chunks, those with the rarest words are returned.
        """
        ...

    async def versions(self, scopes: Sequence[MemoryScope]) -> Sequence[str | None]:
        """Return the version of each scope, which is another one after each change; None for an empty scope."""
        ...

    async def vectors(
        self, scope: MemoryScope, space: VectorSpace, *, after: int, limit: int
    ) -> Sequence[tuple[int, bytes]]:
        """Return at most so many ids and vectors of chunks after that id, in the order of the ids."""
        ...

    async def hidden_chunks(self, reader: AccessScope) -> Sequence[int]:
        """Return the ids of shared chunks whose documents the user does not read: its own one has the same id."""
        ...

    async def texts(self, scopes: Sequence[MemoryScope], chunk_ids: Sequence[int]) -> Sequence[ChunkText]:
        """Return the texts of those of the chunks that are still in the scopes."""
        ...


@value
class Embeddings:
    """Vectors of some texts in their order, as 32-bit floats, and the tokens that they took."""

    vectors: Sequence[bytes]
    tokens: int = 0


@runtime_checkable
class EmbeddingEngine(Protocol):
    """Configured model endpoint that makes vectors of texts."""

    @property
    def profile(self) -> EngineProfile: ...

    async def embed(self, texts: Sequence[str], dimension: int | None) -> Embeddings:
        """Return the vectors of the texts, of that size if the model can choose it.

        Cancelling the call closes its connection at once. Raises: EngineError.
        """
        ...
