"""Sessions: conversations that outlive their executions, and the commands on them."""

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.contract.constrained_types import Name
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints, SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.field_errors import invalid_fields
from portico.domain.ids import SessionId
from portico.domain.value import value
from portico.orchestration.execution.branch_settings import merge_hints
from portico.orchestration.execution.environment import Environment
from portico.orchestration.files import Files
from portico.orchestration.redaction import redacted_session, sees_all
from portico.orchestration.rights import denied, require
from portico.ports.storage import ExecutionStore, StoredSession

MAX_DETAIL_BYTES = 65_536
"""Largest `preferences` or `state` of a session, as JSON."""
MAX_INSTRUCTIONS = 2_000
"""Number of characters of a session's instructions."""


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


class SessionPreferences(BaseModel):
    """The preferences that reach the requests of a session. The client may store others beside them."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    hints: ExecutionHints | None = None
    instructions: str | None = Field(None, min_length=1, max_length=MAX_INSTRUCTIONS)


_NO_PREFERENCES = SessionPreferences()
_PREFERENCES = (
    "A value that the client stores with the session. Of an object, `hints` are used by requests that have none of"
    f" their own, and `instructions`, a text of at most {MAX_INSTRUCTIONS:,} characters, follow the system prompt."
)


class SessionChanges(BaseModel):
    """Changes to a session; null removes a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="A route or engine name from GET /v1/engines.")
    preferences: JsonValue = Field(None, description=_PREFERENCES)
    state: JsonValue = Field(None, description="Another value that the client stores with the session.")


@value
class SessionPage:
    """A page of sessions, most recently updated first; `next` is the cursor of the following page, None on the last."""

    sessions: list[SessionView]
    next: str | None


@value
class MessagePage:
    """A page of messages, oldest first; `next` is the number of the last one, None if no more follow."""

    messages: Sequence[Message]
    next: int | None


class Sessions:
    """Queries and commands for sessions, by principal, as in `Executions`.

    Raises: RequestFailure (REQUEST_NOT_FOUND) in every method that names one, StorageFailure.
    """

    def __init__(self, environment: Environment, executions: ExecutionStore) -> None:
        self.files = Files(environment)
        """The files of sessions."""
        self._environment = environment
        self._executions = executions

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
        require(principal.permissions, Permission.SEND_MESSAGES, "change sessions")
        catalogue = self._environment.catalogue
        if changes.model is not None and not catalogue.is_permitted(changes.model, principal.permissions):
            raise denied(f"model:{changes.model}", "use this model")
        if changes.model is not None and not catalogue.has(changes.model):
            raise invalid_request(("model", "must be a name from GET /v1/engines"))
        given = changes.model_dump(include=changes.model_fields_set)
        for field in ("preferences", "state"):
            if len(orjson.dumps(given.get(field))) > MAX_DETAIL_BYTES:
                raise invalid_request((field, f"must be at most {MAX_DETAIL_BYTES} bytes"))
        _check_preferences(given.get("preferences"))
        session = await self._environment.conversations.update(principal.own, session_id, given)
        if session is None:
            raise _not_found()
        return _view(session)

    async def messages(self, principal: Principal, session_id: SessionId, *, after: int, limit: int) -> MessagePage:
        """Return a page of the messages after that number."""
        session = await self._existing(principal.readable, session_id)
        found = await self._environment.conversations.messages(principal.readable, session_id, after=after, limit=limit)
        last = after + len(found)
        if not sees_all(principal):
            found = redacted_session(found, await self._responses(principal, session_id, found, after))
        return MessagePage(found, last if found and last < session.message_count else None)

    async def _responses(
        self, principal: Principal, session_id: SessionId, page: Sequence[Message], after: int
    ) -> Sequence[SystemResponse]:
        """Return the responses of the executions that added the messages of the page, if any of these has calls."""
        if not any(message.tool_calls for message in page):
            return ()
        scope = principal.readable
        authors = await self._environment.conversations.authors(scope, session_id, after=after, limit=len(page))
        found = await self._executions.find_all(scope.tenant, authors)
        return [each.status.response for each in found if each.status.response is not None]

    async def _existing(self, scope: AccessScope, session_id: SessionId) -> StoredSession:
        session = await self._environment.conversations.session(scope, session_id)
        if session is None:
            raise _not_found()
        return session


def with_session(request: SystemRequest, session: StoredSession) -> tuple[SystemRequest, str | None]:
    """Return the request with its session's model and hints where it has none, and the session's instructions."""
    model = request.model or model_of(session)
    stored = session.details.get("preferences")
    preferences = SessionPreferences.model_validate(stored) if isinstance(stored, dict) else _NO_PREFERENCES
    if model is not None or preferences.hints is not None:
        hints = merge_hints(preferences.hints or ExecutionHints(), request.hints)
        request = request.model_copy(update={"model": model, "hints": hints})
    return request, preferences.instructions


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


def _check_preferences(preferences: JsonValue) -> None:
    """Raise RequestFailure (REQUEST_INVALID) if the hints or the instructions among the preferences are malformed."""
    if isinstance(preferences, dict):
        try:
            SessionPreferences.model_validate(preferences)
        except ValidationError as error:
            first = invalid_fields(error.errors(include_url=False, include_input=False))[0]
            raise invalid_request((".".join(("preferences", *map(str, first.path))), first.message)) from None


def _not_found() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, "no session has this id", condition="path")
