"""The finished API description: what FastAPI derives, the schemas that routes only name, and rules for all of it.

Generators of clients read it, so that it keeps to what they agree on: a schema is called by its title, no schema has a
`default` (generators make such fields required of the caller), and a field that is always sent is required.
"""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from portico.domain.contract.request import SystemRequest
from portico.domain.failures import Code
from portico.domain.journal.events import EVENT_TYPES, WIRE_NAMES, LiveEvent
from portico.entrypoints.http.client_apis.embeddings import EmbeddingRequest
from portico.entrypoints.http.client_apis.extension import Extension
from portico.entrypoints.http.docs.examples import add_examples
from portico.entrypoints.http.errors import Problem
from portico.entrypoints.http.openapi.names import TAGS, public_name
from portico.entrypoints.http.openapi.responses import PROBLEM_TYPE, REF, failures, header_refs, schema_ref
from portico.orchestration.credentials import CredentialRequest
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
from portico.orchestration.schedules import ScheduleRequest
from portico.orchestration.webhooks import EndpointRequest

_DESCRIPTION = """Portico runs LLM agents: one request in, one response out, every step recorded.

**Authentication.** Send `Authorization: Bearer KEY` with an API key (`ptk_...`) or a token of the configured issuer.
A service without authentication needs neither. 401: it is not valid; 403: the caller lacks a permission.
With `can_act_for` the headers `portico-user` and `portico-channel` name the user and the channel of a request.

**Retries.** A refusal is a problem document [RFC 9457] with a stable `code`; `GET /v1/errors` lists them. Send a
request again if the response has `x-should-retry: true`, after `Retry-After` seconds. With an `Idempotency-Key` a
request that was sent again gets the first response, and nothing runs twice.

**Streams.** `Accept: text/event-stream` at `POST /v1/execute` gives the events of the execution as they happen; the
last one has the response. If the connection breaks, read on at `GET /v1/executions/{request_id}/events` with
`Last-Event-ID`.

**MCP.** With `[mcp]` the agents and flows are tools of the Model Context Protocol at `/mcp`, with the same keys and
rights. The protocol describes itself, so that this document does not.
"""
_SERVERS: Final[tuple[Mapping[str, str], ...]] = (
    {"url": "/", "description": "The service that this description comes from."},
    {"url": "http://127.0.0.1:8080", "description": "A service on this machine, with the default settings."},
)
_REQUESTS: Final = (
    SystemRequest,
    ResumeRequest,
    ForkRequest,
    SessionChanges,
    DocumentContent,
    MemoryQuery,
    KeyRequest,
    CredentialRequest,
    ScheduleRequest,
    EndpointRequest,
    EmbeddingRequest,
    Extension,
)
_ACCESS_FAILURES: Final = (Code.ACCESS_UNAUTHENTICATED, Code.ACCESS_UNAVAILABLE, Code.ACCESS_DENIED)
_EVERY_FAILURE: Final = (Code.REQUEST_INVALID, Code.REQUEST_OVERLOADED, Code.ORCHESTRATION_INVALID_TRANSITION)
"""Refusals before a request reaches its route (a foreign Host, too many connections), and internal errors."""
_OF_FASTAPI: Final = ("HTTPValidationError", "ValidationError")
_SENT_WHOLE: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "FinalAnswer": frozenset(),
        "FlowSnapshot": frozenset(),
        "PlanReport": frozenset(),
        "Quote": frozenset(),
        "Readiness": frozenset(),
        "ResponseMetadata": frozenset({"client", "deployment", "kept_by", "left_out", "sources"}),
        "SessionView": frozenset(),
        "StepReport": frozenset(),
        "SystemError": frozenset(),
        "SystemResponse": frozenset({"client_calls", "reasoning"}),
        "TokenUsage": frozenset(),
        "ToolCallMade": frozenset({"asked_arguments", "client", "decision", "edited"}),
        "ValidationResult": frozenset(),
        "VoteReport": frozenset(),
    }
)
"""Schemas of responses whose fields are all sent, each with those that may be absent."""
_HEADERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
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


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the whole description, with sorted keys, so that equal code gives equal text."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=_DESCRIPTION,
        tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        license_info={"name": "Apache-2.0"},
        servers=[dict(each) for each in _SERVERS],
        routes=app.routes,
    )
    components = document["components"]
    components["schemas"] |= _added_schemas()
    for operation in _operations(document):
        _add_failures(operation)
        _strip_null(operation.get("parameters", ()))
    document = _renamed(document)
    components = document["components"]
    for name in _OF_FASTAPI:
        components["schemas"].pop(name, None)
    for name, schema in components["schemas"].items():
        _keep_to_rules(name, schema)
    components["headers"] = {name: _header(name) for name in _HEADERS}
    add_examples(document)
    ordered: dict[str, Any] = json.loads(json.dumps(document, sort_keys=True))
    return ordered


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


