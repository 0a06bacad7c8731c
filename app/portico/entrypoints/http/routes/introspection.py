"""Introspection: tools, step types, engines, flows, error codes and state machines."""

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from portico.domain.diagrams import machines
from portico.domain.failures import TAXONOMY, Code, FailureRow, RequestFailure
from portico.entrypoints.http.context import AUTHENTICATED, Context
from portico.entrypoints.http.errors import JSON, WholeResponse
from portico.entrypoints.http.openapi.responses import Collection, failures
from portico.entrypoints.http.parameters import EngineListQuery, no_parameters
from portico.orchestration.facade import AgentView, EngineView, FlowView, PromptView, SkillView, StepTypeView, ToolView

router = APIRouter(tags=["catalogue"], dependencies=[AUTHENTICATED])


class VariantView(BaseModel):
    """One variant of an error code."""

    condition: str = Field(description="Condition of this variant.")
    status: int = Field(description="HTTP status.")
    retryable: bool = Field(description="True if sending the request again may help.")


class FailureView(BaseModel):
    """One row of the failure taxonomy."""

    code: str = Field(description="Stable error code.")
    category: str = Field(description="Category of the failure.")
    meaning: str = Field(description="Meaning of the code.")
    recovery: str = Field(description="Recommended reaction.")
    variants: list[VariantView] = Field(description="Variants of the code.")


class MachineView(BaseModel):
    """A state machine of the service."""

    name: str = Field(description="`lifecycle.<mode>` or `fallback`.")
    states: list[str] = Field(description="States.")
    events: list[str] = Field([], description="Events, if the edges have them.")
    initial: str = Field(description="Initial state.")
    terminal: list[str] = Field(description="Terminal states.")
    table: dict[str, Any] = Field(description="Successors by state, or by state and event if the edges have events.")
    mermaid: str = Field(description="The machine as a Mermaid state diagram.")


@router.get(
    "/v1/tools",
    operation_id="listTools",
    summary="List the registered tools",
    response_model=Collection[ToolView],
    dependencies=[Depends(no_parameters)],
)
async def list_tools(context: Context) -> Response:
    """Return the registered tools that the caller may use."""
    views = await context.facade.introspection.tools(context.principal.permissions)
    return _collection([view.model_dump(mode="json", by_alias=True) for view in views])


@router.get(
    "/v1/step-types",
    operation_id="listStepTypes",
    summary="List the step types of plans",
    response_model=Collection[StepTypeView],
    dependencies=[Depends(no_parameters)],
)
async def list_step_types(context: Context) -> Response:
    """Return the built-in step types, and those of modules that the caller may use."""
    views = await context.facade.introspection.step_types(context.principal.permissions)
    return _collection([view.model_dump(mode="json", by_alias=True) for view in views])


@router.get(
    "/v1/agents",
    operation_id="listAgents",
    summary="List the agents",
    response_model=Collection[AgentView],
    dependencies=[Depends(no_parameters)],
)
async def list_agents(context: Context) -> Response:
    """Return every configured agent that the caller may use, by name, without its prompt."""
    views = context.facade.introspection.agents(context.principal.permissions)
    return _collection([view.model_dump(mode="json", by_alias=True) for view in views])


@router.get(
    "/v1/skills",
    operation_id="listSkills",
    summary="List the skills",
    response_model=Collection[SkillView],
    dependencies=[Depends(no_parameters)],
)
async def list_skills(context: Context) -> Response:
    """Return the skills that are in force, by name, without their texts."""
    views = context.facade.introspection.skills(context.principal.permissions)
    return _collection([view.model_dump(mode="json", by_alias=True) for view in views])


@router.get(
    "/v1/engines",
    operation_id="listEngines",
    summary="List the configured engines",
    response_model=Collection[EngineView],
    responses=failures(Code.REQUEST_INVALID, Code.ACCESS_DENIED),
)
async def list_engines(context: Context, query: Annotated[EngineListQuery, Query()]) -> Response:
    """Return the engines that the caller may use, in the order of the configuration. With `view=health` each has what
    this process has seen of it in the last 60 minutes, of all tenants; that needs `can_read_metrics`.
    """
    listed, permissions = context.facade.introspection, context.principal.permissions
    views = listed.engines(permissions) if query.view is None else listed.engines_with_health(permissions)
    return _collection([view.model_dump(mode="json", by_alias=True, exclude_unset=True) for view in views])


@router.get(
    "/v1/prompts",
    operation_id="listPrompts",
    summary="List the prompts",
    response_model=Collection[PromptView],
    dependencies=[Depends(no_parameters)],
)
async def list_prompts(context: Context) -> Response:
    """Return every prompt that the service itself gives a model, with the JSON Schemas of its input and its output."""
    return _collection([view.model_dump(mode="json", by_alias=True) for view in context.facade.introspection.prompts()])


@router.get(
    "/v1/flows",
    operation_id="listFlows",
    summary="List the registered flows",
    response_model=Collection[FlowView],
    dependencies=[Depends(no_parameters)],
)
async def list_flows(context: Context) -> Response:
    """Return the registered flows, by name, without those that ask a model which the caller may not use."""
    views = context.facade.introspection.flows(context.principal.permissions)
    return _collection([view.model_dump(mode="json", by_alias=True) for view in views])


@router.get(
    "/v1/flows/{name}",
    operation_id="getFlow",
    summary="Show a flow",
    response_model=FlowView,
    responses=failures(Code.REQUEST_NOT_FOUND),
)
async def show_flow(name: str, context: Context) -> Response:
    """Return the flow of that name, with its graph."""
    view = context.facade.introspection.flow(name, context.principal.permissions)
    if view is None:
        raise RequestFailure(Code.REQUEST_NOT_FOUND, "there is no flow of that name", condition="path")
    return WholeResponse(200, orjson.dumps(view.model_dump(mode="json", by_alias=True)), (JSON,))


@router.get(
    "/v1/errors",
    operation_id="listErrors",
    summary="List the error codes",
    response_model=Collection[FailureView],
    dependencies=[Depends(no_parameters)],
)
async def list_errors() -> Response:
    """Return every error code of the taxonomy."""
    return _collection([_failure_row(row) for row in TAXONOMY.values()])


@router.get(
    "/v1/machines",
    operation_id="listMachines",
    summary="List the state machines",
    response_model=Collection[MachineView],
    dependencies=[Depends(no_parameters)],
)
async def list_machines() -> Response:
    """Return the lifecycles and the fallback machine."""
    return _collection(machines())


def _collection(data: Sequence[Any]) -> WholeResponse:
    return WholeResponse(200, orjson.dumps({"data": data}), (JSON,))


def _failure_row(row: FailureRow) -> dict[str, Any]:
    return {
        "code": row.code,
        "category": row.category,
        "meaning": row.meaning,
        "recovery": row.recovery,
        "variants": row.variants,
    }
