"""Memory: the documents that callers store for retrieval, and their search."""

from datetime import UTC, datetime
from functools import partial

from pydantic import BaseModel, ConfigDict, Field

from portico.capabilities.limits.quotas import RunSlot
from portico.capabilities.memory.chunks import has_words, index_chunks
from portico.capabilities.memory.document_embedder import LEASE_S, PATIENCE_S, DocumentEmbedder
from portico.capabilities.memory.embedder import EngineEmbedder
from portico.domain.access.principal import Permission, Principal
from portico.domain.contract.constrained_types import UnitInterval
from portico.domain.failures import Code, Failure, RequestFailure
from portico.domain.fingerprints import digest
from portico.domain.ids import DocumentId, UserId
from portico.domain.memory import (
    DEFAULT_CHUNKS,
    MAX_CHUNKS,
    MAX_DOCUMENT_BYTES,
    LegState,
    private_scope,
    shared_scope,
)
from portico.domain.value import value
from portico.orchestration.embeddings import DirectEmbeddings
from portico.orchestration.execution.environment import Environment
from portico.orchestration.rights import require
from portico.ports.memory import (
    DocumentEntry,
    DocumentKey,
    DocumentStore,
    MemorySearch,
    NewDocument,
    StoredDocument,
    VectorSpace,
)
from portico.ports.runtime import ThreadPool

MAX_METADATA = 16
MAX_METADATA_CHARACTERS = 512
"""Number of the client's metadata of a document, and length of each of their names and values."""


class DocumentContent(BaseModel):
    """A document to be stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(description="Text, at most 1 MiB in UTF-8. It has to contain a word.")
    metadata: dict[str, str] = Field(
        default_factory=dict, max_length=MAX_METADATA, description="Client metadata, returned with the document."
    )
    shared: bool = Field(
        False, description="True to let all users of the tenant read it, which needs `can_share_memory`."
    )


class DocumentSummary(BaseModel):
    """A stored document without its text."""

    document_id: DocumentId = Field(description="The document's id.")
    user: UserId = Field(description="The user that has stored it.")
    shared: bool = Field(description="True if all users of the tenant may read it.")
    chunks: int = Field(description="Number of chunks that it is searched by.")
    bytes: int = Field(description="Size that counts towards the limit of the tenant.")
    embedded: bool = Field(
        description="True if it is searched by vectors, too; false until it is embedded by the configured model."
    )
    created_at: datetime = Field(description="The time at which it was first stored.")
    updated_at: datetime = Field(description="The time at which it was last changed.")


class DocumentView(DocumentSummary):
    """A stored document."""

    text: str = Field(description="Text.")
    metadata: dict[str, str] = Field(description="Client metadata.")


class MemoryQuery(BaseModel):
    """A search of the documents that the caller may read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query: str = Field(min_length=1, max_length=8_192, description="Text to search for.")
    max_chunks: int = Field(DEFAULT_CHUNKS, ge=1, le=MAX_CHUNKS, description="Maximum number of chunks.")
    min_score: UnitInterval = Field(0.0, description="Least score of a chunk.")


class FoundChunkView(BaseModel):
    """A part of a document that fits the query."""

    document_id: DocumentId = Field(description="Id of the document.")
    text: str = Field(description="Text of the chunk.")
    score: float = Field(description="Fused rank, between 0 and 1.")
    source: str = Field(description="Id of the chunk: that of the document, and the number of the chunk in it.")


class MemorySearchView(BaseModel):
    """The chunks that fit the query, best first, and how the two legs of the search did."""

    data: list[FoundChunkView] = Field(description="Chunks.")
    lexical: LegState = Field(description="State of the search by words.")
    vector: LegState = Field(description="State of the search by vectors; `skipped` if there are none.")


@value
class DocumentPage:
    """A page of documents in the order of their ids; `next` is the cursor of the following page, None on the last."""

    documents: list[DocumentSummary]
    next: str | None


@value
class MemoryParts:
    """Everything that the documents need. `max_bytes` bounds those of a tenant; without one there is no limit.

    `engine_embedder` makes the vectors of queries if an engine does.
    """

    documents: DocumentStore
    embedder: DocumentEmbedder
    search: MemorySearch
    space: VectorSpace
    thread_pool: ThreadPool
    max_bytes: int | None = None
    engine_embedder: EngineEmbedder | None = None


