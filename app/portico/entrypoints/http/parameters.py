"""Parameters of the routes: ids in the path, query strings, headers and cursors."""

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import Depends, Header, Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from starlette.requests import Request
from starlette.types import Scope

from portico.domain.access.principal import Principal
from portico.domain.contract.constrained_types import (
    ChannelText,
    DocumentIdText,
    GrantIdText,
    KeyIdText,
    RequestIdText,
    ScheduleNameText,
    SessionIdText,
    WebhookName,
)
from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code, RequestFailure
from portico.domain.fingerprints import digest
from portico.domain.ids import DocumentId, IdempotencyKey, RequestId, SessionId, UserId
from portico.domain.journal.events import EVENT_TYPES
from portico.domain.lifecycle import Mode, State
from portico.domain.webhooks import DeliveryState
from portico.entrypoints.http.context import Context
from portico.orchestration.facade import EventSelection, StatisticsSelection, StepSelection
from portico.ports.limits import UsageGroup
from portico.ports.outbox import DeliveryFilter
from portico.ports.storage import ExecutionFilter, SuspensionFilter

MAX_PARAMETERS = 32
MAX_METADATA_FILTERS = 8
MAX_TYPES = 16
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000
NOT_FOUND_MESSAGES = MappingProxyType(
    {
        "request_id": "no execution has this id",
        "session_id": "no session has this id",
        "document_id": "no document has this id",
        "public_id": "no key has this id",
        "schedule_name": "no schedule has this name",
        "delivery_id": "no delivery has this id",
        "name": "no endpoint of webhooks has this name",
        "credential_name": "there is no such credential of a tool that you may use",
        "grant_id": "there is no such grant",
    }
)
_REQUEST_ID = TypeAdapter[RequestId](RequestIdText)
_IDEMPOTENCY_KEY = re.compile(rb"[!-~]{1,255}")
_CHECKSUM_DIGITS = 8
_MAX_DIGITS = 15
"""More digits than any number needs, and fewer than a database accepts."""


_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_METADATA = "metadata."
_HALF_A_MICROSECOND = 5e-7
"""Stored times are more precise than shown ones, which are rounded: an execution is found by its own time."""


def _parse_timestamp(given: object) -> object:
    if isinstance(given, str) and not _TIMESTAMP.fullmatch(given):
        raise ValueError("must be a time as in RFC 3339, like 2026-11-22T18:30:00Z; a + is written %2B")
    return given


def _parse_decimal(given: object) -> object:
    if isinstance(given, str) and not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise ValueError("must be a whole number in decimal digits")
    return given


def _require_states(given: str) -> str:
    if not set(given.split(",")) <= {*State}:
        raise ValueError(f"must be one or more of {', '.join(State)}, with commas between them")
    return given


StateNames = Annotated[
    str,
    AfterValidator(_require_states),
    WithJsonSchema({"type": "string", "pattern": "^({0})(,({0}))*$".format("|".join(State))}),
]


def _require_types(given: str) -> str:
    names = given.split(",")
    if len(names) > MAX_TYPES or not set(names) <= {kind.type for kind in EVENT_TYPES}:
        raise ValueError(f"must be one to {MAX_TYPES} types of events, with commas between them")
    return given


TypeNames = Annotated[
    str,
    AfterValidator(_require_types),
    WithJsonSchema({"type": "string", "example": "tool.start,tool.end"}),
]
IdPrefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
Cursor = Annotated[str, StringConstraints(min_length=1, max_length=256)]
PathCursor = Annotated[str, StringConstraints(min_length=1, max_length=1_100)]
NameFilter = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Timestamp = Annotated[AwareDatetime, BeforeValidator(_parse_timestamp)]
DecimalInt = Annotated[int, BeforeValidator(_parse_decimal)]
RequestIdInPath = Annotated[RequestIdText, Path(description="Id of the request.")]
SessionIdInPath = Annotated[SessionIdText, Path(description="Id of the session.")]
DocumentIdInPath = Annotated[DocumentIdText, Path(description="Id of the document.")]
ScheduleNameInPath = Annotated[ScheduleNameText, Path(description="Name of the schedule.")]
KeyIdInPath = Annotated[KeyIdText, Path(description="Public id of the key: the 8 characters behind `ptk_`.")]
DeliveryIdInPath = Annotated[
    str, StringConstraints(pattern=r"^msg_[0-9a-f]{32}$"), Path(description="Id of the delivery.")
]
GrantIdInPath = Annotated[GrantIdText, Path(description="Id of the grant.")]
LastEventId = Annotated[
    DecimalInt | None, Header(alias="Last-Event-ID", description="Number of the last event that the client has read.")
]


