"""The stored memory of a replica, with hashed n-grams or another embedder."""

from dataclasses import dataclass, field

from portico.adapters.stores.database import Database
from portico.adapters.stores.memory.documents import DatabaseDocuments, DatabaseEmbeddingQueue
from portico.adapters.stores.memory.index import DatabaseMemoryIndex
from portico.capabilities.memory.chunks import index_chunks
from portico.capabilities.memory.document_embedder import DocumentEmbedder
from portico.capabilities.memory.embedder import Embedder, HashedNgramEmbedder
from portico.capabilities.memory.search import HybridSearch
from portico.capabilities.memory.vector_cache import VectorCache
from portico.domain.access.principal import Principal
from portico.domain.fingerprints import digest
from portico.domain.ids import DocumentId
from portico.domain.memory import private_scope, shared_scope
from portico.ports.memory import DocumentKey, NewDocument
from portico.ports.runtime import Clock
from tests.support.entropy import SeededEntropy
from tests.support.inline_threads import InlineThreadPool


@dataclass
class StoredMemory:
    """The memory of one replica on a database, with hashed n-grams or another embedder."""

    database: Database
    clock: Clock
    embedder: Embedder = field(default_factory=lambda: HashedNgramEmbedder(InlineThreadPool(), 64))
    max_vector_bytes: int = 2**20

    def __post_init__(self) -> None:
        pool = InlineThreadPool()
        self.documents = DatabaseDocuments(self.database)
        self.queue = DatabaseEmbeddingQueue(self.database)
        self.index = DatabaseMemoryIndex(self.database)
        self.vectors = VectorCache(self.index, self.embedder.space, pool, max_bytes=self.max_vector_bytes)
        self.search = HybridSearch(self.index, self.embedder, self.vectors, pool)
        self.worker = DocumentEmbedder(self.queue, self.embedder, self.clock, SeededEntropy(1))

    async def put(
        self,
        principal: Principal,
        name: str,
        text: str,
        *,
        shared: bool = False,
        embed: bool = True,
        max_bytes: int | None = None,
    ) -> DocumentKey:
        """Store a document, and embed it."""
        new = new_document(principal, name, text, shared=shared, at=self.clock.now())
        await self.documents.put(new, max_bytes=max_bytes)
        if embed:
            assert await self.worker.embed(new.key, principal, 2.0)
        return new.key

    async def found(self, principal: Principal, query: str, limit: int = 5) -> list[str]:
        """Return the sources of the chunks that fit the query."""
        result = await self.search.search(principal, query, max_chunks=limit)
        return [each.source for each in result.chunks]


def new_document(principal: Principal, name: str, text: str, *, shared: bool = False, at: float = 0.0) -> NewDocument:
    """Return a document as it is stored."""
    tenant, user = principal.tenant, principal.user
    scope = shared_scope(tenant) if shared else private_scope(tenant, user)
    key = DocumentKey(tenant, user, DocumentId(name), digest(tenant, user, name, text, shared))
    chunks = index_chunks(text, scope)
    return NewDocument(key, text, {}, shared, digest(text), chunks, at, at, principal.key_id)
