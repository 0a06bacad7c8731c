"""Reading the rest of a URL: the id in its path, and what stands behind the question mark, every fault by name."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from starlette.types import Scope

from app.domain.contract.constrained_types import RequestIdText, SessionIdText
from app.domain.failures import Code, RequestFailure
from app.domain.fingerprints import digest
from app.domain.ids import TenantId
from app.domain.lifecycle import Mode, State
from app.entrypoints.http.body import invalid_fields_failure
from app.ports.storage import ExecutionFilter

Q = TypeVar("Q", bound="QueryParameters")
_ID = TypeAdapter[str](RequestIdText)
MAX_PARAMETERS = 32
DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1_000
LAST_EVENT_ID = "Last-Event-ID"
_SEAL = 8
_DIGITS = 15
"""More than any number has, and fewer than a database takes."""


def _digits(given: object) -> object:
    if isinstance(given, str) and not (given.isascii() and given.isdigit() and len(given) <= _DIGITS):
        raise ValueError("must be a whole number in decimal digits")
    return given


Cursor = Annotated[str, StringConstraints(min_length=1, max_length=256)]
DecimalInt = Annotated[int, BeforeValidator(_digits)]


class QueryParameters(BaseModel):
    """The parameters of one route."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ExecutionListQuery(QueryParameters):
    """Which executions are listed, and how many of them at once."""

    state: State | None = Field(None, description="Only those in this state.")
    mode: Mode | None = Field(None, description="Only those of this mode.")
    session_id: SessionIdText | None = Field(None, description="Only those of this session.")
    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Most executions of this page.")
    after: Cursor | None = Field(None, description="The `next` of the page before.")

    @property
    def selection(self) -> ExecutionFilter:
        return ExecutionFilter(self.state, self.mode, self.session_id)


class SessionListQuery(QueryParameters):
    """How many sessions are listed at once."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Most sessions of this page.")
    after: Cursor | None = Field(None, description="The `next` of the page before.")


class MessageListQuery(QueryParameters):
    """How many messages are listed at once."""

    limit: DecimalInt = Field(DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Most messages of this page.")
    after: DecimalInt = Field(0, description="The `next` of the page before.")


class AfterEvent(QueryParameters):
    """Where in a log reading begins."""

    after: DecimalInt = Field(0, description="Only events behind this number; `Last-Event-ID` wins.")


def path_id(scope: Scope, name: str) -> str | None:
    """The id of that name in the path; None where there is none, or what stands there is no id."""
    try:
        return _ID.validate_python(scope["path_params"].get(name))
    except ValidationError:
        return None


def read_query(scope: Scope, model: type[Q]) -> Q:
    """Every parameter once, and none that is not known. Raises: RequestFailure (REQUEST_INVALID)."""
    try:
        pairs = parse_qsl(
            scope["query_string"].decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError:
        raise RequestFailure(Code.REQUEST_INVALID, "the query is not readable", condition="syntax") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise RequestFailure(Code.REQUEST_INVALID, "the query has the same parameter twice")
    return _valid(model, given)


def encode_cursor(tenant: TenantId, collection: str, place: str | None) -> str | None:
    """What the tenant is given for the place where a page of that collection ends; None behind the last.

    The place itself is in it, so it outlives whatever stood there, and a seal, so that nobody mistypes it unnoticed.
    """
    return None if place is None else f"{digest(tenant, collection, place)[:_SEAL]}.{place}"


def decode_cursor(tenant: TenantId, collection: str, given: str | None) -> str | None:
    """The place that a cursor was given for. Raises: RequestFailure (REQUEST_INVALID) when it was given for none."""
    if given is None:
        return None
    place = given.partition(".")[2]
    if given != encode_cursor(tenant, collection, place):
        what = "must be the `next` of a page of this collection"
        raise RequestFailure(Code.REQUEST_INVALID, f"after: {what}", {"errors": [{"field": "after", "message": what}]})
    return place


def last_read_event(scope: Scope) -> int:
    """The number that reading begins behind: the last header's, else the query's. Raises: RequestFailure."""
    after = read_query(scope, AfterEvent).after
    headers = [value for key, value in scope["headers"] if key == b"last-event-id"]
    return _valid(_Told, {LAST_EVENT_ID: headers[-1].decode("latin-1")}).number if headers else after


class _Told(QueryParameters):
    number: DecimalInt = Field(alias=LAST_EVENT_ID)


def _valid(model: type[Q], given: Mapping[str, Any]) -> Q:
    try:
        return model.model_validate(given)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_context=True, include_input=False)
    raise invalid_fields_failure(given, errors)