CredentialNameInPath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$"), Path(description="Name of the credential.")
]


class QueryParameters(BaseModel):
    """Query parameters of one route. Unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ExecutionListQuery(QueryParameters):
    """Filter, order and page of a list of executions. Parameters of the form `metadata.KEY` are collected."""

    state: StateNames | None = Field(
        None, description="Only executions in one of these states, which are separated by commas."
    )
    q: IdPrefix | None = Field(None, description="Only executions whose request id or session id begins with it.")
    origin: RequestIdText | None = Field(
        None, description="Only forks and continuations of the execution with this id."
    )
    mode: Mode | None = Field(None, description="Only executions of this mode.")
    session_id: SessionIdText | None = Field(None, description="Only executions of this session.")
    agent: NameFilter | None = Field(None, description="Only executions of this agent.")
    channel: ChannelText | None = Field(None, description="Only executions that came by this channel.")
    model: NameFilter | None = Field(
        None, description="Only executions whose last inference asked this model or engine."
    )
    code: Code | None = Field(
        None, description="Only executions whose last error has this code; with `state=ERROR` it has ended them."
    )
    since: Timestamp | None = Field(None, description="Only executions that were created at this time or later.")
    until: Timestamp | None = Field(None, description="Only executions that were created before this time.")
    metadata: Annotated[dict[str, str], Query(include_in_schema=False, max_length=MAX_METADATA_FILTERS)] = {}
    order: Literal["desc", "asc"] = Field("desc", description="`desc`: newest first; `asc`: oldest first.")
    view: Literal["full", "summary"] = Field(
        "full", description="`summary` leaves out the responses and adds tokens, cost and duration."
    )
    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of executions.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")

    @property
    def selection(self) -> ExecutionFilter:
        """The filter for the store."""
        return ExecutionFilter(
            () if self.state is None else tuple(map(State, dict.fromkeys(self.state.split(",")))),
            self.mode,
            self.session_id,
            self.agent,
            self.model,
            self.code,
            since=None if self.since is None else self.since.timestamp() - _HALF_A_MICROSECOND,
            until=None if self.until is None else self.until.timestamp() - _HALF_A_MICROSECOND,
            metadata=tuple(self.metadata.items()),
            prefix=self.q,
            origin=self.origin,
            oldest_first=self.order == "asc",
            channel=self.channel,
        )

    @model_validator(mode="before")
    @classmethod
    def _collect_metadata(cls, given: dict[str, Any]) -> dict[str, Any]:
        metadata = {name.removeprefix(_METADATA): given[name] for name in given if name.startswith(_METADATA)}
        rest = {name: value for name, value in given.items() if not name.startswith(_METADATA)}
        return rest | ({"metadata": metadata} if metadata else {})


class SuspensionListQuery(QueryParameters):
    """Filter and page of a list of open suspensions."""

    session_id: SessionIdText | None = Field(None, description="Only suspensions of executions of this session.")
    request_id: RequestIdText | None = Field(None, description="Only suspensions of this execution.")
    tool: NameFilter | None = Field(
        None, description="Only suspensions of calls of this tool, or with this `tool_id` if none is called."
    )
    kind: SuspensionKind | None = Field(None, description="Only suspensions of this kind.")
    user: NameFilter | None = Field(None, description="Only suspensions of executions of this user.")
    channel: ChannelText | None = Field(None, description="Only suspensions of executions that came by this channel.")
    since: Timestamp | None = Field(None, description="Only suspensions of this time or later.")
    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of suspensions.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")

    @property
    def selection(self) -> SuspensionFilter:
        """The filter for the store."""
        return SuspensionFilter(
            self.session_id,
            self.request_id,
            self.tool,
            self.kind,
            None if self.user is None else UserId(self.user),
            None if self.since is None else self.since.timestamp() - _HALF_A_MICROSECOND,
            self.channel,
        )


class SessionListQuery(QueryParameters):
    """Page of a list of sessions."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of sessions.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")


class DocumentListQuery(QueryParameters):
    """Page of a list of documents."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of documents.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")


class ScheduleListQuery(QueryParameters):
    """Page of a list of schedules."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of schedules.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")


class ScheduleRunsQuery(QueryParameters):
    """Page of a list of runs."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of runs.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")


class CredentialQuery(QueryParameters):
    """Owner of the value of a credential."""

    owner: Literal["user", "tenant"] = Field("user", description="Whose value is meant.")


class FileListQuery(QueryParameters):
    """Page of a list of files."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of files.")
    after: PathCursor | None = Field(None, description="The `next` of the previous page.")


