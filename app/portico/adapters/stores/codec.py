"""Codec of stored records: JSON bytes that are read back exactly.

Stored data is never code: everything that is read is checked by type, field by field, and unknown fields are refused,
because a stored record may come from a newer version or from another program. Every record begins with its `FORMAT`.

An outcome is stored under the name of its class, an event under its `type`, and a field under its own name. A test
compares the fields of every kind, and an example of it in bytes, with `tests/golden`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, TypeAdapter, ValidationError

from portico.domain.contract.messages import Message, ModelMessage, TracedMessage
from portico.domain.contract.response import STORED, Suspension, SystemResponse
from portico.domain.failures import Code, StorageFailure
from portico.domain.ids import RequestId, SessionId, SpanId, TraceId
from portico.domain.journal.events import CorrelationContext, Event, StoredEvent
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Outcome, RecordedStep
from portico.domain.journal.step_key import StepKey

T = TypeVar("T")
FORMAT = 1
"""Number at the head of every stored record.

A record of a higher number is left to replicas of the version that wrote it. Every other record that cannot be read
counts as damaged.
"""
MAX_RECORD_BYTES = 128 * 2**20
"""Larger than any record that the service's limits allow; longer data is refused unread."""

_StoredIds: TypeAlias = tuple[RequestId, SessionId | None, TraceId, SpanId, SpanId | None, str | None, str | None]
_StoredEventFields: TypeAlias = tuple[str, Annotated[int, Field(ge=0)], str, dict[str, Any]]
_StoredStep: TypeAlias = tuple[str, str, float, str, dict[str, Any]]
_Format: TypeAlias = Literal[1]
_NonEmpty: TypeAlias = Annotated[list[T], Field(min_length=1)]


def _exact(kind: Any) -> TypeAdapter[Any]:
    """Return an adapter for a list with one value of that kind, because a dataclass alone takes no configuration.

    It is built when the first one is read: writing needs none, and those of all kinds take more than a megabyte.
    """
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", defer_build=True))


def _message_kind(stored: object) -> str:
    """Return the tag of a stored message."""
    if not isinstance(stored, dict):
        return "plain"
    return "model" if "provider" in stored else "traced" if "origin" in stored else "plain"


_LEADING_FORMAT = re.compile(rb"\[([0-9]{1,9}),")
_HEADER = _exact(tuple[_Format, ExecutionHeader, list[_StoredStep]])
_HEADER_ALONE = _exact(tuple[_Format, ExecutionHeader, list[Any]])
_RESPONSE = _exact(tuple[_Format, SystemResponse])
_AnyMessage: TypeAlias = Annotated[
    Annotated[ModelMessage, Tag("model")] | Annotated[TracedMessage, Tag("traced")] | Annotated[Message, Tag("plain")],
    Discriminator(_message_kind),
]
_MESSAGES = _exact(list[tuple[_Format, _AnyMessage]])
_SUSPENSION = _exact(tuple[_Format, Suspension])
_VALUE = _exact(tuple[_Format, JsonValue])
_TAGGED_OUTCOME = _exact(tuple[_Format, str, dict[str, Any]])
_EVENT_LOG = _exact(tuple[_Format, int, list[_StoredIds], _NonEmpty[tuple[float, _NonEmpty[_StoredEventFields]]]])
_OUTCOMES: Mapping[str, TypeAdapter[Any]] = MappingProxyType(
    {kind.__name__: _exact(kind) for kind in get_args(Outcome)}
)
_EVENTS: Mapping[str, TypeAdapter[Any]] = MappingProxyType({kind.type: _exact(kind) for kind in get_args(Event)})


def is_newer_format(data: object) -> bool:
    """Return whether the data claims to be written by a later version."""
    leading = _LEADING_FORMAT.match(data) if isinstance(data, bytes) else None
    return leading is not None and int(leading[1]) > FORMAT


def encode_header(header: ExecutionHeader, steps: Sequence[RecordedStep] = ()) -> bytes:
    """Encode a header together with the steps that were recorded before anything was stored."""
    stored = [(step.key, step.fingerprint, step.at, type(step.outcome).__name__, step.outcome) for step in steps]
    return _dump([FORMAT, header, stored])


def decode_header(data: bytes) -> tuple[ExecutionHeader, list[RecordedStep]]:
    """Decode a header and its steps.

    Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID), as every decoding function here.
    """
    _, header, steps = _read(_HEADER, data, "header")
    return header, [
        RecordedStep(StepKey(key), fingerprint, _outcome(tag, stored), at)
        for key, fingerprint, at, tag, stored in steps
    ]


def decode_header_alone(data: bytes) -> ExecutionHeader:
    """Decode a header, and not the steps that are stored with it."""
    header: ExecutionHeader = _read(_HEADER_ALONE, data, "header")[1]
    return header


