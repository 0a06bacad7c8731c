"""Statements of the stored memory."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Insert,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    or_,
    select,
    update,
)

from portico.adapters.stores.database import Insertion, Statement
from portico.adapters.stores.schema import (
    TEXT,
    memory_chunks,
    memory_documents,
    memory_scopes,
    memory_tenants,
    memory_vectors,
)

_DOCUMENTS, _CHUNKS, _VECTORS = memory_documents.c, memory_chunks.c, memory_vectors.c
_USER: BindParameter[str] = bindparam("the_user_id", type_=TEXT)
_AT_MOST: BindParameter[int] = bindparam("at_most", type_=BigInteger)
_OF_TENANT: BindParameter[int] = bindparam("of_tenant", type_=BigInteger)
_DIMENSION: BindParameter[int] = bindparam("the_dimension", type_=BigInteger)
_IN_TENANT = _DOCUMENTS.tenant == bindparam("the_tenant")
_IS_OWN = _DOCUMENTS.user_id == _USER
_IS_ID = _DOCUMENTS.document_id == bindparam("the_document_id")
_IS_DOCUMENT = and_(_IN_TENANT, _IS_OWN, _IS_ID)
_IS_VERSION = and_(_IS_DOCUMENT, _DOCUMENTS.revision == bindparam("the_revision"))
_OF_DOCUMENT = and_(
    _CHUNKS.tenant == bindparam("the_tenant"),
    _CHUNKS.user_id == _USER,
    _CHUNKS.document_id == bindparam("the_document_id"),
)


def _is_embedded() -> ColumnElement[int]:
    """Return 1 if the chunks of the document have vectors that are compared now; they get them all at once."""
    in_space = and_(
        _VECTORS.embedder == bindparam("the_embedder"),
        _VECTORS.model == bindparam("the_model"),
        or_(_DIMENSION == 0, _VECTORS.dimension == _DIMENSION),
    )
    first = and_(
        _CHUNKS.tenant == _DOCUMENTS.tenant,
        _CHUNKS.user_id == _DOCUMENTS.user_id,
        _CHUNKS.document_id == _DOCUMENTS.document_id,
        _CHUNKS.number == 1,
    )
    found = select(_VECTORS.chunk_id).where(_VECTORS.chunk_id == _CHUNKS.chunk_id, first, in_space)
    return case((exists(found.correlate(memory_documents)), 1), else_=0)


def _entries(*others: ColumnElement[Any]) -> Select[Any]:
    columns = (
        *(_DOCUMENTS.user_id, _DOCUMENTS.document_id, _DOCUMENTS.revision, _DOCUMENTS.shared, _DOCUMENTS.digest),
        *(_DOCUMENTS.size, _DOCUMENTS.chunks, _DOCUMENTS.created_at, _DOCUMENTS.updated_at),
    )
    return select(*columns, _is_embedded(), *others)


def _page() -> Select[Any]:
    own = memory_documents.alias("own")
    is_hidden = exists(
        select(own.c.document_id).where(
            own.c.tenant == _DOCUMENTS.tenant, own.c.user_id == _USER, own.c.document_id == _DOCUMENTS.document_id
        )
    )
    is_readable = or_(_OF_TENANT == 1, _IS_OWN, and_(_DOCUMENTS.shared == 1, ~is_hidden))
    after_id, after_user = bindparam("after_id", type_=TEXT), bindparam("after_user", type_=TEXT)
    follows = or_(
        _DOCUMENTS.document_id > after_id, and_(_DOCUMENTS.document_id == after_id, _DOCUMENTS.user_id > after_user)
    )
    order = (_DOCUMENTS.document_id, _DOCUMENTS.user_id)
    return _entries().where(_IN_TENANT, is_readable, follows).order_by(*order).limit(_AT_MOST)


def _find() -> Select[Any]:
    is_readable = or_(_IS_OWN, _DOCUMENTS.shared == 1, _OF_TENANT == 1)
    order = (case((_IS_OWN, 0), (_DOCUMENTS.shared == 1, 1), else_=2), _DOCUMENTS.user_id)
    return _entries(_DOCUMENTS.content).where(_IN_TENANT, _IS_ID, is_readable).order_by(*order).limit(1)


def _add(table: Table) -> Statement:
    names = [column.name for column in table.c if column.name != "chunk_id" or table is memory_vectors]
    return Statement(lambda insert: insert(table).values({name: bindparam(name) for name in names}))


def _set_vector(insert: Insertion) -> Insert:
    names = [column.name for column in _VECTORS]
    return (
        insert(memory_vectors)
        .values({name: bindparam(name) for name in names})
        .on_conflict_do_update(index_elements=["chunk_id"], set_={name: bindparam(name) for name in names[1:]})
    )


def _change_scope(insert: Insertion) -> Insert:
    columns = memory_scopes.c
    added = {name: bindparam(name, type_=BigInteger) for name in ("chunks", "words")}
    version: BindParameter[str] = bindparam("version", type_=TEXT)
    return (
        insert(memory_scopes)
        .values(scope=bindparam("scope"), version=version, **added)
        .on_conflict_do_update(
            index_elements=["scope"],
            set_={"version": version, **{name: columns[name] + added[name] for name in added}},
        )
    )


def _lock_tenant(insert: Insertion) -> Insert:
    return (
        insert(memory_tenants)
        .values(tenant=bindparam("tenant"), size=bindparam("size"))
        .on_conflict_do_update(index_elements=["tenant"], set_={"size": memory_tenants.c.size})
        .returning(memory_tenants.c.size)
    )


FIND: Final = Statement(lambda _: _find())
PAGE: Final = Statement(lambda _: _page())
LOCK_TENANT: Final = Statement(_lock_tenant)
SET_TENANT_SIZE: Final = Statement(
    lambda _: (
        update(memory_tenants).where(memory_tenants.c.tenant == bindparam("the_tenant")).values(size=bindparam("size"))
    )
)
DELETE_TENANT: Final = Statement(
    lambda _: delete(memory_tenants).where(memory_tenants.c.tenant == bindparam("the_tenant"))
)
LOCK_DOCUMENT: Final = Statement(
    lambda _: (
        select(_DOCUMENTS.revision, _DOCUMENTS.size, _DOCUMENTS.scope, _DOCUMENTS.created_at)
        .where(_IS_DOCUMENT)
        .with_for_update()
    )
)
LOCK_VERSION: Final = Statement(lambda _: select(_DOCUMENTS.scope).where(_IS_VERSION).with_for_update())
SHARED_BY_OTHER: Final = Statement(
    lambda _: select(_DOCUMENTS.document_id).where(
        _IN_TENANT, _IS_ID, _DOCUMENTS.shared == 1, _DOCUMENTS.user_id != _USER
    )
)
ADD_DOCUMENT: Final = _add(memory_documents)
DELETE_DOCUMENT: Final = Statement(lambda _: delete(memory_documents).where(_IS_DOCUMENT))
ADD_CHUNK: Final = _add(memory_chunks)
CHUNKS_OF_DOCUMENT: Final = Statement(
    lambda _: select(_CHUNKS.chunk_id, _CHUNKS.words, _CHUNKS.terms).where(_OF_DOCUMENT).order_by(_CHUNKS.number)
)
DELETE_CHUNKS: Final = Statement(lambda _: delete(memory_chunks).where(_OF_DOCUMENT))
DELETE_VECTOR: Final = Statement(lambda _: delete(memory_vectors).where(_VECTORS.chunk_id == bindparam("chunk_id")))
SET_VECTOR: Final = Statement(_set_vector)
TEXTS_OF_DOCUMENT: Final = Statement(
    lambda _: (
        select(_CHUNKS.text)
        .where(_OF_DOCUMENT, exists(select(_DOCUMENTS.document_id).where(_IS_VERSION)))
        .order_by(_CHUNKS.number)
    )
)
CHANGE_SCOPE: Final = Statement(_change_scope)
DELETE_EMPTY_SCOPE: Final = Statement(
    lambda _: delete(memory_scopes).where(memory_scopes.c.scope == bindparam("scope"), memory_scopes.c.chunks == 0)
)
DUE: Final = Statement(
    lambda _: (
        select(_DOCUMENTS.tenant, _DOCUMENTS.user_id, _DOCUMENTS.document_id, _DOCUMENTS.revision, _DOCUMENTS.embed_at)
        .where(_DOCUMENTS.embed_at <= bindparam("now"))
        .order_by(_DOCUMENTS.embed_at)
        .limit(_AT_MOST)
    )
)
CLAIM: Final = Statement(
    lambda _: (
        update(memory_documents)
        .where(_IS_VERSION, _DOCUMENTS.embed_at == bindparam("due_at"))
        .values(embed_at=bindparam("until"))
        .returning(
            *(_DOCUMENTS.tenant, _DOCUMENTS.user_id, _DOCUMENTS.document_id, _DOCUMENTS.revision),
            *(_DOCUMENTS.key_id, _DOCUMENTS.failures),
        )
    )
)
POSTPONE: Final = Statement(
    lambda _: (
        update(memory_documents).where(_IS_VERSION).values(embed_at=bindparam("until"), failures=bindparam("failures"))
    )
)
DIMENSION_OF_TENANT: Final = Statement(
    lambda _: (
        select(_VECTORS.dimension)
        .where(
            _VECTORS.tenant == bindparam("the_tenant"),
            _VECTORS.embedder == bindparam("the_embedder"),
            _VECTORS.model == bindparam("the_model"),
        )
        .limit(1)
    )
)
SCOPE: Final = Statement(
    lambda _: select(
        memory_scopes.c.scope, memory_scopes.c.version, memory_scopes.c.chunks, memory_scopes.c.words
    ).where(memory_scopes.c.scope == bindparam("the_scope"))
)
VECTORS: Final = Statement(
    lambda _: (
        select(_VECTORS.chunk_id, _VECTORS.vector)
        .where(
            _VECTORS.scope == bindparam("the_scope"),
            _VECTORS.embedder == bindparam("the_embedder"),
            _VECTORS.model == bindparam("the_model"),
            or_(_DIMENSION == 0, _VECTORS.dimension == _DIMENSION),
            _VECTORS.chunk_id > bindparam("after", type_=BigInteger),
        )
        .order_by(_VECTORS.chunk_id)
        .limit(_AT_MOST)
    )
)


def _hidden_chunks() -> Select[Any]:
    own = memory_documents.alias("own")
    hidden = and_(
        own.c.tenant == _DOCUMENTS.tenant, own.c.user_id == _USER, own.c.document_id == _DOCUMENTS.document_id
    )
    chunk = and_(
        _CHUNKS.tenant == _DOCUMENTS.tenant,
        _CHUNKS.user_id == _DOCUMENTS.user_id,
        _CHUNKS.document_id == _DOCUMENTS.document_id,
    )
    is_others = and_(_IN_TENANT, _DOCUMENTS.shared == 1, _DOCUMENTS.user_id != _USER)
    return (
        select(_CHUNKS.chunk_id)
        .select_from(memory_documents.join(own, hidden).join(memory_chunks, chunk))
        .where(is_others)
    )


HIDDEN_CHUNKS: Final = Statement(lambda _: _hidden_chunks())
TEXT_OF_CHUNK: Final = Statement(
    lambda _: select(_CHUNKS.chunk_id, _CHUNKS.document_id, _CHUNKS.number, _CHUNKS.text, _CHUNKS.scope).where(
        _CHUNKS.chunk_id == bindparam("the_chunk_id", type_=BigInteger)
    )
)
