"""The view of an execution says how far a call is that runs."""

from typing import Any

import anyio

from portico import SideEffects, ToolContext, tool
from tests.support.portico import RESPOND_ASYNC, chat, portico


@tool(side_effects=SideEffects.READ, idempotent=True)
async def count_pages(context: ToolContext) -> str:
    """Count the pages."""
    context.progress(0.4, "page 4 of 10")
    await context.clock.sleep(3.0)
    return "10 pages"


async def test_the_view_has_the_progress_while_the_call_runs_and_not_afterwards() -> None:
    seen: list[Any] = []
    async with portico(tools={"modules": ["tests.entrypoints.http.test_progress_view"]}) as (served, _):
        await served.post(chat("Use count_pages.", request_id="p"), RESPOND_ASYNC)
        while True:
            view = (await served.get("/v1/executions/p")).json
            if view["progress"] is not None:
                seen.append(view["progress"])
            if view["state"] == "COMPLETE":
                break
            await anyio.sleep(0.1)
    assert view["progress"] is None
    call_id = seen[0].pop("tool_call_id")
    assert call_id
    assert seen[0] == {"tool_name": "count_pages", "progress": 0.4, "message": "page 4 of 10"}
