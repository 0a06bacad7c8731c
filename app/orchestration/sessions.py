"""Sessions: conversations that outlive their executions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.contract.constrained_types import Name
from app.domain.contract.messages import Message
from app.domain.failures import Code, RequestFailure
from app.domain.ids import SessionId, TenantId
from app.orchestration.execution.environment import Environment
from app.orchestration.runtime.registry import LocalExecutions
from app.ports.storage import StoredSession

MAX_DETAIL_BYTES = 65_536
"""Of what a client keeps with a session."""


class SessionView(BaseModel):
    """A conversation."""

    session_id: SessionId = Field(description="The session's id.")
    created_at: datetime = Field(description="When its first turn began.")
    updated_at: datetime = Field(description="When a turn began or ended last.")
    messages: int = Field(description="How many messages it holds.")
    busy: bool = Field(description="Whether a turn runs, or is suspended.")
    model: str | None = Field(None, description="What its requests ask when they name no model.")
    preferences: JsonValue = Field(None, description="What the client keeps with it.")
    state: JsonValue = Field(None, description="What else the client keeps with it.")


class SessionChanges(BaseModel):
    """What is to be changed of a session; null drops it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines.")
    preferences: JsonValue = Field(None, description="What the client keeps with it.")
    state: JsonValue = Field(None, description="What else the client keeps with it.")


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Some sessions, the one spoken in last first; `next` is what the page after this begins after."""

    sessions: list[SessionView]
    next: str | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, the oldest first; `next` is the number of the last, None when there are no more."""

    messages: Sequence[Message]
    next: int | None


class Sessions:
    """What can be asked of sessions. Another tenant's does not exist.

    Raises: RequestFailure (REQUEST_NOT_FOUND) in everything that names one, StorageFailure.
    """

    def __init__(self, environment: Environment, local: LocalExecutions) -> None:
        self._environment = environment
        self._local = local

    async def page(self, tenant: TenantId, *, after: str | None, limit: int) -> SessionPage:
        """A page of them."""
        page = await self._environment.conversations.sessions(tenant, after=after, limit=limit)
        return SessionPage([_view(each) for each in page.items], page.next)

    async def show(self, tenant: TenantId, session_id: SessionId) -> SessionView:
        """As it stands."""
        return _view(_known(await self._environment.conversations.session(tenant, session_id)))

    async def update(self, tenant: TenantId, session_id: SessionId, changes: SessionChanges) -> SessionView:
        """Changes what was given.

        Raises: RequestFailure (REQUEST_INVALID) for a model that is not known, or too much to keep.
        """
        if changes.model is not None and not self._environment.catalogue.has(changes.model):
            raise _invalid("model", "must be a name from GET /v1/engines")
        given = changes.model_dump(include=changes.model_fields_set)
        for field in ("preferences", "state"):
            if len(orjson.dumps(given.get(field))) > MAX_DETAIL_BYTES:
                raise _invalid(field, f"must be at most {MAX_DETAIL_BYTES} bytes")
        return _view(_known(await self._environment.conversations.update(tenant, session_id, given)))

    async def messages(self, tenant: TenantId, session_id: SessionId, *, after: int, limit: int) -> MessagePage:
        """Its messages behind that number."""
        session = _known(await self._environment.conversations.session(tenant, session_id))
        found = await self._environment.conversations.messages(tenant, session_id, after=after, limit=limit)
        last = after + len(found)
        return MessagePage(found, last if found and last < session.message_count else None)

    async def delete(self, tenant: TenantId, session_id: SessionId) -> None:
        """Removes it, its messages, and all that is kept of its executions, once what runs here in it was stopped."""
        stopping = self._local.in_session(tenant, session_id)
        for running in stopping:
            running.stop("its session was deleted")
        for running in stopping:
            ended = anyio.Event()
            running.handle.add_done_callback(ended.set)
            await ended.wait()
        if not await self._environment.conversations.delete(tenant, session_id):
            raise _unknown()


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


def model_of(session: StoredSession) -> str | None:
    """What the session's requests ask when they name no model."""
    model = session.details.get("model")
    return model if isinstance(model, str) else None


def _known(session: StoredSession | None) -> StoredSession:
    if session is None:
        raise _unknown()
    return session


def _unknown() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, "there is no session of that id", condition="path")


def _invalid(field: str, what: str) -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, f"{field} {what}", {"errors": [{"field": field, "message": what}]})