def _added_schemas() -> dict[str, Any]:
    """Return the schemas of request bodies, events and problem documents."""
    adapters: list[Any] = [(model.__name__, "validation", TypeAdapter(model)) for model in _REQUESTS]
    shown: tuple[type[Any], ...] = (*EVENT_TYPES, Problem, SuspensionChange, RemovedExecution, ListReady)
    adapters += [(kind.__name__, "serialization", TypeAdapter(kind)) for kind in shown]
    schemas: dict[str, Any] = TypeAdapter.json_schemas(adapters, ref_template=REF)[1]["$defs"]
    for kind in EVENT_TYPES:
        schemas[kind.__name__] = _event_schema(kind, schemas[kind.__name__])
    schemas["ExecutionEvent"] = {
        "description": "One event, as the `data` of a server-sent event.",
        "oneOf": [schema_ref(kind.__name__) for kind in EVENT_TYPES],
        "discriminator": {
            "propertyName": "type",
            "mapping": {kind.type: REF.format(model=kind.__name__) for kind in EVENT_TYPES},
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


def _renamed(document: dict[str, Any]) -> dict[str, Any]:
    schemas: dict[str, Any] = document["components"]["schemas"]
    prefix = REF.format(model="")

    def rename(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: rename(each) for name, each in part.items()}
        if isinstance(part, list):
            return [rename(each) for each in part]
        if isinstance(part, str) and part.startswith(prefix):
            return REF.format(model=public_name(part.removeprefix(prefix)))
        return part

    document["components"]["schemas"] = {public_name(name): schema for name, schema in schemas.items()}
    renamed: dict[str, Any] = rename(document)
    return renamed


def _keep_to_rules(name: str, schema: dict[str, Any]) -> None:
    """Give the schema its name as title, drop what generators misread, and require what is always sent."""
    for part in _parts(schema):
        part.pop("title", None)
        if "default" in part:
            _say_default(part, part.pop("default"))
    schema["title"] = name
    if name in _SENT_WHOLE:
        schema["required"] = [each for each in schema["properties"] if each not in _SENT_WHOLE[name]]


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and the schemas in it."""
    yield schema
    for word in ("properties", "$defs"):
        for each in schema.get(word, {}).values():
            yield from _parts(each)
    for word in ("items", "additionalProperties", "prefixItems", "anyOf", "oneOf", "allOf"):
        inner = schema.get(word, ())
        for each in inner if isinstance(inner, list) else [inner]:
            if isinstance(each, dict):
                yield from _parts(each)


def _say_default(schema: dict[str, Any], default: Any) -> None:
    """Say in words what absence means, where that is a value."""
    if default is None or default in ([], {}, "") or isinstance(default, dict):
        return
    said = f"Default: {json.dumps(default) if not isinstance(default, str) else f'`{default}`'}."
    schema["description"] = f"{schema['description']} {said}" if "description" in schema else said


def _strip_null(parameters: Any) -> None:
    """Take null from the types of parameters, which have no way to send it."""
    for parameter in parameters:
        schema = parameter["schema"]
        choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        if len(choices) == 1:
            del schema["anyOf"]
            parameter["schema"] = {**choices[0], **schema}
        parameter["schema"].pop("title", None)


def _add_failures(operation: dict[str, Any]) -> None:
    """Add the refusals that every route has, those of one that authenticates its callers, and common headers."""
    responses = operation["responses"]
    if _OF_FASTAPI[0] in json.dumps(responses.get("422", {})):
        del responses["422"]
    codes = (*_EVERY_FAILURE, *(_ACCESS_FAILURES if "security" in operation else ()))
    for status, failure in failures(*codes).items():
        if status == 422 and "security" not in operation:
            continue
        known = responses.setdefault(str(status), failure)
        missing = [code for code in failure["description"].split(", ") if code not in known["description"]]
        if known is not failure:
            known["description"] = ", ".join((known["description"], *missing))
            known.setdefault("content", {}).setdefault(PROBLEM_TYPE, {"schema": schema_ref("Problem")})
    _add_common_headers(responses)


def _add_common_headers(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        names = ["X-Request-Id", "traceparent"]
        if status == "429":
            names += ["RateLimit-Policy", "RateLimit"]
        if PROBLEM_TYPE in response.get("content", {}):
            names += ["Retry-After", "x-should-retry", "Allow", "WWW-Authenticate"]
        response["headers"] = header_refs(*names) | response.get("headers", {})


def _header(name: str) -> dict[str, Any]:
    description, kind = _HEADERS[name]
    return {"description": description, "schema": {"type": kind}}