class KeyListQuery(QueryParameters):
    """Page of a list of keys."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of keys.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")


class DeliveryListQuery(QueryParameters):
    """Filter and page of a list of deliveries."""

    state: DeliveryState | None = Field(None, description="Only deliveries in this state.")
    endpoint: WebhookName | None = Field(None, description="Only deliveries to this endpoint.")
    request_id: RequestIdText | None = Field(None, description="Only deliveries about this execution.")
    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of deliveries.")
    after: Cursor | None = Field(None, description="The `next` of the previous page.")

    @property
    def selection(self) -> DeliveryFilter:
        """The filter for the store."""
        return DeliveryFilter(self.state, self.endpoint, self.request_id)


class EngineListQuery(QueryParameters):
    """Extent of a list of engines."""

    view: Literal["health"] | None = Field(
        None, description="`health` adds the last hour of each engine; needs `can_read_metrics`."
    )


class RevocationQuery(QueryParameters):
    """Treatment of executions in a revocation."""

    cancel: bool = Field(False, description="True also stops the stored executions that run or wait under the key.")


class UsageQuery(QueryParameters):
    """Group and time of usage."""

    by: UsageGroup = Field("day", description="Group of the sums.")
    since: Timestamp | None = Field(None, description="Only usage of the hour of this time, or later.")
    until: Timestamp | None = Field(None, description="Only usage before this time, of whole hours.")


class StatisticsQuery(QueryParameters):
    """Executions to count, and the width of a bucket."""

    since: Timestamp | None = Field(
        None, description="Begin of the first bucket, or a time within it. Default: an hour before `until`."
    )
    until: Timestamp | None = Field(
        None, description="End of the last bucket, or a time within it; at most 1,500 buckets. Default: now."
    )
    bucket: Literal["minute", "hour", "day"] = Field("minute", description="Width of a bucket, in UTC.")
    agent: NameFilter | None = Field(None, description="Only executions of this agent.")
    mode: Mode | None = Field(None, description="Only executions of this mode.")
    model: NameFilter | None = Field(
        None, description="Only executions whose last inference asked this model or engine."
    )

    @property
    def selection(self) -> StatisticsSelection:
        """The executions to count."""
        return StatisticsSelection(self.bucket, self.since, self.until, self.agent, self.mode, self.model)


class MessageListQuery(QueryParameters):
    """Page of a list of messages."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of messages.")
    after: DecimalInt = Field(0, description="The `next` of the previous page.")


class StepListQuery(QueryParameters):
    """Selection and page of the steps of an execution."""

    view: Literal["full", "summary"] = Field("full", description="`summary` leaves out `request` and `outcome`.")
    key: NameFilter | None = Field(None, description="Only the step with this key.")
    limit: DecimalInt | None = Field(
        None, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of steps; without it there is no maximum."
    )
    after: DecimalInt = Field(0, description="The `next` of the previous page.")

    @property
    def selection(self) -> StepSelection:
        """The steps to return."""
        return StepSelection(self.key, self.after, self.limit, is_summary=self.view == "summary")


class DeletionQuery(QueryParameters):
    """Treatment of forks in a deletion."""

    forks: Literal["refuse", "delete"] = Field(
        "refuse", description="`refuse` (409) if forks hold copies of the messages; `delete` deletes these forks, too."
    )


class ChangeQuery(QueryParameters):
    """Filter of a live list."""

    session_id: SessionIdText | None = Field(None, description="Only executions and suspensions of this session.")


class EventQuery(QueryParameters):
    """Start and types of a reading of events, and order and length of a page of them."""

    after: DecimalInt | None = Field(
        None,
        description="Only events after this number, with `order=desc` those before it: the `next` of the previous "
        "page. `Last-Event-ID` takes precedence.",
    )
    types: TypeNames | None = Field(
        None, description="Only events of these types, at most 16, which are separated by commas."
    )
    order: Literal["asc", "desc"] = Field("asc", description="Order of a JSON page; `desc`: the last event first.")
    limit: DecimalInt = Field(
        MAX_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Maximum number of events of a JSON page."
    )

    @property
    def type_names(self) -> frozenset[str] | None:
        """The types of the events; None for all."""
        return None if self.types is None else frozenset(self.types.split(","))

    def selection(self, after: int | None) -> EventSelection:
        """Return the page after that event."""
        return EventSelection(self.limit, self.type_names, after, newest_first=self.order == "desc")


async def own_execution(context: Context, request_id: RequestIdInPath) -> RequestId:
    """Return the id in the path if the user has such an execution, before anything else of the request is checked.

    Raises: RequestFailure (REQUEST_NOT_FOUND), as the following functions.
    """
    await context.facade.executions.require(context.principal.own, request_id)
    return request_id


