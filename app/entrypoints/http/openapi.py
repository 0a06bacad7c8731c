"""The API description: schemas from the boundary's models and the events, statuses from the taxonomy.

Written by hand over generated schemas, because request bodies are read by stricter rules than FastAPI's.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from app.bootstrap import Readiness
from app.domain import boundary
from app.domain.events import EVENT_TYPES, InferenceDelta
from app.domain.failures import TAXONOMY, Code
from app.domain.quote import Quote
from app.orchestration.facade import EngineView, ToolView

CONTRACT_VERSION = "1"
_REF = "#/components/schemas/{model}"
_LIMITS = (
    "Strict JSON: no duplicate keys, NaN, lone surrogates or unknown fields. Default limits: body 4 MiB, depth 64, "
    "1,000 messages, 128 tools, 20 tool rounds, 32 calls a reply, 600 s. Fields whose feature this version lacks are "
    "refused by name."
)
_BEFORE_INIT = (
    *(Code.REQUEST_INVALID, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.REQUEST_OVERLOADED),
    *(Code.ACCESS_DENIED, Code.TOOL_NOT_FOUND, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.CONFIG_SCHEMA_REQUIRED),
    *(Code.CONFIG_SCHEMA_INVALID, Code.CONFIG_GRAMMAR_INVALID, Code.CONFIG_GRAMMAR_NOT_FOUND),
    Code.ORCHESTRATION_INVALID_TRANSITION,
)
"""What refuses a request before it is an execution, a bug of ours included."""
_JSON, _PROBLEM, _EVENTS = "application/json", "application/problem+json", "text/event-stream"
_PUBLIC: Mapping[str, str] = MappingProxyType(
    {
        "Event": "FallbackEvent",
        "app__domain__fallback__State": "FallbackState",
        "app__domain__lifecycle__State": "LifecycleState",
    }
)
_HEADERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "X-Request-Id": ("The request's id.", "string"),
        "traceparent": ("W3C trace context of the root span.", "string"),
        "Server-Timing": ("Milliseconds: total, upstream, overhead. Not on streams.", "string"),
        "Retry-After": ("Seconds after which trying again may help.", "integer"),
        "x-should-retry": ("Whether sending it again may help.", "boolean"),
        "Location": ("Where the events of the execution are.", "string"),
        "Allow": ("The methods the path has.", "string"),
    }
)


class Problem(boundary.SystemError):
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
        "paths": {"/v1/execute": {"post": _execute()}, "/v1/quote": {"post": _quote()}, **_collections(), **_probes()},
        "components": {"schemas": _schemas(), "headers": {name: _header(name) for name in _HEADERS}},
    }
    ordered: dict[str, Any] = json.loads(json.dumps(document, sort_keys=True))
    return ordered


def _execute() -> dict[str, Any]:
    named = _headers("X-Request-Id", "traceparent")
    return {
        "operationId": "execute",
        "summary": "Run one request",
        "description": "Answers with the response, or with the events as they happen for `Accept: text/event-stream`. "
        "A client that leaves cancels the execution.",
        **_asked(),
        "responses": {
            "200": {
                "description": "The execution completed; or its events, the last of which carries the response",
                "headers": {**named, **_headers("Server-Timing", "Location")},
                "content": {_JSON: _of("SystemResponse"), _EVENTS: _of("ExecutionEvent")},
            },
            "202": {
                "description": "The execution is suspended",
                "headers": {**named, **_headers("Server-Timing")},
                "content": {_JSON: _of("SystemResponse")},
            },
            **_failures(TAXONOMY, {_JSON: _of("SystemResponse"), _PROBLEM: _of("Problem")}),
        },
    }


def _quote() -> dict[str, Any]:
    return {
        "operationId": "quote",
        "summary": "The most that a request can come to",
        "description": "Upper bounds that the state machines, the limits and the engines' context windows guarantee. "
        "Nothing runs. What execute would refuse before it starts is refused in the same way.",
        **_asked(),
        "responses": {
            "200": {
                "description": "The bounds",
                "headers": _headers("X-Request-Id", "traceparent"),
                "content": {_JSON: _of("Quote")},
            },
            **_failures(_BEFORE_INIT, {_PROBLEM: _of("Problem")}),
        },
    }


def _asked() -> dict[str, Any]:
    """What a route that takes a SystemRequest is sent."""
    return {
        "parameters": [_parameter("traceparent", "W3C trace context to continue.")],
        "requestBody": {"required": True, "description": _LIMITS, "content": {_JSON: _of("SystemRequest")}},
    }


def _failures(codes: Iterable[Code], content: dict[str, Any]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        for variant in TAXONOMY[code].variants:
            by_status.setdefault(variant.status, []).append(code)
    return {str(status): _failure(names, content) for status, names in by_status.items()}


def _failure(codes: list[str], content: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": ", ".join(dict.fromkeys(codes)),
        "headers": _headers("X-Request-Id", "traceparent", "Retry-After", "x-should-retry", "Allow"),
        "content": content,
    }


def _collections() -> dict[str, Any]:
    rows = (
        ("/v1/tools", "tools", "Registered tools", "ToolView"),
        ("/v1/engines", "engines", "Configured engines", "EngineView"),
        ("/v1/errors", "errors", "Every error code", "FailureView"),
        ("/v1/machines", "machines", "The state machines", "MachineView"),
    )
    return {path: _read(name, summary, _JSON, _collection(item)) for path, name, summary, item in rows}


def _probes() -> dict[str, Any]:
    ready = _read("readyz", "Whether it takes requests", _JSON, _of("Readiness"))
    ready["get"]["responses"]["503"] = {**ready["get"]["responses"]["200"], "description": "Not ready, and why"}
    text = {"schema": {"type": "string"}}
    return {
        "/livez": _read("livez", "Whether the process answers", _JSON, _of("Alive")),
        "/readyz": ready,
        "/metrics": _read("metrics", "Prometheus metrics", "text/plain", text),
    }


def _read(name: str, summary: str, media_type: str, content: dict[str, Any]) -> dict[str, Any]:
    found = {
        "description": summary,
        "headers": _headers("X-Request-Id", "traceparent"),
        "content": {media_type: content},
    }
    return {"get": {"operationId": name, "summary": summary, "responses": {"200": found}}}


def _schemas() -> dict[str, Any]:
    models: tuple[tuple[type[BaseModel], JsonSchemaMode], ...] = (
        (boundary.SystemRequest, "validation"),
        *((shown, "serialization") for shown in (boundary.SystemResponse, Quote, Problem)),
        *((shown, "serialization") for shown in (ToolView, EngineView)),
        *((shown, "serialization") for shown in (FailureView, MachineView, Readiness, Alive)),
    )
    adapters = [(model.__name__, mode, TypeAdapter[Any](model)) for model, mode in models]
    adapters += [(kind.__name__, "serialization", TypeAdapter[Any](kind)) for kind in EVENT_TYPES]
    _, found = TypeAdapter.json_schemas(adapters, ref_template=_REF)
    schemas = _renamed(found["$defs"])
    for kind in EVENT_TYPES:
        schemas[kind.__name__] = _event(kind, schemas[kind.__name__])
    schemas["ExecutionEvent"] = {
        "description": "One event, as the `data` of a server-sent event.",
        "oneOf": [_of(kind.__name__)["schema"] for kind in EVENT_TYPES],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind.type: _REF.format(model=kind.__name__) for kind in EVENT_TYPES},
        },
    }
    return schemas


def _renamed(schemas: dict[str, Any]) -> dict[str, Any]:
    """Names for clients where ours are told apart by their modules only."""
    text = json.dumps({_PUBLIC.get(name, name): schema for name, schema in schemas.items()})
    for name, public in _PUBLIC.items():
        text = text.replace(f'"{_REF.format(model=name)}"', f'"{_REF.format(model=public)}"')
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


def _collection(item: str) -> dict[str, Any]:
    data = {"type": "array", "items": _of(item)["schema"]}
    return {"schema": {"type": "object", "properties": {"data": data}, "required": ["data"]}}


def _of(model: str) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(model=model)}}


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(name: str) -> dict[str, Any]:
    description, kind = _HEADERS[name]
    return {"description": description, "schema": {"type": kind}}


def _parameter(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}
