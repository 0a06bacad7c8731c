"""Executions as resources of the MCP server, with the JSON of the HTTP API."""

import base64
import binascii
from typing import Final

from mcp import types
from mcp.shared.exceptions import MCPError

from portico.domain.access.principal import Principal
from portico.domain.failures import RequestFailure
from portico.domain.ids import RequestId
from portico.orchestration.facade import Facade
from portico.ports.storage import ExecutionFilter

PREFIX: Final = "portico://executions/"
TRACE: Final = "/trace"
PAGE_SIZE: Final = 50
_JSON: Final = "application/json"


async def list_executions(facade: Facade, principal: Principal, cursor: str | None) -> types.ListResourcesResult:
    """Return a page of the caller's executions, newest first. Raises: MCPError for a cursor that it did not give."""
    after = None if cursor is None else _read_cursor(cursor)
    page = await facade.executions.page(principal, ExecutionFilter(), after=after, limit=PAGE_SIZE)
    resources = [
        types.Resource(uri=PREFIX + each.request_id, name=each.request_id, title=each.title, mime_type=_JSON)
        for each in page.executions
    ]
    following = None if page.next is None else base64.urlsafe_b64encode(page.next.encode()).decode()
    return types.ListResourcesResult(resources=resources, next_cursor=following)


def templates() -> types.ListResourceTemplatesResult:
    """Return the forms of addresses."""
    whole = types.ResourceTemplate(uri_template=PREFIX + "{request_id}", name="execution", mime_type=_JSON)
    trace = types.ResourceTemplate(uri_template=PREFIX + "{request_id}" + TRACE, name="trace", mime_type=_JSON)
    return types.ListResourceTemplatesResult(resource_templates=[whole, trace])


async def read_execution(facade: Facade, principal: Principal, uri: str) -> types.ReadResourceResult:
    """Return an execution, or its trace. Raises: MCPError if the caller has no such execution."""
    name = uri.removeprefix(PREFIX)
    request_id = RequestId(name.removesuffix(TRACE))
    if name == uri:
        raise MCPError(types.INVALID_PARAMS, "there is no such resource", {"uri": uri})
    try:
        if name.endswith(TRACE):
            shown = (await facade.executions.trace(principal, request_id)).model_dump_json(by_alias=True)
        else:
            shown = (await facade.executions.show(principal, request_id)).model_dump_json(by_alias=True)
    except RequestFailure as failure:
        raise MCPError(types.INVALID_PARAMS, failure.message, {"uri": uri}) from None
    contents = [types.TextResourceContents(uri=uri, mime_type=_JSON, text=shown)]
    return types.ReadResourceResult(contents=[*contents])


def _read_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise MCPError(types.INVALID_PARAMS, "the cursor is none of this server's") from None
