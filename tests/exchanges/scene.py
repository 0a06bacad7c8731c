"""A scene: the requests that are sent to one service, one after the other, and what happens between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from portico.domain.access.limits import NO_LIMITS, AccessLimits

EVENTS: Mapping[str, str] = {"Accept": "text/event-stream"}
ASYNC: Mapping[str, str] = {"Prefer": "respond-async"}


@dataclass(frozen=True)
class Send:
    """A request; its name is that of the execution, unless the body names another."""

    name: str
    body: Any = None
    """A JSON value, or bytes that are sent as they are."""
    path: str = "/v1/execute"
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    """The key that sends it."""


@dataclass(frozen=True)
class MakeKey:
    """A key that is made while the service runs."""

    name: str
    limits: AccessLimits = NO_LIMITS
    permissions: Sequence[str] | None = None
    user: str = "ann"


@dataclass(frozen=True)
class Wait:
    """A wait until nothing runs any more."""


@dataclass(frozen=True)
class Restart:
    """The end of the service while executions run, and its start on the same database."""


Act: TypeAlias = Send | MakeKey | Wait | Restart


@dataclass(frozen=True)
class Scene:
    """A service with its configuration, in which `{folder}` is that of the files, and the acts in order."""

    name: str
    acts: Sequence[Act]
    tables: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    has_marks: bool = False
    """True if models read documents, in tags that are different in each execution."""


def chat(name: str, text: str = "Hello", *, headers: Mapping[str, str] | None = None, **fields: Any) -> Send:
    """Return a request with one user message; a field that is None is left out."""
    return execute(name, headers=headers, **{"messages": [{"role": "user", "content": text}], **fields})


def execute(name: str, *, headers: Mapping[str, str] | None = None, key: str | None = None, **fields: Any) -> Send:
    """Return a request to execute that has the name of the exchange as its id."""
    body = {"request_id": name, **fields}
    return Send(
        name, {field: value for field, value in body.items() if value is not None}, headers=headers or {}, key=key
    )


def get(name: str, path: str, **more: Any) -> Send:
    """Return a request for something."""
    return Send(name, path=path, method="GET", **more)


def on(execution: str, command: str, name: str, body: Any = None, **more: Any) -> Send:
    """Return a command for an execution: resume, cancel, fork or replay."""
    return Send(name, body, f"/v1/executions/{execution}/{command}", **more)
