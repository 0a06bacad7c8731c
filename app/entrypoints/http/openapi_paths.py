"""The operations of the API description: what each path takes, and every way it can answer."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from app.domain.contract.constrained_types import RequestIdText
from app.domain.failures import TAXONOMY, Code
from app.entrypoints.http.query import (
    AfterEvent,
    ExecutionListQuery,
    MessageListQuery,
    QueryParameters,
    SessionListQuery,
)

Parameter: TypeAlias = dict[str, Any]
REF = "#/components/schemas/{model}"
_LIMITS = (
    "Strict JSON: no duplicate keys, NaN, lone surrogates or unknown fields. Default limits: body 4 MiB, depth 64, "
    "1,000 messages, 128 tools, 20 tool rounds, 32 calls a reply, 600 s. Fields whose feature this version lacks are "
    "refused by name."
)
_BEFORE_INIT = (
    *(Code.REQUEST_INVALID, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA, Code.REQUEST_OVERLOADED),
    *(Code.ACCESS_DENIED, Code.TOOL_NOT_FOUND, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.CONFIG_SCHEMA_REQUIRED),
    *(Code.CONFIG_SCHEMA_INVALID, Code.CONFIG_GRAMMAR_INVALID, Code.CONFIG_GRAMMAR_NOT_FOUND),
    *(Code.STORAGE_UNAVAILABLE, Code.ORCHESTRATION_INVALID_TRANSITION),
)
"""What refuses a request before it is an execution, a bug of ours included."""
_READ = (Code.REQUEST_INVALID, Code.REQUEST_NOT_FOUND, Code.STORAGE_UNAVAILABLE, Code.STORAGE_FULL)
"""What refuses to tell of an execution."""
_JSON, _PROBLEM, _EVENTS = "application/json", "application/problem+json", "text/event-stream"
HEADERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "X-Request-Id": ("The request's id.", "string"),
        "traceparent": ("W3C trace context of the root span.", "string"),
        "Server-Timing": ("Milliseconds: total, upstream, overhead. Not on streams.", "string"),
        "Retry-After": ("Seconds after which trying again may help.", "integer"),
        "x-should-retry": ("Whether sending it again may help.", "boolean"),
        "Location": ("Where the execution is, or the events of it.", "string"),
        "Preference-Applied": ("`respond-async` where it is not waited for.", "string"),
        "Idempotency-Replayed": ("`true` where the answer is that of an earlier request.", "string"),
        "Allow": ("The methods the path has.", "string"),
    }
)


def _id(name: str, description: str) -> Sequence[Parameter]:
    schema = TypeAdapter[str](RequestIdText).json_schema()
    return ({"name": name, "in": "path", "required": True, "description": description, "schema": schema},)


_ID = _id("request_id", "The request's id.")
_SESSION = _id("session_id", "The session's id.")


def paths() -> dict[str, Any]:
    """Every path with its operations."""
    return {
        "/v1/execute": {"post": _execute()},
        "/v1/quote": {"post": _quote()},
        **_executions(),
        **_sessions(),
        **_collections(),
        **_probes(),
    }


def _execute() -> dict[str, Any]:
    key = "The same key with the same body is answered as the first time, with `Idempotency-Replayed: true`."
    asked = _asked()
    return {
        "operationId": "execute",
        "summary": "Run one request",
        "description": "Answers with the response, with the events as they happen for `Accept: text/event-stream`, or "
        "at once for `Prefer: respond-async` or `background`. What a client that leaves means, `on_disconnect` says.",
        **asked,
        "parameters": [*asked["parameters"], _prefer(), _parameter("Idempotency-Key", key, maxLength=255)],
        "responses": _three_forms("The execution completed", "The execution is suspended"),
    }


def _three_forms(completed: str, waits: str) -> dict[str, Any]:
    named = _headers("X-Request-Id", "traceparent", "Server-Timing", "Location", "Idempotency-Replayed")
    return {
        "200": {
            "description": f"{completed}; or its events, the last of which carries the response",
            "headers": named,
            "content": {_JSON: of("SystemResponse"), _EVENTS: of("ExecutionEvent")},
        },
        "202": {
            "description": f"{waits}; or, for a client that does not wait, where it stands",
            "headers": {**named, **_headers("Preference-Applied")},
            "content": {_JSON: {"schema": {"oneOf": [_ref("SystemResponse"), _ref("ExecutionView")]}}},
        },
        **_failures(TAXONOMY, {_JSON: of("SystemResponse"), _PROBLEM: of("Problem")}),
    }


def _executions() -> dict[str, Any]:
    one = "/v1/executions/{request_id}"
    return {
        "/v1/executions": _get(
            "executions", "Executions, the newest first", _page("ExecutionView"), _query(ExecutionListQuery)
        ),
        one: _get("execution", "Where an execution stands", {_JSON: of("ExecutionView")}, _ID),
        f"{one}/events": _log(),
        f"{one}/trace": _get("trace", "What its events tell of it, summed up", {_JSON: of("AgentTrace")}, _ID),
        f"{one}/resume": _resume(),
        f"{one}/cancel": _cancel(),
        f"{one}/fork": _fork(),
        f"{one}/replay": _replay(),
        "/v1/suspensions": _get("suspensions", "All open questions", {_JSON: _collection("OpenSuspensionView")}, ()),
    }


def _sessions() -> dict[str, Any]:
    one = "/v1/sessions/{session_id}"
    listed = _page("SessionView"), _query(SessionListQuery)
    said = _page("Message", "integer"), (*_SESSION, *_query(MessageListQuery))
    return {
        "/v1/sessions": _get("sessions", "Sessions, the one spoken in last first", *listed),
        one: {**_get("session", "One session", {_JSON: of("SessionView")}, _SESSION), **_change(), **_delete()},
        f"{one}/messages": _get("messages", "What was said in a session, the oldest first", *said),
    }


def _change() -> dict[str, Any]:
    answers = {"200": _said("The session as it is now", {_JSON: of("SessionView")})}
    codes = (*_READ, Code.REQUEST_TOO_LARGE, Code.REQUEST_UNSUPPORTED_MEDIA)
    operation = _operation("change_session", "Change what is kept with a session", answers, codes)
    body = {"required": True, "content": {_JSON: of("SessionChanges")}}
    return {"patch": operation | {"parameters": [*_SESSION], "requestBody": body}}


def _delete() -> dict[str, Any]:
    answers = {"204": _said("It is gone, with its messages, its executions and their events")}
    operation = _operation("delete_session", "Delete a session; what runs in it is stopped", answers, _READ)
    return {"delete": operation | {"parameters": [*_SESSION]}}


def _get(name: str, summary: str, content: dict[str, Any], parameters: Sequence[Parameter]) -> dict[str, Any]:
    return {"get": _operation(name, summary, {"200": _said(summary, content)}, _READ) | {"parameters": [*parameters]}}


def _log() -> dict[str, Any]:
    start = _parameter("Last-Event-ID", "The number of the last event that was read.", type="integer")
    answers = {
        "200": _said("The events from there on, live until the execution ends", {_EVENTS: of("ExecutionEvent")}),
        "204": _said("It is over, and nothing is left"),
    }
    operation = _operation("events", "The events of an execution, also those that are still to come", answers, _READ)
    return {"get": operation | {"parameters": [*_ID, start, *_query(AfterEvent)]}}


def _resume() -> dict[str, Any]:
    once = (
        "Once. The execution goes on when no question is left open; its answer takes the same three forms as that of "
    )
    operation = _following("resume", "ResumeRequest", "The execution completed", "Other questions are open")
    about = {
        "summary": "Answer one open question",
        "description": f"{once}execute. A client that leaves stops nothing.",
    }
    return {"post": operation | about}


def _fork() -> dict[str, Any]:
    kept = "The first `from_step` top-level steps are kept as they were recorded and not done again; from there on the "
    told = "overrides hold. The new execution is journaled, and `caused_by` of its events names this one. With a "
    heard = "`session_id` it takes a turn there: the session hears what it said, it hears nothing of the session."
    operation = _following("fork", "ForkRequest", "The new execution completed", "The new execution is suspended")
    return {"post": operation | {"summary": "Go on from one of its steps anew", "description": f"{kept}{told}{heard}"}}


def _following(name: str, asked: str, completed: str, waits: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "parameters": [*_ID, _prefer()],
        "requestBody": {"required": True, "content": {_JSON: of(asked)}},
        "responses": _three_forms(completed, waits),
    }


def _cancel() -> dict[str, Any]:
    shown = {_JSON: of("ExecutionView")}
    answers = {"200": _said("It had ended already", shown), "202": _said("It is stopping", shown)}
    return {"post": _operation("cancel", "Stop an execution", answers, _READ) | {"parameters": [*_ID]}}


def _replay() -> dict[str, Any]:
    answers = {"200": _said("What the replay found", {_JSON: of("ReplayReport")})}
    codes = (*_READ, Code.REQUEST_IN_PROGRESS, Code.STORAGE_SNAPSHOT_INVALID)
    return {"post": _operation("replay", "Run a record again, offline", answers, codes) | {"parameters": [*_ID]}}


def _operation(name: str, summary: str, answers: dict[str, Any], codes: Iterable[Code]) -> dict[str, Any]:
    failures = _failures(codes, {_PROBLEM: of("Problem")})
    return {"operationId": name, "summary": summary, "responses": {**answers, **failures}}


def _said(description: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = {"description": description, "headers": _headers("X-Request-Id", "traceparent")}
    return answer if content is None else {**answer, "content": content}


def _page(item: str, place: str = "string") -> dict[str, Any]:
    page = _collection(item)["schema"]
    page["properties"] |= {"has_more": {"type": "boolean"}, "next": {"type": [place, "null"]}}
    page["required"] = ["data", "has_more", "next"]
    return {_JSON: {"schema": page}}


def _query(model: type[QueryParameters]) -> list[Parameter]:
    """The parameters of a query; one that may be absent is never null on the wire."""
    schema = model.model_json_schema(ref_template=REF)
    return [
        {"name": name, "in": "query", "required": False, "description": field["description"], "schema": _present(field)}
        for name, field in schema["properties"].items()
    ]


def _present(field: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
    found = {key: value for key, value in kinds[0].items() if key not in {"title", "description"}}
    return _ref("LifecycleState") if found == _ref("State") else found


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
                "content": {_JSON: of("Quote")},
            },
            **_failures(_BEFORE_INIT, {_PROBLEM: of("Problem")}),
        },
    }


def _asked() -> dict[str, Any]:
    """What a route that takes a SystemRequest is sent."""
    return {
        "parameters": [_parameter("traceparent", "W3C trace context to continue.")],
        "requestBody": {"required": True, "description": _LIMITS, "content": {_JSON: of("SystemRequest")}},
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
    ready = _read("readyz", "Whether it takes requests", _JSON, of("Readiness"))
    ready["get"]["responses"]["503"] = {**ready["get"]["responses"]["200"], "description": "Not ready, and why"}
    text = {"schema": {"type": "string"}}
    return {
        "/livez": _read("livez", "Whether the process answers", _JSON, of("Alive")),
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


def _collection(item: str) -> dict[str, Any]:
    data = {"type": "array", "items": of(item)["schema"]}
    return {"schema": {"type": "object", "properties": {"data": data}, "required": ["data"]}}


def of(model: str) -> dict[str, Any]:
    """Content of that model."""
    return {"schema": _ref(model)}


def _ref(model: str) -> dict[str, Any]:
    return {"$ref": REF.format(model=model)}


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def header(name: str) -> dict[str, Any]:
    """The header of that name."""
    description, kind = HEADERS[name]
    return {"description": description, "schema": {"type": kind}}


def _prefer() -> Parameter:
    return _parameter("Prefer", "`respond-async`: do not wait for the execution. An event stream wins over it.")


def _parameter(name: str, description: str, **schema: Any) -> Parameter:
    shape = {"type": "string", **schema}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": shape}
