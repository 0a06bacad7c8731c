"""What is recorded as JSON bytes, and back, exactly.

Data only, never code: what is read is checked by type, field by field, and unknown fields are refused, for a stored
record may be of a newer version or not of ours at all. Every record begins with its `FORMAT`; what reads another one
is added here when there is another one. Whatever belongs to the closed unions is stored by its name, so that a new
outcome or event needs nothing here but another `FORMAT`. Events name their few correlations once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, TypeAdapter, ValidationError

from app.domain.contract.messages import Message, ModelMessage
from app.domain.contract.response import Suspension, SystemResponse
from app.domain.failures import Code, StorageFailure
from app.domain.journal.events import CorrelationContext, Event, StoredEvent
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import (
    AttemptCancelled,
    AttemptFailed,
    AttemptSucceeded,
    InferenceSetup,
    Outcome,
    Plan,
    PlanningInputs,
    Prepared,
    RaceDecided,
    RecordedStep,
    Refused,
    StopDecision,
    SuspensionAnswer,
    TimerFired,
    ToolCallSuspended,
    ToolEnded,
)

T = TypeVar("T")
FORMAT = 1
"""Raised with whatever an earlier release cannot read, be it one kind, one field or one value more: so that it leaves
such a record to others, for what it cannot read of a format that it knows is broken, and ends.
"""
MAX_RECORD_BYTES = 128 * 2**20
"""No limit of the service lets a record grow near this; a longer one is not ours."""

_Ids: TypeAlias = tuple[str, str | None, str, str, str | None, str | None, str | None]
_Told: TypeAlias = tuple[str, Annotated[int, Field(ge=0)], str, dict[str, Any]]
_Step: TypeAlias = tuple[str, str, float, str, dict[str, Any]]
_Version: TypeAlias = Literal[1]


def _exact(kind: Any) -> TypeAdapter[Any]:
    """Reads the kind alone in a list; the list is there because only what surrounds a dataclass can be configured."""
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))


_BEGINS = re.compile(rb"\[([0-9]{1,9}),")
_OPENING = _exact(tuple[_Version, ExecutionHeader, list[_Step]])
_RESPONSE = _exact(tuple[_Version, SystemResponse])
_Said: TypeAlias = Annotated[
    Annotated[ModelMessage, Tag("model")] | Annotated[Message, Tag("plain")],
    Discriminator(lambda told: "model" if isinstance(told, dict) and "provider" in told else "plain"),
]
_MESSAGES = _exact(list[tuple[_Version, _Said]])
_SUSPENSION = _exact(tuple[_Version, Suspension])
_VALUE = _exact(tuple[_Version, JsonValue])
_NAMED = _exact(tuple[_Version, str, dict[str, Any]])
_TOLD = _exact(tuple[_Version, int, list[_Ids], list[tuple[float, list[_Told]]]])
OUTCOME_TAGS: Mapping[type[Outcome], str] = MappingProxyType(
    {
        PlanningInputs: "Plannable",
        Plan: "Planned",
        Prepared: "Prepared",
        InferenceSetup: "Offered",
        AttemptSucceeded: "Replied",
        AttemptFailed: "AttemptFailed",
        ToolEnded: "ToolEnded",
        ToolCallSuspended: "ToolAsked",
        TimerFired: "Slept",
        SuspensionAnswer: "Answered",
        Refused: "Refused",
        AttemptCancelled: "CutOff",
        RaceDecided: "Decided",
        StopDecision: "Stopped",
    }
)
"""Tag under which each outcome is stored. Stored tags never change; classes may be renamed."""
_OUTCOMES: Mapping[str, TypeAdapter[Any]] = MappingProxyType({tag: _exact(kind) for kind, tag in OUTCOME_TAGS.items()})
_EVENTS: Mapping[str, TypeAdapter[Any]] = MappingProxyType({kind.type: _exact(kind) for kind in get_args(Event)})


def is_newer_format(data: object) -> bool:
    """Whether that says of itself that a later version wrote it."""
    begins = _BEGINS.match(data) if isinstance(data, bytes) else None
    return begins is not None and int(begins[1]) > FORMAT


def encode_header(header: ExecutionHeader, rows: Sequence[RecordedStep] = ()) -> bytes:
    """The header, with the steps that were recorded before anything was stored."""
    steps = [(row.key, row.fingerprint, row.at, OUTCOME_TAGS[type(row.outcome)], row.outcome) for row in rows]
    return _dump([FORMAT, header, steps])


def decode_header(data: bytes) -> tuple[ExecutionHeader, list[RecordedStep]]:
    """Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID), as everything here that decodes."""
    _, header, steps = _read(_OPENING, data, "opening")
    return header, [
        RecordedStep(key, fingerprint, _of(_OUTCOMES, name, fields, "outcome"), at)
        for key, fingerprint, at, name, fields in steps
    ]


def encode_outcome(outcome: Outcome) -> bytes:
    return _dump([FORMAT, OUTCOME_TAGS[type(outcome)], outcome])


def decode_outcome(data: bytes) -> Outcome:
    _, name, fields = _read(_NAMED, data, "outcome")
    outcome: Outcome = _of(_OUTCOMES, name, fields, "outcome")
    return outcome


def encode_response(response: SystemResponse) -> bytes:
    return _dump([FORMAT, response])


def decode_response(data: bytes) -> SystemResponse:
    response: SystemResponse = _read(_RESPONSE, data, "response")[1]
    return response


def encode_message(message: Message) -> bytes:
    return _dump([FORMAT, message])


def decode_messages(each: Sequence[bytes]) -> list[Message]:
    """A history is read before every turn, so all of it at once."""
    whole = b"".join((b"[", b",".join(each), b"]"))
    if max(map(len, each), default=0) > MAX_RECORD_BYTES:
        raise _invalid("message")
    found = _checked(lambda: _MESSAGES.validate_python((orjson.loads(whole),))[0], "message")
    if len(found) != len(each):
        raise _invalid("message")
    return [message for _, message in found]


def encode_suspension(suspension: Suspension) -> bytes:
    return _dump([FORMAT, suspension])


def decode_suspension(data: bytes) -> Suspension:
    suspension: Suspension = _read(_SUSPENSION, data, "suspension")[1]
    return suspension


def encode_value(value: JsonValue) -> bytes:
    return _dump([FORMAT, value])


def decode_value(data: bytes) -> JsonValue:
    value: JsonValue = _read(_VALUE, data, "value")[1]
    return value


def encode_events(events: Sequence[StoredEvent]) -> bytes:
    """Events that are numbered without gaps, at least one. Those that follow each other at one time share it."""
    numbers: dict[CorrelationContext, int] = {}
    told: list[tuple[float, list[tuple[str, int, str, Event]]]] = []
    since, met, index = None, None, 0
    for _, at, anchor, correlation, event in events:
        if at != since:
            since = at
            told.append((at, []))
        if correlation is not met:
            met = correlation
            index = numbers.setdefault(correlation, len(numbers))
        told[-1][1].append((anchor, index, event.type, event))
    return _dump([FORMAT, events[0].sequence_number, [_ids(each) for each in numbers], told])


def decode_events(data: bytes) -> list[StoredEvent]:
    """A log is read by the ten thousand events, so nothing here is done twice that need not be."""
    _, first, ids, groups = _read(_TOLD, data, "events")
    numbers = count(first)
    try:
        correlations = [_correlation(each) for each in ids]
        return [
            StoredEvent(next(numbers), at, anchor, correlations[index], _EVENTS[name].validate_python((fields,))[0])
            for at, together in groups
            for anchor, index, name, fields in together
        ]
    except (ValidationError, LookupError):
        raise _invalid("events") from None


@lru_cache(maxsize=256)
def _correlation(ids: _Ids) -> CorrelationContext:
    """The same object for the same ids, so that who tells many events encodes their ids once."""
    return CorrelationContext(*ids)


def _ids(correlation: CorrelationContext) -> _Ids:
    return (
        correlation.request_id,
        correlation.session_id,
        correlation.trace_id,
        correlation.span_id,
        correlation.parent_span_id,
        correlation.caused_by,
        correlation.step_name,
    )


def _dump(value: object) -> bytes:
    return orjson.dumps(value, default=_model)


def _model(value: object) -> orjson.Fragment:
    if isinstance(value, BaseModel):
        return orjson.Fragment(value.__pydantic_serializer__.to_json(value, by_alias=True))
    raise TypeError(f"{type(value).__name__} is no data")


def _of(kinds: Mapping[str, TypeAdapter[Any]], name: str, fields: dict[str, Any], what: str) -> Any:
    kind = kinds.get(name)
    if kind is None:
        raise _invalid(what)
    return _checked(lambda: kind.validate_python((fields,))[0], what)


def _read(kind: TypeAdapter[Any], data: object, what: str) -> Any:
    if not isinstance(data, bytes) or len(data) > MAX_RECORD_BYTES:
        raise _invalid(what)
    return _checked(lambda: kind.validate_python((orjson.loads(data),))[0], what)


def _checked(read: Callable[[], T], what: str) -> T:
    try:
        return read()
    except (ValidationError, orjson.JSONDecodeError, RecursionError):
        # Not from the cause: it quotes what it read.
        raise _invalid(what) from None


def _invalid(what: str) -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, f"a stored {what} cannot be read by this version")
