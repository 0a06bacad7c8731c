"""Sessions: conversations that outlive their executions, and the commands on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.access import AccessScope, Principal
from app.domain.contract.constrained_types import Name
from app.domain.contract.messages import Message
from app.domain.failures import Code, RequestFailure
from app.domain.ids import SessionId
from app.orchestration.execution.environment import Environment
from app.ports.storage import StoredSession

MAX_DETAIL_BYTES = 65_536
"""Largest `preferences` or `state` of a session, as JSON."""


class SessionView(BaseModel):
    """A conversation."""

    session_id: SessionId = Field(description="The session's id.")
    created_at: datetime = Field(description="The time at which its first turn began.")
    updated_at: datetime = Field(description="The time at which a turn last began or ended.")
    messages: int = Field(description="Number of messages.")
    busy: bool = Field(description="True while a turn runs or is suspended.")
    model: str | None = Field(None, description="The model of requests that name none.")
    preferences: JsonValue = Field(None, description="A value that the client stores with the session.")
    state: JsonValue = Field(None, description="Another value that the client stores with the session.")


class SessionChanges(BaseModel):
    """Changes to a session; null removes a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines.")
    preferences: JsonValue = Field(None, description="A value that the client stores with the session.")
    state: JsonValue = Field(None, description="Another value that the client stores with the session.")


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of sessions, most recently updated first; `next` is the cursor of the following page, None on the last."""

    sessions: list[SessionView]
    next: str | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page of messages, oldest first; `next` is the number of the last one, None if no more follow."""

    messages: Sequence[Message]
    next: int | None


class Sessions:
    """Queries and commands for sessions, by principal, as in `Executions`.

    Raises: RequestFailure (REQUEST_NOT_FOUND) in every method that names one, StorageFailure.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    async def page(self, principal: Principal, *, after: str | None, limit: int) -> SessionPage:
        """Return a page of sessions."""
        page = await self._environment.conversations.sessions(principal.readable, after=after, limit=limit)
        return SessionPage([_view(each) for each in page.items], page.next)

    async def show(self, principal: Principal, session_id: SessionId) -> SessionView:
        """Return the session."""
        return _view(await self._existing(principal.readable, session_id))

    async def require(self, scope: AccessScope, session_id: SessionId) -> None:
        """Raise RequestFailure (REQUEST_NOT_FOUND) if there is no such session in the scope."""
        await self._existing(scope, session_id)

    async def update(self, principal: Principal, session_id: SessionId, changes: SessionChanges) -> SessionView:
        """Change the given fields and return the session.

        Raises: RequestFailure (REQUEST_INVALID) for an unknown model or a value that is too large.
        """
        if changes.model is not None and not self._environment.catalogue.has(changes.model):
            raise _invalid("model", "must be a name from GET /v1/engines")
        given = changes.model_dump(include=changes.model_fields_set)
        for field in ("preferences", "state"):
            if len(orjson.dumps(given.get(field))) > MAX_DETAIL_BYTES:
                raise _invalid(field, f"must be at most {MAX_DETAIL_BYTES} bytes")
        session = await self._environment.conversations.update(principal.own, session_id, given)
        if session is None:
            raise _not_found()
        return _view(session)

    async def messages(self, principal: Principal, session_id: SessionId, *, after: int, limit: int) -> MessagePage:
        """Return a page of the messages after that number."""
        session = await self._existing(principal.readable, session_id)
        found = await self._environment.conversations.messages(principal.readable, session_id, after=after, limit=limit)
        last = after + len(found)
        return MessagePage(found, last if found and last < session.message_count else None)

    async def _existing(self, scope: AccessScope, session_id: SessionId) -> StoredSession:
        session = await self._environment.conversations.session(scope, session_id)
        if session is None:
            raise _not_found()
        return session


def model_of(session: StoredSession) -> str | None:
    """Return the model of the session's requests that name none."""
    model = session.details.get("model")
    return model if isinstance(model, str) else None


def _view(session: StoredSession) -> SessionView:
    return SessionView(
        session_id=session.session_id,
        created_at=datetime.fromtimestamp(session.created_at, UTC),
        updated_at=datetime.fromtimestamp(session.updated_at, UTC),
        messages=session.message_count,
        busy=session.busy,
        model=model_of(session),
        preferences=session.details.get("preferences"),
        state=session.details.get("state"),
    )


def _not_found() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, "no session has this id", condition="path")


def _invalid(field: str, message: str) -> RequestFailure:
    details = {"errors": [{"field": field, "message": message}]}
    return RequestFailure(Code.REQUEST_INVALID, f"{field} {message}", details)
