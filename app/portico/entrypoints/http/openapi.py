"""API description: what FastAPI cannot derive from the routes, and the finished document.

Request bodies are read by stricter rules than FastAPI's, events are sent by a raw ASGI response, and refusals are
problem documents. Routes add these with `describe_body`, `execution_responses` and `failures`, as references to schemas
that `openapi_document` adds to FastAPI's own.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field, TypeAdapter

from portico.domain.contract.request import SystemRequest
from portico.domain.failures import TAXONOMY, Code
from portico.domain.journal.events import EVENT_TYPES, WIRE_NAMES, LiveEvent
from portico.entrypoints.http.client_apis.embeddings import EmbeddingRequest
from portico.entrypoints.http.client_apis.extension import Extension
from portico.entrypoints.http.docs.examples import add_examples
from portico.entrypoints.http.errors import Problem
from portico.orchestration.facade import (
    DocumentContent,
    ForkRequest,
    KeyRequest,
    ListReady,
    MemoryQuery,
    RemovedExecution,
    ResumeRequest,
    SessionChanges,
    SuspensionChange,
)

T = TypeVar("T")
N = TypeVar("N")
CONTRACT_VERSION = "1"
PROBLEM_TYPE = "application/problem+json"
READ_FAILURES = (Code.REQUEST_INVALID, Code.REQUEST_NOT_FOUND, Code.STORAGE_UNAVAILABLE, Code.STORAGE_FULL)
_REF = "#/components/schemas/{model}"
_ACCESS_FAILURES = (Code.ACCESS_UNAUTHENTICATED, Code.ACCESS_UNAVAILABLE)
_SERVERS: tuple[Mapping[str, str], ...] = (
    {"url": "/", "description": "The service that this description comes from."},
    {"url": "http://127.0.0.1:8080", "description": "A service on this machine, with the default settings."},
)
_REQUESTS = (
    SystemRequest,
    ResumeRequest,
    ForkRequest,
    SessionChanges,
    DocumentContent,
    MemoryQuery,
    KeyRequest,
    EmbeddingRequest,
    Extension,
)
_PUBLIC_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Event": "FallbackEvent",
        "State": "LifecycleState",
        "portico__domain__fallback__State": "FallbackState",
        "portico__domain__lifecycle__State": "LifecycleState",
        "ForkOverrides": "Overrides",
        "FormatEnforcement": "Way",
        "SuspensionView": "PendingView",
        "ReplayReport": "Replayed",
        "TracedToolCall": "TracedCall",
    }
)
"""Schema names that generated clients rely on, or that differ from classes which only their modules tell apart."""
_HEADERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "X-Request-Id": ("Id of the execution; without one that of the gateway, if it gave one.", "string"),
        "traceparent": ("W3C trace context of the root span.", "string"),
        "Server-Timing": ("Milliseconds: total, upstream, overhead. Not on event streams.", "string"),
        "Retry-After": ("Seconds after which another attempt may succeed.", "integer"),
        "x-should-retry": ("True if sending the request again may help.", "boolean"),
        "Location": ("Location of the execution, or of its events.", "string"),
        "RateLimit-Policy": ("Limits of the caller: quota `q` in `w` seconds, of the unit `qu`.", "string"),
        "RateLimit": ("What is left of each limit: `r` units, and all of them in `t` seconds.", "string"),
        "Preference-Applied": ("`respond-async` if the response does not wait for the execution.", "string"),
        "Idempotency-Replayed": ("`true` if this is the response of an earlier request.", "string"),
        "WWW-Authenticate": ("`Bearer`, with the error and the missing permission [RFC 6750].", "string"),
        "portico-ignored": ("Fields of the request without effect, sorted.", "string"),
        "Allow": ("Methods that the path supports.", "string"),
    }
)


class Collection(BaseModel, Generic[T]):
    """A whole collection."""

    data: list[T] = Field(description="Items.")


class Page(BaseModel, Generic[T, N]):
    """One page of a collection."""

    data: list[T] = Field(description="Items of this page.")
    has_more: bool = Field(description="True if there are more pages.")
    next: N | None = Field(description="Value of `after` for the next page; null on the last one.")


def _schema(model: str) -> dict[str, Any]:
    return {"schema": {"$ref": _REF.format(model=model)}}


_BODY_LIMITS = (
    "Strict JSON: no duplicate keys, NaN, lone surrogates or unknown fields. Default limits: body 4 MiB, depth 64, "
    "1,000 messages, 128 tools, 20 tool rounds, 32 calls per reply, 600 s. Fields of features that this version lacks "
    "are refused by name."
)


_CLIENT_BODY = (
    "The body that the clients of this API send. Strict JSON, with the limits of `/v1/execute`. Fields without effect "
    "are named by the header `portico-ignored`."
)
_CLIENT_ERROR: Mapping[str, Any] = {
    "type": "object",
    "properties": {"error": {"type": "object", "description": "The error as the clients of this API read it."}},
    "required": ["error"],
}


def _header_parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", **schema},
    }


TRACEPARENT = _header_parameter("traceparent", "W3C trace context to continue. An invalid one is ignored.")
IDEMPOTENCY_KEY = _header_parameter(
    "Idempotency-Key",
    "A request with the same key and body gets the response of the first one, with `Idempotency-Replayed: true`.",
    maxLength=255,
)
METADATA_FILTER: Mapping[str, Any] = {
    "name": "metadata.KEY",
    "in": "query",
    "required": False,
    "description": "Only executions whose metadata has this value under `KEY`. Several keys may be given.",
    "schema": {"type": "string"},
}
PREFER = _header_parameter("Prefer", "`respond-async`: do not wait for the execution. An event stream wins over it.")


def describe_body(model: type[BaseModel], *headers: dict[str, Any]) -> dict[str, Any]:
    """Describe the body of a route with `json_body`, and headers that the route reads leniently."""
    body = {"required": True, "description": _BODY_LIMITS, "content": {"application/json": _schema(model.__name__)}}
    return {"requestBody": body} | ({"parameters": [*headers]} if headers else {})


def event_page_content() -> dict[str, Any]:
    """Describe a body of server-sent events, or a page of them as JSON."""
    more = {"type": "boolean", "description": "True if there are more pages."}
    following = {
        "type": ["integer", "null"],
        "description": "Value of `after` for the next page; null on the last one. With `types` a page may be short.",
    }
    items = {"type": "array", "items": _schema("ExecutionEvent")["schema"], "description": "Events of this page."}
    page = {"type": "object", "properties": {"data": items, "has_more": more, "next": following}}
    page["required"] = [*page["properties"]]
    return {**event_stream_content(), "application/json": {"schema": page}}


def describe_client_body(conversation: str, *headers: dict[str, Any]) -> dict[str, Any]:
    """Describe the body of a client API by what Portico adds to it; the rest is described by those who made the API.

    `conversation` is the name of the required field that has the messages.
    """
    properties = {
        "model": {"type": "string", "description": "A name from GET /v1/models."},
        conversation: {"description": "The conversation."},
        "stream": {"type": ["boolean", "null"], "description": "True to get the answer as it is made."},
        "portico": _schema("Extension")["schema"],
    }
    schema = {"type": "object", "properties": properties, "required": ["model", conversation]}
    body = {"required": True, "description": _CLIENT_BODY, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, "parameters": [*headers]}


def client_responses(description: str) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route of a client API that runs an execution."""
    known = "portico-ignored", "Location", "Idempotency-Replayed", "RateLimit-Policy", "RateLimit"
    error = {"application/json": {"schema": {"allOf": [_schema("Problem")["schema"], _CLIENT_ERROR]}}}
    return {
        200: {
            "description": description,
            "headers": _header_refs(*known),
            "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        },
        "4XX": {"description": "The request was refused", "content": error},
        "5XX": {"description": "The execution failed", "content": error},
    }


def change_stream_content() -> dict[str, Any]:
    """Describe a body of server-sent events about executions and suspensions, each by the `data` of its frames."""
    kinds = ("ExecutionSummary", "SuspensionChange", "RemovedExecution", "ListReady")
    return {"text/event-stream": {"schema": {"oneOf": [_schema(kind)["schema"] for kind in kinds]}}}


def event_stream_content() -> dict[str, Any]:
    """Describe a body of server-sent events."""
    return {"text/event-stream": _schema("ExecutionEvent")}


def execution_responses(completed: str, waiting: str) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route that runs an execution."""
    headers = _header_refs("Server-Timing", "Location", "Idempotency-Replayed", "RateLimit-Policy", "RateLimit")
    status_or_response = {"oneOf": [_schema("SystemResponse")["schema"], _schema("ExecutionView")["schema"]]}
    return {
        200: {
            "description": f"{completed}; or its events, of which the last one has the response",
            "headers": headers,
            "content": event_stream_content(),
        },
        202: {
            "description": f"{waiting}; or the status and the location, for a client that does not wait, "
            "or whose execution another replica continues",
            "headers": headers | _header_refs("Preference-Applied"),
            "content": {"application/json": {"schema": status_or_response}},
        },
        **_failures(TAXONOMY, {"application/json": _schema("SystemResponse")}),
    }


def failures(*codes: Code) -> dict[int | str, dict[str, Any]]:
    """Describe the refusals with these codes."""
    return _failures(codes, {})


def _failures(codes: Iterable[Code], content: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        for variant in TAXONOMY[code].variants:
            by_status.setdefault(variant.status, []).append(code)
    return {
        status: {
            "description": ", ".join(dict.fromkeys(names)),
            "content": content | {PROBLEM_TYPE: _schema("Problem")},
        }
        for status, names in by_status.items()
    }


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the whole description, with sorted keys, so that equal code gives equal text."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        license_info={"name": "Apache-2.0"},
        servers=[dict(each) for each in _SERVERS],
        routes=app.routes,
    )
    components = document["components"]
    components["schemas"] = _renamed(components["schemas"]) | _renamed(_added_schemas())
    components["headers"] = {name: _header(name) for name in _HEADERS}
    document["paths"] = _renamed(document["paths"])
    for path in document["paths"].values():
        for operation in path.values():
            if "security" in operation:
                _add_access_failures(operation["responses"])
            _add_common_headers(operation["responses"])
    add_examples(document)
    ordered: dict[str, Any] = json.loads(json.dumps(document, sort_keys=True))
    return ordered


def _added_schemas() -> dict[str, Any]:
    """Return the schemas of request bodies, events and problem documents."""
    adapters: list[Any] = [(model.__name__, "validation", TypeAdapter(model)) for model in _REQUESTS]
    shown: tuple[type[Any], ...] = (*EVENT_TYPES, Problem, SuspensionChange, RemovedExecution, ListReady)
    adapters += [(kind.__name__, "serialization", TypeAdapter(kind)) for kind in shown]
    schemas: dict[str, Any] = TypeAdapter.json_schemas(adapters, ref_template=_REF)[1]["$defs"]
    for kind in EVENT_TYPES:
        schemas[kind.__name__] = _event_schema(kind, schemas[kind.__name__])
    schemas["ExecutionEvent"] = {
        "description": "One event, as the `data` of a server-sent event.",
        "oneOf": [_schema(kind.__name__)["schema"] for kind in EVENT_TYPES],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind.type: _REF.format(model=kind.__name__) for kind in EVENT_TYPES},
        },
    }
    return schemas


def _event_schema(kind: type[Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an event: the fields of every event, and its own."""
    text, nullable = {"type": "string"}, {"type": ["string", "null"]}
    common: dict[str, Any] = {
        "type": {"const": kind.type},
        **dict.fromkeys(("request_id", "trace_id", "span_id"), text),
        **dict.fromkeys(("session_id", "parent_span_id", "caused_by"), nullable),
        "timestamp": {"type": "string", "format": "date-time"},
    }
    if kind not in get_args(LiveEvent):
        common["sequence_number"] = {"type": "integer", "minimum": 1}
    properties = {WIRE_NAMES.get(name, name): field for name, field in own.get("properties", {}).items()}
    required = sorted({*common, *(WIRE_NAMES.get(name, name) for name in own.get("required", ()))})
    common["step_name"] = {"type": "string", "description": "Step of a plan in which the event happened."}
    return {**own, "properties": {**common, **properties}, "required": required}


def _renamed(part: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps({_PUBLIC_NAMES.get(name, name): value for name, value in part.items()})
    for name, public in _PUBLIC_NAMES.items():
        text = text.replace(f'"{_REF.format(model=name)}"', f'"{_REF.format(model=public)}"')
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _add_access_failures(responses: dict[str, Any]) -> None:
    """Add the refusals of a route that authenticates its callers, which may have others of the same status."""
    for status, failure in failures(*_ACCESS_FAILURES).items():
        known = responses.setdefault(str(status), failure)
        if failure["description"] not in known["description"]:
            known["description"] += f", {failure['description']}"


def _add_common_headers(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        names = ["X-Request-Id", "traceparent"]
        if status == "429":
            names += ["RateLimit-Policy", "RateLimit"]
        if PROBLEM_TYPE in response.get("content", {}):
            names += ["Retry-After", "x-should-retry", "Allow", "WWW-Authenticate"]
        response["headers"] = _header_refs(*names) | response.get("headers", {})


def _header_refs(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(name: str) -> dict[str, Any]:
    description, kind = _HEADERS[name]
    return {"description": description, "schema": {"type": kind}}