class Memory:
    """Queries and commands for documents, by principal. A caller with `can_view_tenant` reads those of other users.

    Raises: RequestFailure (REQUEST_NOT_FOUND) in every method that names one, StorageFailure.
    """

    def __init__(self, environment: Environment, parts: MemoryParts) -> None:
        self.embeddings = DirectEmbeddings(environment, parts.engine_embedder)
        self._environment = environment
        self._parts = parts

    async def put(
        self, principal: Principal, document_id: DocumentId, content: DocumentContent
    ) -> tuple[DocumentView, bool]:
        """Store a document in place of an earlier one, and return it, and True if there was none.

        The same content again changes nothing, but a document without vectors is embedded. Raises: AccessFailure;
        RequestFailure (REQUEST_INVALID, REQUEST_TOO_LARGE, REQUEST_RATE_LIMITED, REQUEST_ID_CONFLICT).
        """
        require(principal.permissions, Permission.SEND_MESSAGES, "store documents")
        if content.shared:
            require(principal.permissions, Permission.SHARE_MEMORY, "share documents")
        _check(content)
        slot = await self._take_request(principal)
        try:
            document, is_new = await self._stored(principal, document_id, content)
        except Failure:
            slot.refund()
            raise
        if not document.entry.is_embedded:
            await self._parts.embedder.embed(document.entry.key, principal, PATIENCE_S)
        return await self.show(principal, document_id), is_new

    async def show(self, principal: Principal, document_id: DocumentId) -> DocumentView:
        """Return the caller's document, else a shared one with that id."""
        found = await self._find(principal, document_id, of_tenant=_reads_tenant(principal))
        if found is None:
            raise _not_found()
        summary = _summary(found.entry)
        return DocumentView(**summary.model_dump(), text=found.text, metadata=dict(found.metadata))

    async def require_own(self, principal: Principal, document_id: DocumentId) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if the caller has no such document of its own."""
        found = await self._find(principal, document_id)
        if found is None or found.entry.key.user != principal.user:
            raise _not_found()

    async def page(self, principal: Principal, *, after: str | None, limit: int) -> DocumentPage:
        """Return a page of the documents that the caller may read."""
        page = await self._parts.documents.page(
            principal.own, self._parts.space, of_tenant=_reads_tenant(principal), after=after, limit=limit
        )
        return DocumentPage(list(map(_summary, page.items)), page.next)

    async def delete(self, principal: Principal, document_id: DocumentId) -> None:
        """Delete a document of the caller, with all that was made of it. Raises: AccessFailure."""
        require(principal.permissions, Permission.SEND_MESSAGES, "delete documents")
        revision = self._environment.entropy.uuid7()
        if not await self._parts.documents.delete(principal.own, document_id, revision):
            raise _not_found()

    async def search(self, principal: Principal, query: MemoryQuery) -> MemorySearchView:
        """Search the documents that the caller may read. Raises: AccessFailure; RequestFailure (…_RATE_LIMITED)."""
        require(principal.permissions, Permission.SEND_MESSAGES, "search documents")
        await self._take_request(principal)
        result = await self._parts.search.search(
            principal, query.query, max_chunks=query.max_chunks, min_score=query.min_score
        )
        data = [
            FoundChunkView(document_id=each.document_id, text=each.text, score=each.score, source=each.source)
            for each in result.chunks
        ]
        return MemorySearchView(data=data, lexical=result.lexical, vector=result.vector)

    async def _take_request(self, principal: Principal) -> RunSlot:
        quota = self._environment.quotas.of(principal.tenant, principal.key_id, principal.limits)
        return RunSlot() if quota is None else await quota.admit_to_queue()

    async def _stored(
        self, principal: Principal, document_id: DocumentId, content: DocumentContent
    ) -> tuple[StoredDocument, bool]:
        """Store the content unless the document has it, and return the document, and True if there was none."""
        fingerprint = digest("document", content.text, content.metadata, content.shared)
        earlier = await self._find(principal, document_id)
        if earlier is not None and earlier.entry.key.user == principal.user and earlier.entry.digest == fingerprint:
            return earlier, False
        tenant, user, at = principal.tenant, principal.user, self._environment.clock.now()
        scope = shared_scope(tenant) if content.shared else private_scope(tenant, user)
        chunks = await self._parts.thread_pool.run(partial(index_chunks, content.text, scope))
        key = DocumentKey(tenant, user, document_id, self._environment.entropy.uuid7())
        new = NewDocument(
            key=key,
            text=content.text,
            metadata=content.metadata,
            shared=content.shared,
            digest=fingerprint,
            chunks=chunks,
            at=at,
            embed_at=at + LEASE_S,
            key_id=principal.key_id,
        )
        is_new = await self._parts.documents.put(new, max_bytes=self._parts.max_bytes)
        entry = DocumentEntry(key, content.shared, fingerprint, 0, len(chunks), at, at, is_embedded=False)
        return StoredDocument(entry, content.text, content.metadata), is_new

    async def _find(
        self, principal: Principal, document_id: DocumentId, *, of_tenant: bool = False
    ) -> StoredDocument | None:
        return await self._parts.documents.find(principal.own, document_id, self._parts.space, of_tenant=of_tenant)


def _check(content: DocumentContent) -> None:
    """Raise RequestFailure for a text that is too large or has no words, or for metadata that are too long."""
    size = len(content.text.encode("utf-8", "surrogatepass"))
    if size > MAX_DOCUMENT_BYTES:
        message = f"the text is larger than {MAX_DOCUMENT_BYTES} bytes"
        raise RequestFailure(Code.REQUEST_TOO_LARGE, message, {"limit_bytes": MAX_DOCUMENT_BYTES})
    if not has_words(content.text):
        raise _invalid("text", "must contain a word")
    for name, text in content.metadata.items():
        if max(len(name), len(text)) > MAX_METADATA_CHARACTERS:
            raise _invalid("metadata", f"must have names and values of at most {MAX_METADATA_CHARACTERS} characters")


def _reads_tenant(principal: Principal) -> bool:
    return principal.permissions.allows(Permission.VIEW_TENANT)


def _summary(entry: DocumentEntry) -> DocumentSummary:
    return DocumentSummary(
        document_id=entry.key.document_id,
        user=entry.key.user,
        shared=entry.shared,
        chunks=entry.chunk_count,
        bytes=entry.size,
        embedded=entry.is_embedded,
        created_at=datetime.fromtimestamp(entry.created_at, UTC),
        updated_at=datetime.fromtimestamp(entry.updated_at, UTC),
    )


def _not_found() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, "no document has this id", condition="path")


def _invalid(field: str, message: str) -> RequestFailure:
    details = {"errors": [{"field": field, "message": message}]}
    return RequestFailure(Code.REQUEST_INVALID, f"{field} {message}", details)
