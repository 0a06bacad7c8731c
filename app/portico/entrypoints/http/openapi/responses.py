"""Descriptions of bodies and responses that routes give, where FastAPI cannot derive it from their functions.

Request bodies are read by stricter rules than FastAPI's, events are sent by a raw ASGI response, and refusals are
problem documents. The schemas that these name are added by the document.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, Field

from portico.domain.failures import TAXONOMY, Code

T = TypeVar("T")
N = TypeVar("N")
PROBLEM_TYPE = "application/problem+json"
EVENT_STREAM = "text/event-stream"
_EVENTS: Final[Mapping[str, str]] = MappingProxyType({"type": "string", "contentMediaType": EVENT_STREAM})
READ_FAILURES = (Code.REQUEST_INVALID, Code.REQUEST_NOT_FOUND, Code.STORAGE_UNAVAILABLE, Code.STORAGE_FULL)
REF = "#/components/schemas/{model}"


class Collection(BaseModel, Generic[T]):
    """A whole collection."""

    data: list[T] = Field(description="Items.")


class Page(BaseModel, Generic[T, N]):
    """One page of a collection."""

    data: list[T] = Field(description="Items of this page.")
    has_more: bool = Field(description="True if there are more pages.")
    next: N | None = Field(description="Value of `after` for the next page; null on the last one.")


def schema_ref(model: str) -> dict[str, str]:
    """Return a reference to the schema of that name."""
    return {"$ref": REF.format(model=model)}


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
    body = {
        "required": True,
        "description": _BODY_LIMITS,
        "content": {"application/json": {"schema": schema_ref(model.__name__)}},
    }
    return {"requestBody": body} | ({"parameters": [*headers]} if headers else {})


def event_page_content() -> dict[str, Any]:
    """Describe a body of server-sent events, or a page of them as JSON."""
    more = {"type": "boolean", "description": "True if there are more pages."}
    following = {
        "type": ["integer", "null"],
        "description": "Value of `after` for the next page; null on the last one. With `types` a page may be short.",
    }
    items = {"type": "array", "items": schema_ref("ExecutionEvent"), "description": "Events of this page."}
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
        "portico": schema_ref("Extension"),
    }
    schema = {"type": "object", "properties": properties, "required": ["model", conversation]}
    body = {"required": True, "description": _CLIENT_BODY, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, "parameters": [*headers]}


def client_responses(description: str) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route of a client API that runs an execution."""
    known = "portico-ignored", "Location", "Idempotency-Replayed", "RateLimit-Policy", "RateLimit"
    error = {"application/json": {"schema": {"allOf": [schema_ref("Problem"), _CLIENT_ERROR]}}}
    return {
        200: {
            "description": description,
            "headers": header_refs(*known),
            "content": {"application/json": {"schema": {"type": "object"}}, EVENT_STREAM: {"schema": {**_EVENTS}}},
        },
        **_failures(TAXONOMY, error),
    }


def describe_run(*headers: dict[str, Any]) -> dict[str, Any]:
    """Describe the body of a run of AG-UI by what is read of it; the rest is described by the protocol."""
    objects = {"type": "array", "items": {"type": "object"}}
    properties = {
        "threadId": {"type": "string", "description": "Id of the thread; it is kept as metadata."},
        "runId": {"type": "string", "description": "Id of the run; it is kept as metadata."},
        "messages": {**objects, "description": "The whole conversation."},
        "tools": {**objects, "description": "Tools that the page runs."},
        "context": {**objects, "description": "What the page tells of itself, each a `description` and a `value`."},
        "state": {"description": "State of the page, which no model reads."},
        "resume": {**objects, "description": "Answers to interrupts of one execution."},
        "protocolVersion": {"type": "string", "description": "Version of the protocol that the client speaks."},
    }
    schema = {"type": "object", "properties": properties, "required": ["threadId", "runId", "messages"]}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, "parameters": [*headers]}


def run_responses() -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a run of AG-UI."""
    known = "Location", "Idempotency-Replayed", "RateLimit-Policy", "RateLimit"
    content = {EVENT_STREAM: {"schema": {**_EVENTS}}}
    described = {"description": "The frames of the run", "headers": header_refs(*known), "content": content}
    return {200: described, **_failures(TAXONOMY, {})}


def change_stream_content() -> dict[str, Any]:
    """Describe a body of server-sent events about executions and suspensions, each by the `data` of its frames."""
    kinds = ("ExecutionSummary", "SuspensionChange", "RemovedExecution", "ListReady")
    return _event_stream({"oneOf": [schema_ref(kind) for kind in kinds]})


def event_stream_content() -> dict[str, Any]:
    """Describe a body of server-sent events."""
    return _event_stream(schema_ref("ExecutionEvent"))


def _event_stream(event: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a body of frames by the `data` of each, for which OpenAPI 3.1 has no word."""
    return {EVENT_STREAM: {"schema": {**_EVENTS, "x-event": event}}}


def execution_responses(completed: str, waiting: str) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route that runs an execution."""
    headers = header_refs("Server-Timing", "Location", "Idempotency-Replayed", "RateLimit-Policy", "RateLimit")
    status_or_response = {"oneOf": [schema_ref("SystemResponse"), schema_ref("ExecutionView")]}
    return {
        200: {
            "description": f"{completed}; or its events, of which the last one has the response",
            "headers": headers,
            "content": event_stream_content(),
        },
        202: {
            "description": f"{waiting}; or the status and the location, for a client that does not wait, "
            "or whose execution another replica continues",
            "headers": headers | header_refs("Preference-Applied"),
            "content": {"application/json": {"schema": status_or_response}},
        },
        **_failures(TAXONOMY, {"application/json": {"schema": schema_ref("SystemResponse")}}),
    }


def header_refs(*names: str) -> dict[str, Any]:
    """Return references to the described headers of these names."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


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
            "content": content | {PROBLEM_TYPE: {"schema": schema_ref("Problem")}},
        }
        for status, names in by_status.items()
    }
