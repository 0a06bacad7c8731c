"""Routes of the memory: list, store, show and delete documents, and search them."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Page, describe_body, failures
from portico.entrypoints.http.parameters import (
    DocumentIdInPath,
    DocumentListQuery,
    OwnDocument,
    decode_cursor,
    encode_cursor,
    readable_query,
)
from portico.orchestration.facade import (
    DocumentContent,
    DocumentSummary,
    DocumentView,
    MemoryQuery,
    MemorySearchView,
)

router = APIRouter(tags=["memory"], dependencies=[AUTHENTICATED])
MEMORY = "/v1/memory"
DOCUMENT = f"{MEMORY}/{{document_id}}"
_BODY_FAILURES = (
    *(Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.REQUEST_RATE_LIMITED, Code.ACCESS_DENIED),
)


@router.get(
    MEMORY,
    operation_id="listDocuments",
    summary="List documents, by id",
    response_model=Page[DocumentSummary, str],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(readable_query)],
)
async def list_documents(context: Context, query: Annotated[DocumentListQuery, Query()]) -> Response:
    """Return one page of the documents that the caller may read, without their texts."""
    after = decode_cursor(context.principal, MEMORY, query.after)
    page = await context.facade.memory.page(context.principal, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json()) for each in page.documents]
    return context.page_response(data, encode_cursor(context.principal, MEMORY, page.next))


@router.put(
    DOCUMENT,
    operation_id="putDocument",
    summary="Store a document",
    response_model=DocumentView,
    response_description="The document, in place of an earlier one",
    responses={
        201: {"model": DocumentView, "description": "The document, which is new"},
        **failures(*READ_FAILURES, *_BODY_FAILURES, Code.REQUEST_ID_CONFLICT),
    },
    openapi_extra=describe_body(DocumentContent),
)
async def put_document(
    context: Context,
    document_id: DocumentIdInPath,
    body: Annotated[DocumentContent, json_body(DocumentContent)],
) -> Response:
    """Store a document under an id of one's own. The same content again changes nothing.

    It can be found by its words at once. `embedded` is false if it could not be embedded in two seconds: then it is
    later.
    """
    context.shows_limits = True
    view, is_new = await context.facade.memory.put(context.principal, document_id, body)
    return context.object_response(view, 201 if is_new else 200)


@router.get(
    DOCUMENT,
    operation_id="getDocument",
    summary="Show a document",
    response_model=DocumentView,
    responses=failures(*READ_FAILURES),
)
async def show_document(context: Context, document_id: DocumentIdInPath) -> Response:
    """Return one's own document with that id, else the one that is shared in the tenant."""
    return context.object_response(await context.facade.memory.show(context.principal, document_id))


@router.delete(
    DOCUMENT,
    operation_id="deleteDocument",
    summary="Delete a document",
    response_class=Response,
    response_description="The document is gone, with its chunks, their vectors and the index of its words",
    status_code=204,
    responses=failures(*READ_FAILURES, Code.ACCESS_DENIED),
)
async def delete_document(context: Context, document_id: OwnDocument) -> Response:
    """Delete a document of one's own. No search that begins afterwards finds it."""
    await context.facade.memory.delete(context.principal, document_id)
    return WholeResponse(204, b"", context.correlate().headers())


@router.post(
    f"{MEMORY}/search",
    operation_id="searchMemory",
    summary="Search the documents",
    response_model=MemorySearchView,
    responses=failures(*READ_FAILURES, *_BODY_FAILURES),
    openapi_extra=describe_body(MemoryQuery),
)
async def search_memory(context: Context, body: Annotated[MemoryQuery, json_body(MemoryQuery)]) -> Response:
    """Return the parts of documents that fit the query best, by their words and by their vectors.

    One of the two may fail; if both do, nothing is found, and the response says so.
    """
    context.shows_limits = True
    return context.object_response(await context.facade.memory.search(context.principal, body))
