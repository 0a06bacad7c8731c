"""Routes of access: the caller itself, and the keys of its tenant."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.correlation import Header
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Page, describe_body, failures
from portico.entrypoints.http.parameters import (
    KeyIdInPath,
    KeyListQuery,
    RevocationQuery,
    decode_cursor,
    encode_cursor,
    no_parameters,
    readable_query,
)
from portico.orchestration.facade import CallerView, KeyRequest, KeyView, NewKeyView

router = APIRouter(tags=["access"], dependencies=[AUTHENTICATED])
KEYS = "/v1/keys"
_NO_STORE: Header = (b"cache-control", b"no-store")


@router.get(
    "/v1/me",
    operation_id="getCaller",
    summary="Show the caller",
    response_model=CallerView,
    responses=failures(Code.STORAGE_UNAVAILABLE),
    dependencies=[Depends(no_parameters)],
)
async def show_caller(context: Context) -> Response:
    """Return who calls, what it may do, and what is left of its limits as far as this replica knows."""
    return context.object_response(context.facade.caller(context.principal))


@router.get(
    KEYS,
    operation_id="listKeys",
    summary="List keys, newest first",
    response_model=Page[KeyView, str],
    responses=failures(*READ_FAILURES, Code.ACCESS_DENIED),
    dependencies=[Depends(readable_query)],
)
async def list_keys(context: Context, query: Annotated[KeyListQuery, Query()]) -> Response:
    """Return one page of the keys of the caller's user, with `can_view_tenant` of its tenant. Needs
    `can_manage_keys`.
    """
    after = decode_cursor(context.principal, KEYS, query.after)
    page = await context.facade.keys.page(context.principal, after=after, limit=query.limit)
    data = [orjson.Fragment(each.model_dump_json()) for each in page.keys]
    return context.page_response(data, encode_cursor(context.principal, KEYS, page.next))


@router.post(
    KEYS,
    operation_id="createKey",
    summary="Make a key",
    response_model=NewKeyView,
    response_description="The key, whose secret is shown this once",
    status_code=201,
    responses=failures(*READ_FAILURES, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.ACCESS_DENIED),
    openapi_extra=describe_body(KeyRequest),
)
async def create_key(context: Context, body: Annotated[KeyRequest, json_body(KeyRequest)]) -> Response:
    """Make a key of the caller's tenant, which may do nothing that the caller may not. Needs `can_manage_keys`.

    No key that is made here has `can_manage_keys`. A key with limits of its own makes none, and none ends later than
    the key that makes it.
    """
    view = await context.facade.keys.create(context.principal, body)
    headers = (*context.correlate().headers(), _NO_STORE)
    return WholeResponse(201, view.model_dump_json().encode(), (JSON, *headers))


@router.delete(
    f"{KEYS}/{{public_id}}",
    operation_id="revokeKey",
    summary="Revoke a key",
    response_class=Response,
    response_description="Every replica refuses the key within 5 seconds",
    status_code=204,
    responses=failures(*READ_FAILURES, Code.ACCESS_DENIED),
    dependencies=[Depends(readable_query)],
)
async def revoke_key(context: Context, public_id: KeyIdInPath, query: Annotated[RevocationQuery, Query()]) -> Response:
    """Revoke a key of the caller's user, with `can_view_tenant` of its tenant. Needs `can_manage_keys`.

    Revoking it again changes nothing.
    """
    await context.facade.keys.revoke(context.principal, public_id, cancel=query.cancel)
    return WholeResponse(204, b"", context.correlate().headers())
