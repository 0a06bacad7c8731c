"""Routes of grants: leave that persons gave for later calls of tools."""

import orjson
from fastapi import APIRouter, Depends
from starlette.responses import Response

from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.errors import WholeResponse
from portico.entrypoints.http.openapi.responses import READ_FAILURES, Collection, failures
from portico.entrypoints.http.parameters import GrantIdInPath, no_parameters
from portico.orchestration.facade import GrantView

router = APIRouter(tags=["suspensions"], dependencies=[AUTHENTICATED])
GRANTS = "/v1/grants"


@router.get(
    GRANTS,
    operation_id="listGrants",
    summary="List grants, oldest first",
    response_model=Collection[GrantView],
    responses=failures(*READ_FAILURES),
    dependencies=[Depends(no_parameters)],
)
async def list_grants(context: Context) -> Response:
    """Return the grants of the caller's executions that cover calls yet; with `can_approve` those of its tenant."""
    data = [
        orjson.Fragment(view.model_dump_json(by_alias=True))
        for view in await context.facade.grants.list(context.principal)
    ]
    return context.json_response(orjson.dumps({"data": data}))


@router.delete(
    f"{GRANTS}/{{grant_id}}",
    operation_id="revokeGrant",
    summary="Revoke a grant",
    response_class=Response,
    response_description="The grant covers no call any more",
    status_code=204,
    responses=failures(*READ_FAILURES),
)
async def revoke_grant(context: Context, grant_id: GrantIdInPath) -> Response:
    """Delete a grant of the caller's executions; with `can_approve` one of its tenant. Calls that run go on."""
    await context.facade.grants.revoke(context.principal, grant_id)
    return WholeResponse(204, b"", context.correlate().headers())
