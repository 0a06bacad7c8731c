"""AG-UI: a run of an agent, as CopilotKit and other user interfaces ask for it."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from portico.entrypoints.http.ag_ui_answer import answer_run
from portico.entrypoints.http.client_route import AgUiRoute
from portico.entrypoints.http.context import Context
from portico.entrypoints.http.openapi.responses import IDEMPOTENCY_KEY, TRACEPARENT, describe_run, run_responses

router = APIRouter(tags=["clients"], route_class=AgUiRoute)


@router.post(
    "/v1/ag-ui/{agent}",
    operation_id="runAgUi",
    summary="Run an agent like AG-UI",
    response_class=Response,
    responses=run_responses(),
    openapi_extra=describe_run(TRACEPARENT, IDEMPOTENCY_KEY),
)
async def run_ag_ui(
    context: Context,
    agent: Annotated[str, Path(description="Name of an agent; `default` is the default route without tools.")],
) -> Response:
    """Run the agent over the messages of a `RunAgentInput`, and stream the frames of AG-UI. `tools` are run by the
    page; a person is asked by an interrupt, which the `resume` of a later run answers. `forwardedProps` is not read.
    What is refused before the first frame is a problem document.
    """
    return await answer_run(context, agent)
