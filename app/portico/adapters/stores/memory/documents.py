"""Stored documents and the queue of those that are to be embedded.

A document is written together with its chunks, their index and the statistics of its scope. What changes a scope gives
it another version; replicas that have its vectors in memory see that at their next search. The row of the tenant is
locked first, so that its limit holds and its first vectors fix the size of all others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from portico.adapters.stores.database import (
    Database,
    ResultRow,
    ResultRows,
    Transaction,
    execute,
    execute_each,
)
from portico.adapters.stores.memory import statements
from portico.adapters.stores.memory.word_index import ADD_TO_INDEX, REMOVE_FROM_INDEX, merge_index, tokens_of
from portico.domain.access.principal import AccessScope
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import DocumentId, KeyId, TenantId, UserId
from portico.domain.memory import MemoryScope, private_scope, shared_scope
from portico.ports.memory import (
    DocumentEntry,
    DocumentKey,
    DueDocument,
    NewDocument,
    StoredDocument,
    VectorSpace,
)
from portico.ports.storage import ResultPage


class DatabaseDocuments:
    """Implementation of the `DocumentStore` port."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._has_deleted = True

    async def find(
        self, reader: AccessScope, document_id: DocumentId, space: VectorSpace, *, of_tenant: bool = False
    ) -> StoredDocument | None:
        values = {**_reader(reader, space, of_tenant=of_tenant), "the_document_id": document_id}
        rows = await self._database.read(lambda: execute(statements.FIND, values))
        return _document(rows[0], reader.tenant) if rows else None

    async def page(
        self, reader: AccessScope, space: VectorSpace, *, of_tenant: bool = False, after: str | None, limit: int
    ) -> ResultPage[DocumentEntry]:
        after_id, _, after_user = (after or "").partition("/")
        start = {"after_id": after_id, "after_user": after_user, "at_most": limit + 1}
        values = {**_reader(reader, space, of_tenant=of_tenant), **start}
        rows = await self._database.read(lambda: execute(statements.PAGE, values))
        items = [_entry(row, reader.tenant) for row in rows[:limit]]
        last = items[-1].key if len(rows) > limit else None
        return ResultPage(items, None if last is None else f"{last.document_id}/{last.user}")

    async def put(self, document: NewDocument, *, max_bytes: int | None) -> bool:
        self._has_deleted = True
        return await self._database.maintain(lambda: _put(document, max_bytes))

    async def delete(self, owner: AccessScope, document_id: DocumentId, revision: str) -> bool:
        self._has_deleted = True
        key = {"the_tenant": owner.tenant, "the_user_id": owner.user, "the_document_id": document_id}
        return await self._database.maintain(lambda: _delete(key, revision))

    async def merge(self) -> None:
        """Drop what was deleted from the index of words of a SQLite database. Raises: StorageFailure."""
        if self._has_deleted:
            self._has_deleted = False
            await self._database.maintain(merge_index)