async def answerable_execution(context: Context, request_id: RequestIdInPath) -> RequestId:
    """Return the id in the path if the user has such an execution, or may decide on a call of it."""
    await context.facade.executions.require_answerable(context.principal, request_id)
    return request_id


async def readable_execution(context: Context, request_id: RequestIdInPath) -> RequestId:
    """Return the id in the path if it is one of an execution that the principal may read."""
    await context.facade.executions.require(context.principal.readable, request_id)
    return request_id


async def own_session(context: Context, session_id: SessionIdInPath) -> SessionId:
    """Return the id in the path if the user has such a session."""
    await context.facade.sessions.require(context.principal.own, session_id)
    return session_id


async def readable_session(context: Context, session_id: SessionIdInPath) -> SessionId:
    """Return the id in the path if it is one of a session that the principal may read."""
    await context.facade.sessions.require(context.principal.readable, session_id)
    return session_id


async def own_document(context: Context, document_id: DocumentIdInPath) -> DocumentId:
    """Return the id in the path if the user has such a document of its own."""
    await context.facade.memory.require_own(context.principal, document_id)
    return document_id


async def own_schedule(context: Context, schedule_name: ScheduleNameInPath) -> str:
    """Return the name in the path if the user has such a schedule of its own."""
    await context.service.schedules.require_own(context.principal, schedule_name)
    return schedule_name


async def known_credential(context: Context, credential_name: CredentialNameInPath) -> str:
    """Return the name in the path if it is that of a credential of a tool that the principal may use."""
    context.service.credentials.require_known(context.principal, credential_name)
    return credential_name


async def no_parameters(_: Annotated[QueryParameters, Query()]) -> None:
    """Refuse every query parameter of a route that has none."""


async def readable_query(request: Request) -> None:
    """Check what FastAPI's reading of a query string overlooks.

    Raises: RequestFailure (REQUEST_INVALID) for bad encoding, too many parameters, or one that is given twice.
    """
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode(),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        message = "the query string is malformed"
        raise RequestFailure(Code.REQUEST_INVALID, message, condition="syntax") from None
    if len(dict(pairs)) != len(pairs):
        raise RequestFailure(Code.REQUEST_INVALID, "a query parameter is given twice")


OwnExecution = Annotated[RequestId, Depends(own_execution)]
AnswerableExecution = Annotated[RequestId, Depends(answerable_execution)]
ReadableExecution = Annotated[RequestId, Depends(readable_execution)]
OwnSession = Annotated[SessionId, Depends(own_session)]
ReadableSession = Annotated[SessionId, Depends(readable_session)]
OwnSchedule = Annotated[str, Depends(own_schedule)]
KnownCredential = Annotated[str, Depends(known_credential)]
OwnDocument = Annotated[DocumentId, Depends(own_document)]
ReadableQuery = Annotated[None, Depends(readable_query)]


def request_id_in_path(scope: Scope) -> RequestId | None:
    """Return the request id in the path; None without one, or if it is malformed."""
    try:
        return _REQUEST_ID.validate_python(scope.get("path_params", {}).get("request_id"))
    except ValidationError:
        return None


def parse_idempotency_key(given: Sequence[bytes]) -> IdempotencyKey:
    """Return the only Idempotency-Key that was given. Raises: RequestFailure (REQUEST_INVALID)."""
    if len(given) > 1 or not _IDEMPOTENCY_KEY.fullmatch(given[0]):
        message = "must be given once, as 1 to 255 visible ASCII characters"
        errors = [{"field": "Idempotency-Key", "message": message}]
        raise RequestFailure(Code.REQUEST_INVALID, f"Idempotency-Key {message}", {"errors": errors})
    return IdempotencyKey(given[0].decode())


def encode_cursor(principal: Principal, collection: str, position: str | None) -> str | None:
    """Return the cursor of the position where a page of the collection ends; None after the last page.

    It holds the position itself, and so survives the deletion of the item there, and a checksum against mistakes.
    """
    return (
        None
        if position is None
        else f"{digest(principal.tenant, principal.user, collection, position)[:_CHECKSUM_DIGITS]}.{position}"
    )


def decode_cursor(principal: Principal, collection: str, given: str | None) -> str | None:
    """Return the position of a cursor.

    Raises: RequestFailure (REQUEST_INVALID) for a cursor that this collection did not give to this user.
    """
    if given is None:
        return None
    position = given.partition(".")[2]
    if given != encode_cursor(principal, collection, position):
        message = "must be the `next` of a page of this collection"
        errors = [{"field": "after", "message": message}]
        raise RequestFailure(Code.REQUEST_INVALID, f"after: {message}", {"errors": errors})
    return position
