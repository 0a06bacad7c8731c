"""The API description: schemas from the boundary's models and the events, statuses from the taxonomy.

Written by hand over generated schemas, because request bodies are read by stricter rules than FastAPI's.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from app.bootstrap.service import Readiness
from app.domain.contract import request, response
from app.domain.contract.quote import Quote
from app.domain.journal.events import EVENT_TYPES, InferenceDelta
from app.entrypoints.http.openapi_paths import HEADERS, REF, header, of, paths
from app.orchestration.facade import (
    AgentTrace,
    EngineView,
    ExecutionView,
    ForkRequest,
    OpenSuspensionView,
    ReplayReport,
    ResumeRequest,
    SessionChanges,
    SessionView,
    ToolView,
)

CONTRACT_VERSION = "1"
_PUBLIC: Mapping[str, str] = MappingProxyType(
    {
        "Event": "FallbackEvent",
        "app__domain__fallback__State": "FallbackState",
        "app__domain__lifecycle__State": "LifecycleState",
    }
)


class Problem(response.SystemError):
    """The answer to a request that was refused before an execution existed [RFC 9457]."""

    type: str = Field(description="A reference that names the kind of problem.")
    title: str = Field(description="The kind of problem, for people.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened, for people; never echoes input.")
    instance: str = Field(description="A reference that names this occurrence.")
    request_id: str = Field(description="The request's id.")


class VariantView(BaseModel):
    """One way a code can occur."""

    condition: str = Field(description="When it is this variant.")
    status: int = Field(description="The HTTP status.")
    retryable: bool = Field(description="Whether sending it again may help.")


class FailureView(BaseModel):
    """One row of the taxonomy."""

    code: str = Field(description="Stable error code.")
    category: str = Field(description="Where the failure belongs.")
    meaning: str = Field(description="What happened.")
    recovery: str = Field(description="What to do about it.")
    variants: list[VariantView] = Field(description="The ways it can occur.")


class MachineView(BaseModel):
    """A state machine of the service."""

    name: str = Field(description="`lifecycle.<mode>` or `fallback`.")
    states: list[str] = Field(description="Its states.")
    events: list[str] = Field([], description="Its events, where edges have them.")
    initial: str = Field(description="Where it starts.")
    terminal: list[str] = Field(description="Where it ends.")
    table: dict[str, Any] = Field(description="By state: what may follow; by event, where edges have them.")
    mermaid: str = Field(description="The same as a Mermaid state diagram.")


class Alive(BaseModel):
    """The process answers."""

    alive: Literal[True] = Field(description="Always true.")


def openapi_document() -> dict[str, Any]:
    """The whole description, with every key in sorted order, so that equal code gives equal text."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Portico", "version": CONTRACT_VERSION, "license": {"name": "Apache-2.0"}},
        "paths": paths(),
        "components": {"schemas": _schemas(), "headers": {name: header(name) for name in HEADERS}},
    }
    ordered: dict[str, Any] = json.loads(json.dumps(document, sort_keys=True))
    return ordered


def _schemas() -> dict[str, Any]:
    models: tuple[tuple[type[BaseModel], JsonSchemaMode], ...] = (
        (request.SystemRequest, "validation"),
        *((shown, "serialization") for shown in (response.SystemResponse, Quote, Problem)),
        *((asked, "validation") for asked in (ResumeRequest, ForkRequest)),
        *((shown, "serialization") for shown in (ExecutionView, OpenSuspensionView, ReplayReport, AgentTrace)),
        (SessionChanges, "validation"),
        (SessionView, "serialization"),
        *((shown, "serialization") for shown in (ToolView, EngineView)),
        *((shown, "serialization") for shown in (FailureView, MachineView, Readiness, Alive)),
    )
    adapters = [(model.__name__, mode, TypeAdapter[Any](model)) for model, mode in models]
    adapters += [(kind.__name__, "serialization", TypeAdapter[Any](kind)) for kind in EVENT_TYPES]
    _, found = TypeAdapter.json_schemas(adapters, ref_template=REF)
    schemas = _renamed(found["$defs"])
    for kind in EVENT_TYPES:
        schemas[kind.__name__] = _event(kind, schemas[kind.__name__])
    schemas["ExecutionEvent"] = {
        "description": "One event, as the `data` of a server-sent event.",
        "oneOf": [of(kind.__name__)["schema"] for kind in EVENT_TYPES],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind.type: REF.format(model=kind.__name__) for kind in EVENT_TYPES},
        },
    }
    return schemas


def _renamed(schemas: dict[str, Any]) -> dict[str, Any]:
    """Names for clients where ours are told apart by their modules only."""
    text = json.dumps({_PUBLIC.get(name, name): schema for name, schema in schemas.items()})
    for name, public in _PUBLIC.items():
        text = text.replace(f'"{REF.format(model=name)}"', f'"{REF.format(model=public)}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _event(kind: type[Any], own: dict[str, Any]) -> dict[str, Any]:
    """The event's own fields behind those that every event has."""
    text, nullable = {"type": "string"}, {"type": ["string", "null"]}
    head: dict[str, Any] = {
        "type": {"const": kind.type},
        **dict.fromkeys(("request_id", "trace_id", "span_id"), text),
        **dict.fromkeys(("session_id", "parent_span_id", "caused_by"), nullable),
        "timestamp": {"type": "string", "format": "date-time"},
    }
    if kind is not InferenceDelta:
        head["sequence_number"] = {"type": "integer", "minimum": 1}
    required = sorted({*head, *own.get("required", ())})
    head["step_name"] = {"type": "string", "description": "The step of a plan that it happens in."}
    return {**own, "properties": {**head, **own.get("properties", {})}, "required": required}