def without_steps(header: bytes | None) -> bytes:
    """Return an encoded header without its steps and in its own format; nothing if it cannot be read."""
    try:
        format_, stored, _ = orjson.loads(header or b"")
    except (TypeError, ValueError):
        return b""
    return orjson.dumps([format_, stored, []])


def encode_outcome(outcome: Outcome) -> bytes:
    return _dump([FORMAT, type(outcome).__name__, outcome])


def decode_outcome(data: bytes) -> Outcome:
    _, tag, stored = _read(_TAGGED_OUTCOME, data, "outcome")
    return _outcome(tag, stored)


def encode_response(response: SystemResponse) -> bytes:
    return _dump([FORMAT, response])


def decode_response(data: bytes) -> SystemResponse:
    response: SystemResponse = _read(_RESPONSE, data, "response")[1]
    return response


def encode_message(message: Message) -> bytes:
    return _dump([FORMAT, message])


def decode_messages(each: Sequence[bytes]) -> list[Message]:
    """Decode a history in one pass, because it is read before every turn."""
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


def encode_end(events: Sequence[StoredEvent], response: SystemResponse) -> tuple[bytes, bytes]:
    """Encode events, and the response that the last of them carries, which is written once for both."""
    written = _fragment(response)
    return (
        encode_events(events, lambda value: written if value is response else _fragment(value)),
        _dump([FORMAT, written]),
    )


def encode_events(events: Sequence[StoredEvent], write: Callable[[object], orjson.Fragment] | None = None) -> bytes:
    """Encode events that are numbered without gaps, at least one; `write` encodes the models in them.

    Consecutive events of the same time share it, and each correlation is stored once.
    """
    indexes: dict[CorrelationContext, int] = {}
    groups: list[tuple[float, list[tuple[str, int, str, Event]]]] = []
    group_at, previous, index = None, None, 0
    for _, at, anchor, correlation, event in events:
        if at != group_at:
            group_at = at
            groups.append((at, []))
        if correlation is not previous:
            previous = correlation
            index = indexes.setdefault(correlation, len(indexes))
        groups[-1][1].append((anchor, index, event.type, event))
    log = [FORMAT, events[0].sequence_number, [_ids(each) for each in indexes], groups]
    return orjson.dumps(log, default=write or _fragment)


def decode_events(data: bytes) -> list[StoredEvent]:
    """Decode the events of one commit. Logs have tens of thousands of events, so nothing is computed twice."""
    _, first, ids, groups = _read(_EVENT_LOG, data, "events")
    numbers = count(first)
    try:
        correlations = [_correlation(each) for each in ids]
        return [
            StoredEvent(next(numbers), at, anchor, correlations[index], _EVENTS[tag].validate_python((stored,))[0])
            for at, group in groups
            for anchor, index, tag, stored in group
        ]
    except (ValidationError, LookupError):
        raise _invalid("events") from None


@lru_cache(maxsize=256)
def _correlation(ids: _StoredIds) -> CorrelationContext:
    """Return the same object for the same ids, so that a reader of many events formats them once."""
    return CorrelationContext(*ids)


def _ids(correlation: CorrelationContext) -> _StoredIds:
    return (
        correlation.request_id,
        correlation.session_id,
        correlation.trace_id,
        correlation.span_id,
        correlation.parent_span_id,
        correlation.caused_by,
        correlation.step_name,
    )


def _outcome(tag: str, stored: dict[str, Any]) -> Outcome:
    adapter = _OUTCOMES.get(tag)
    if adapter is None:
        raise _invalid("outcome")
    outcome: Outcome = _checked(lambda: adapter.validate_python((stored,))[0], "outcome")
    return outcome


def _dump(value: object) -> bytes:
    return orjson.dumps(value, default=_fragment)


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, BaseModel):
        written = value.__pydantic_serializer__.to_json(value, by_alias=True, context=STORED)
        if isinstance(value, SystemResponse) and value.repeated:  # which nobody but the store is shown
            written = b'%b,"repeated":%b}' % (written[:-1], orjson.dumps(value.repeated))
        return orjson.Fragment(written)
    raise TypeError(f"{type(value).__name__} is not JSON data")


def _read(adapter: TypeAdapter[Any], data: object, kind: str) -> Any:
    if not isinstance(data, bytes) or len(data) > MAX_RECORD_BYTES:
        raise _invalid(kind)
    return _checked(lambda: adapter.validate_python((orjson.loads(data),))[0], kind)


def _checked(read: Callable[[], T], kind: str) -> T:
    try:
        return read()
    except (ValidationError, orjson.JSONDecodeError, RecursionError):
        # Not from the cause, whose message quotes the stored data.
        raise _invalid(kind) from None


def _invalid(kind: str) -> StorageFailure:
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, f"a stored {kind} cannot be read by this version")