class DatabaseEmbeddingQueue:
    """Implementation of the `EmbeddingQueue` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, *, now: float, until: float, limit: int) -> Sequence[DueDocument]:
        rows = await self._database.write(lambda: _claim(now, until, limit))
        return [
            DueDocument(
                DocumentKey(TenantId(row[0]), UserId(row[1]), DocumentId(row[2]), row[3]),
                None if row[4] is None else KeyId(row[4]),
                row[5],
            )
            for row in rows
        ]

    async def texts(self, key: DocumentKey) -> Sequence[str]:
        rows = await self._database.read(lambda: execute(statements.TEXTS_OF_DOCUMENT, _version(key)))
        return [bytes(row[0]).decode("utf-8", "surrogatepass") for row in rows]

    async def finish(self, key: DocumentKey, space: VectorSpace, vectors: Sequence[bytes], revision: str) -> bool:
        return await self._database.write(lambda: _finish(key, space, vectors, revision), idempotent=True)

    async def postpone(self, key: DocumentKey, *, until: float, failures: int) -> None:
        values = _version(key) | {"until": until, "failures": failures}
        await self._database.write(lambda: execute(statements.POSTPONE, values), idempotent=True)


def _put(document: NewDocument, max_bytes: int | None) -> Transaction[bool]:
    key = _owner(document.key)
    used = yield from _lock_tenant(document.key.tenant)
    earlier = yield from execute(statements.LOCK_DOCUMENT, key)
    if earlier and earlier[0][0] == document.key.revision:
        return False
    if document.shared and (yield from execute(statements.SHARED_BY_OTHER, key)):
        message = "another user of the tenant shares a document with this id"
        raise RequestFailure(Code.REQUEST_ID_CONFLICT, message)
    content = orjson.dumps({"text": document.text, "metadata": dict(document.metadata)})
    size = used - (earlier[0][1] if earlier else 0) + len(content)
    if max_bytes is not None and size > max_bytes:
        message = f"the tenant would store more than {max_bytes} bytes of documents"
        raise RequestFailure(Code.REQUEST_TOO_LARGE, message, {"limit_bytes": max_bytes, "needed_bytes": size})
    created_at = document.at
    if earlier:
        created_at = earlier[0][3]
        yield from _remove_chunks(key, MemoryScope(earlier[0][2]), document.key.revision)
        yield from execute(statements.DELETE_DOCUMENT, key)
    yield from execute(statements.ADD_DOCUMENT, _row(document, content, created_at))
    yield from _add_chunks(document)
    yield from execute(statements.SET_TENANT_SIZE, key | {"size": size})
    return not earlier


def _delete(key: Mapping[str, Any], revision: str) -> Transaction[bool]:
    used = yield from _lock_tenant(key["the_tenant"])
    found = yield from execute(statements.LOCK_DOCUMENT, key)
    if not found:
        return False
    yield from _remove_chunks(key, MemoryScope(found[0][2]), revision)
    yield from execute(statements.DELETE_DOCUMENT, key)
    size = used - found[0][1]
    tenant = {**key, "size": size}
    yield from execute(statements.SET_TENANT_SIZE if size else statements.DELETE_TENANT, tenant)
    return True


def _lock_tenant(tenant: TenantId) -> Transaction[int]:
    """Lock the row of the tenant, which is made if there is none, and return the size of its documents."""
    rows = yield from execute(statements.LOCK_TENANT, {"tenant": tenant, "size": 0})
    used: int = rows[0][0]
    return used


def _add_chunks(document: NewDocument) -> Transaction[None]:
    key, scope = document.key, _scope(document)
    owner = {"tenant": key.tenant, "user_id": key.user, "document_id": key.document_id, "scope": scope}
    yield from execute_each(
        statements.ADD_CHUNK,
        [
            owner
            | {
                "number": number,
                "words": chunk.word_count,
                "terms": chunk.terms,
                "text": chunk.text.encode("utf-8", "surrogatepass"),
            }
            for number, chunk in enumerate(document.chunks, 1)
        ],
    )
    rows = yield from execute(statements.CHUNKS_OF_DOCUMENT, _owner(key))
    yield from execute_each(
        ADD_TO_INDEX,
        [
            {"chunk_id": row[0], "tokens": tokens_of(chunk.terms)}
            for row, chunk in zip(rows, document.chunks, strict=True)
        ],
    )
    words = sum(chunk.word_count for chunk in document.chunks)
    yield from _change_scope(scope, key.revision, len(document.chunks), words)


def _remove_chunks(key: Mapping[str, Any], scope: MemoryScope, revision: str) -> Transaction[None]:
    """Delete the chunks of a document with their vectors and their index."""
    chunks = yield from execute(statements.CHUNKS_OF_DOCUMENT, key)
    indexed = [{"chunk_id": row[0], "tokens": tokens_of(bytes(row[2]))} for row in chunks]
    yield from execute_each(REMOVE_FROM_INDEX, indexed)
    yield from execute_each(statements.DELETE_VECTOR, indexed)
    yield from execute(statements.DELETE_CHUNKS, key)
    yield from _change_scope(scope, revision, -len(chunks), -sum(row[1] for row in chunks))


def _change_scope(scope: MemoryScope, version: str, chunks: int, words: int) -> Transaction[None]:
    values = {"scope": scope, "version": version, "chunks": chunks, "words": words}
    yield from execute(statements.CHANGE_SCOPE, values)
    yield from execute(statements.DELETE_EMPTY_SCOPE, values)


def _claim(now: float, until: float, limit: int) -> Transaction[ResultRows]:
    due = yield from execute(statements.DUE, {"now": now, "at_most": limit})
    names = ("the_tenant", "the_user_id", "the_document_id", "the_revision", "due_at")
    claims = [dict(zip(names, row, strict=True)) | {"until": until} for row in due]
    return (yield from execute_each(statements.CLAIM, claims))


def _finish(key: DocumentKey, space: VectorSpace, vectors: Sequence[bytes], revision: str) -> Transaction[bool]:
    yield from _lock_tenant(key.tenant)
    document = yield from execute(statements.LOCK_VERSION, _version(key))
    if not document:
        return True
    dimension = len(vectors[0]) // 4
    like = {"the_tenant": key.tenant, "the_embedder": space.embedder, "the_model": space.model}
    others = yield from execute(statements.DIMENSION_OF_TENANT, like)
    is_fixed = space.dimension is None and bool(others)
    if (is_fixed and others[0][0] != dimension) or space.dimension not in {None, dimension}:
        return False
    chunks = yield from execute(statements.CHUNKS_OF_DOCUMENT, _owner(key))
    scope = document[0][0]
    yield from execute_each(
        statements.SET_VECTOR,
        [
            {
                "chunk_id": chunk[0],
                "tenant": key.tenant,
                "scope": scope,
                "embedder": space.embedder,
                "model": space.model,
                "dimension": dimension,
                "vector": vector,
            }
            for chunk, vector in zip(chunks, vectors, strict=True)
        ],
    )
    yield from execute(statements.POSTPONE, _version(key) | {"until": None, "failures": 0})
    yield from _change_scope(scope, revision, 0, 0)
    return True


def _scope(document: NewDocument) -> MemoryScope:
    tenant, user = document.key.tenant, document.key.user
    return shared_scope(tenant) if document.shared else private_scope(tenant, user)


def _row(document: NewDocument, content: bytes, created_at: float) -> dict[str, Any]:
    key = document.key
    return {
        "tenant": key.tenant,
        "user_id": key.user,
        "document_id": key.document_id,
        "revision": key.revision,
        "scope": _scope(document),
        "shared": int(document.shared),
        "digest": document.digest,
        "size": len(content),
        "chunks": len(document.chunks),
        "created_at": created_at,
        "updated_at": document.at,
        "key_id": document.key_id,
        "embed_at": document.embed_at,
        "failures": 0,
        "content": content,
    }


def _owner(key: DocumentKey) -> dict[str, Any]:
    return {"the_tenant": key.tenant, "the_user_id": key.user, "the_document_id": key.document_id}


def _version(key: DocumentKey) -> dict[str, Any]:
    return _owner(key) | {"the_revision": key.revision}


def _reader(reader: AccessScope, space: VectorSpace, *, of_tenant: bool) -> dict[str, Any]:
    return {
        "the_tenant": reader.tenant,
        "the_user_id": reader.user,
        "of_tenant": int(of_tenant),
        "the_embedder": space.embedder,
        "the_model": space.model,
        "the_dimension": space.dimension or 0,
    }


def _entry(row: ResultRow, tenant: TenantId) -> DocumentEntry:
    user, document_id, revision, shared, digest, size, chunks, created_at, updated_at, embedded = (
        row[index] for index in range(10)
    )
    return DocumentEntry(
        key=DocumentKey(tenant, UserId(user), DocumentId(document_id), revision),
        shared=bool(shared),
        digest=digest,
        size=size,
        chunk_count=chunks,
        created_at=created_at,
        updated_at=updated_at,
        is_embedded=bool(embedded),
    )


def _document(row: ResultRow, tenant: TenantId) -> StoredDocument:
    content = orjson.loads(row[10])
    return StoredDocument(_entry(row, tenant), content["text"], content["metadata"])
