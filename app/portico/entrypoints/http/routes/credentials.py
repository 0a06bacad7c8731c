"""Routes of credentials: list those of one's tools, set and delete values, which are never shown."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from portico.domain.failures import Code
from portico.entrypoints.http.body import json_body
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Collection, describe_body, failures
from portico.entrypoints.http.parameters import (
    CredentialQuery,
    KnownCredential,
    known_credential,
    no_parameters,
    readable_query,
)
from portico.orchestration.credentials import CredentialRequest, CredentialView

router = APIRouter(tags=["credentials"], dependencies=[AUTHENTICATED])
CREDENTIALS = "/v1/credentials"
CREDENTIAL = f"{CREDENTIALS}/{{credential_name}}"


@router.get(
    CREDENTIALS,
    operation_id="listCredentials",
    summary="List credentials, by name",
    response_model=Collection[CredentialView],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(no_parameters)],
)
async def list_credentials(context: Context) -> Response:
    """Return the credentials of the tools that the caller may use, without values."""
    views = await context.service.credentials.list(context.principal)
    data = [orjson.Fragment(view.model_dump_json()) for view in views]
    return context.json_response(orjson.dumps({"data": data}))


@router.put(
    CREDENTIAL,
    operation_id="putCredential",
    summary="Set the value of a credential",
    response_class=Response,
    response_description="The value is stored, in place of an earlier one",
    status_code=204,
    responses=failures(
        *READ_FAILURES, Code.REQUEST_INVALID, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.ACCESS_DENIED
    ),
    openapi_extra=describe_body(CredentialRequest),
    dependencies=[Depends(readable_query)],
)
async def put_credential(
    context: Context,
    credential_name: KnownCredential,
    query: Annotated[CredentialQuery, Query()],
    body: Annotated[CredentialRequest, json_body(CredentialRequest, after=known_credential)],
) -> Response:
    """Store the caller's value, or with `can_manage_credentials` that of its tenant. It is sealed, and never shown.

    Calls that wait for it go on in the background.
    """
    await context.service.credentials.put(context.principal, credential_name, body, query.owner)
    return WholeResponse(204, b"", context.correlate().headers())


@router.delete(
    CREDENTIAL,
    operation_id="deleteCredential",
    summary="Delete the value of a credential",
    response_class=Response,
    response_description="There is no value any more",
    status_code=204,
    responses=failures(*READ_FAILURES, Code.REQUEST_INVALID, Code.ACCESS_DENIED),
    dependencies=[Depends(readable_query)],
)
async def delete_credential(
    context: Context, credential_name: KnownCredential, query: Annotated[CredentialQuery, Query()]
) -> Response:
    """Delete the caller's value, or with `can_manage_credentials` that of its tenant. Calls that run go on."""
    await context.service.credentials.delete(context.principal, credential_name, query.owner)
    return WholeResponse(204, b"", context.correlate().headers())
