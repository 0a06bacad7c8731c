"""Operations of the API that are one call each, and lists; both clients bind them as methods."""

from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import quote as quoted

from portico_client.core import Call, Operation, Pages, RetryPolicy, execute_call, execution_path, fetch
from portico_client.types import (
    AgentTrace,
    DocumentContent,
    DocumentSummary,
    DocumentView,
    ExecutionSummary,
    ExecutionView,
    MemoryQuery,
    MemorySearchView,
    Message,
    OpenSuspension,
    Quote,
    ReplayReport,
    SessionChanges,
    SessionView,
    StepSummary,
    StepView,
    SystemRequest,
    UsageView,
)

Filter = str | int | list[str]


def request(
    policy: RetryPolicy, method: str, path: str, *, query: Mapping[str, Filter] | None = None, body: Any = None
) -> Operation[Any]:
    """Return the JSON that any route answers, None without a body."""
    return fetch(policy, Call(method.upper(), path, _query(query or {}), body=body))


def cancel(policy: RetryPolicy, request_id: str) -> Operation[ExecutionView]:
    """Cancel an execution. One that has ended stays as it is."""
    return fetch(policy, Call("POST", execution_path(request_id, "/cancel")))


def delete(policy: RetryPolicy, request_id: str, *, forks: bool = False) -> Operation[ExecutionView | None]:
    """Delete an execution, and with `forks` those that it is the origin of."""
    return fetch(policy, Call("DELETE", execution_path(request_id), _forks(forks)))


def replay(policy: RetryPolicy, request_id: str) -> Operation[ReplayReport]:
    """Run the record of an execution again, offline."""
    return fetch(policy, Call("POST", execution_path(request_id, "/replay")))


def quote(policy: RetryPolicy, text: str | None = None, /, **body: Unpack[SystemRequest]) -> Operation[Quote]:
    """Return the bounds of a request, which does not run."""
    return fetch(policy, Call("POST", "/v1/quote", body=execute_call(text, {"store": False, **body}).body))


def trace(policy: RetryPolicy, request_id: str) -> Operation[AgentTrace]:
    """Return the summary of an execution."""
    return fetch(policy, Call("GET", execution_path(request_id, "/trace")))


def get_input(policy: RetryPolicy, request_id: str) -> Operation[SystemRequest]:
    """Return the request of an execution."""
    return fetch(policy, Call("GET", execution_path(request_id, "/input")))


def list_steps(
    request_id: str, limit: int = 100, *, view: str = "full", key: str | None = None
) -> Pages[StepView | StepSummary]:
    """Iterate over the steps of an execution."""
    return _pages(execution_path(request_id, "/steps"), limit, {"view": view, **({} if key is None else {"key": key})})


def list_executions(limit: int = 100, **filters: Filter) -> Pages[ExecutionView | ExecutionSummary]:
    """Iterate over executions, newest first; the filters are the parameters of `GET /v1/executions`."""
    return _pages("/v1/executions", limit, filters)


def list_suspensions(limit: int = 100, **filters: Filter) -> Pages[OpenSuspension]:
    """Iterate over open suspensions; the filters are the parameters of `GET /v1/suspensions`."""
    return _pages("/v1/suspensions", limit, filters)


def list_sessions(limit: int = 100) -> Pages[SessionView]:
    """Iterate over sessions."""
    return _pages("/v1/sessions", limit, {})


def list_messages(session_id: str, limit: int = 100) -> Pages[Message]:
    """Iterate over the messages of a session."""
    return _pages(_path("sessions", session_id) + "/messages", limit, {})


def get_session(policy: RetryPolicy, session_id: str) -> Operation[SessionView]:
    """Return a session."""
    return fetch(policy, Call("GET", _path("sessions", session_id)))


def update_session(policy: RetryPolicy, session_id: str, **changes: Unpack[SessionChanges]) -> Operation[SessionView]:
    """Change a session."""
    return fetch(policy, Call("PATCH", _path("sessions", session_id), body=changes))


def delete_session(policy: RetryPolicy, session_id: str, *, forks: bool = False) -> Operation[None]:
    """Delete a session with its executions."""
    return fetch(policy, Call("DELETE", _path("sessions", session_id), _forks(forks)))


def list_documents(limit: int = 100) -> Pages[DocumentSummary]:
    """Iterate over the documents of the memory."""
    return _pages("/v1/memory", limit, {})


def get_document(policy: RetryPolicy, document_id: str) -> Operation[DocumentView]:
    """Return a document."""
    return fetch(policy, Call("GET", _path("memory", document_id)))


def put_document(policy: RetryPolicy, document_id: str, **content: Unpack[DocumentContent]) -> Operation[DocumentView]:
    """Write a document."""
    return fetch(policy, Call("PUT", _path("memory", document_id), body=content))


def delete_document(policy: RetryPolicy, document_id: str) -> Operation[None]:
    """Delete a document."""
    return fetch(policy, Call("DELETE", _path("memory", document_id)))


def search_memory(policy: RetryPolicy, **query: Unpack[MemoryQuery]) -> Operation[MemorySearchView]:
    """Return the parts of documents that fit a query."""
    return fetch(policy, Call("POST", "/v1/memory/search", body=query))


def catalogue(policy: RetryPolicy, kind: str) -> Operation[list[Any]]:
    """Return what is configured of a kind: `agents`, `engines`, `flows`, `models`, `prompts`, `skills`, `tools` …"""
    listed = yield from fetch(policy, Call("GET", f"/v1/{quoted(kind, safe='')}"))
    found: list[Any] = listed["data"]
    return found


def usage(policy: RetryPolicy, /, **filters: Filter) -> Operation[list[UsageView]]:
    """Return what was used; the filters are the parameters of `GET /v1/usage`."""
    listed = yield from fetch(policy, Call("GET", "/v1/usage", _query(filters)))
    found: list[UsageView] = listed["data"]
    return found


def _pages(path: str, limit: int, filters: Mapping[str, Filter]) -> Pages[Any]:
    return Pages(Call("GET", path, {"limit": str(limit), **_query(filters)}))


def _path(kind: str, name: str) -> str:
    return f"/v1/{kind}/{quoted(name, safe='')}"


def _forks(forks: bool) -> dict[str, str]:  # noqa: FBT001 - the name of the parameter says it
    return {"forks": "delete"} if forks else {}


def _query(values: Mapping[str, Filter]) -> dict[str, str]:
    return {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in values.items()}
