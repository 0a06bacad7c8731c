"""What is recorded survives its bytes exactly, and bytes that are not ours are refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.stores import codec
from app.domain.contract.messages import Message, ModelMessage
from app.domain.failures import Code, StorageFailure
from app.domain.journal.events import CorrelationContext, Event, StoredEvent
from app.domain.journal.header import EffectiveLimits, ExecutionHeader
from app.domain.journal.outcomes import Outcome, Prepared, RecordedStep, Refused, SuspensionAnswer
from tests.support.examples import (
    COMPLETED,
    EVENTS,
    MOVED,
    OUTCOMES,
    SUSPENSION,
    correlation,
    header,
    recorded_step,
    response,
    stored_events,
)
from tests.support.virtual_time import EPOCH

SAID = ModelMessage(role="assistant", content="hm", provider="primary", kept=[{"signature": "µ\u2028", "n": 1.5}])
PREPARED = next(each for each in OUTCOMES if isinstance(each, Prepared))
READERS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "opening": (codec.encode_header(header("a"), [recorded_step("0")]), codec.decode_header),
    "outcome": (codec.encode_outcome(PREPARED), codec.decode_outcome),
    "events": (codec.encode_events(stored_events(MOVED)), codec.decode_events),
    "response": (codec.encode_response(response()), codec.decode_response),
    "messages": (codec.encode_message(SAID), lambda data: codec.decode_messages([data])),
    "suspension": (codec.encode_suspension(SUSPENSION), codec.decode_suspension),
    "value": (codec.encode_value({"a": 1}), codec.decode_value),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abµ\u0000", max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def committed(*events: Event, first: int = 1) -> list[StoredEvent]:
    """These events as one commit holds them: numbered on, at one time."""
    return [StoredEvent(number, EPOCH, "0/1", correlation(), event) for number, event in enumerate(events, first)]


def test_every_outcome_and_every_event_has_an_example() -> None:
    assert {type(each) for each in OUTCOMES} == set(get_args(Outcome))
    assert {type(each) for each in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
def test_every_outcome_is_read_as_it_was_written(outcome: Outcome) -> None:
    assert codec.decode_outcome(codec.encode_outcome(outcome)) == outcome


@pytest.mark.parametrize("event", EVENTS, ids=lambda each: type(each).__name__)
def test_every_event_is_read_as_it_was_written(event: Event) -> None:
    told = committed(event, first=7)
    assert codec.decode_events(codec.encode_events(told)) == told


@pytest.mark.parametrize(
    "kind", [*get_args(Outcome), *get_args(Event), ExecutionHeader, EffectiveLimits, CorrelationContext]
)
def test_what_is_recorded_has_a_dict_which_is_written_five_times_as_fast_as_slots(kind: type[Any]) -> None:
    assert "__slots__" not in vars(kind)


def test_the_events_of_a_commit_keep_their_order_their_numbers_and_their_correlations() -> None:
    other = replace(correlation(), span_id="0" * 16, caused_by="call_1", step_name="first")
    told = [
        each._replace(correlation=other) if index % 3 else each
        for index, each in enumerate(committed(*EVENTS, first=40))
    ]
    data = codec.encode_events(told)
    assert codec.decode_events(data) == told
    assert data.count(b'"0000000000000000"') == 1


def test_events_of_several_times_keep_them() -> None:
    told = stored_events(MOVED, COMPLETED, MOVED)
    assert codec.decode_events(codec.encode_events(told)) == told


def test_steps_that_stand_with_the_header_are_read_as_they_were_written() -> None:
    rows = [RecordedStep(f"{number}/0", "f" * 32, outcome, EPOCH + number) for number, outcome in enumerate(OUTCOMES)]
    assert codec.decode_header(codec.encode_header(header("a"), rows)) == (header("a"), rows)


def test_everything_else_is_read_as_it_was_written() -> None:
    assert codec.decode_header(codec.encode_header(header("a"))) == (header("a"), [])
    assert codec.decode_response(codec.encode_response(response())) == response()
    assert codec.decode_suspension(codec.encode_suspension(SUSPENSION)) == SUSPENSION
    said = codec.decode_messages([codec.encode_message(SAID)])[0]
    assert (type(said), said) == (ModelMessage, SAID)
    plain = Message(role="user", content="hello")
    assert [type(each) for each in codec.decode_messages([codec.encode_message(plain)] * 2)] == [Message] * 2
    assert codec.decode_messages([]) == []


def test_what_only_a_provider_can_read_is_kept_in_a_prepared_conversation() -> None:
    with_answer = replace(PREPARED, messages=(*PREPARED.messages, SAID))
    again = codec.decode_outcome(codec.encode_outcome(with_answer))
    assert again == with_answer
    assert isinstance(again, Prepared)
    assert [type(each) for each in again.messages] == [Message, Message, ModelMessage]


@given(JSON)
def test_any_json_value_is_read_as_it_was_written(value: Any) -> None:
    again = codec.decode_value(codec.encode_value(value))
    assert again == value
    assert repr(again) == repr(value)
    assert codec.decode_outcome(codec.encode_outcome(SuspensionAnswer(value))) == SuspensionAnswer(value)
    refused = Refused(Code.REQUEST_INVALID, "no", {"path": value})
    assert codec.decode_outcome(codec.encode_outcome(refused)) == refused


@pytest.mark.parametrize("value", [2**70, "\ud800", object(), {1: 2}], ids=repr)
def test_what_is_no_json_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode_value(value)


def refused(read: Callable[[bytes], Any], data: bytes) -> StorageFailure:
    with pytest.raises(StorageFailure) as caught:
        read(data)
    assert caught.value.code is Code.STORAGE_SNAPSHOT_INVALID
    return caught.value


@pytest.mark.parametrize("what", READERS)
def test_a_record_of_a_newer_format_is_refused(what: str) -> None:
    data, read = READERS[what]
    assert data.startswith(b"[1,")
    failure = refused(read, b"[2," + data[3:])
    assert failure.status == 409


@pytest.mark.parametrize("what", [each for each in READERS if each != "value"])
def test_a_record_with_a_field_that_this_version_does_not_know_is_refused(what: str) -> None:
    data, read = READERS[what]
    for place in range(len(data)):
        if data[place : place + 1] == b"{":
            opening = b'{"newer":1' + (b"" if data[place + 1 : place + 2] == b"}" else b",")
            grown = data[:place] + opening + data[place + 1 :]
            if not _is_free(data, place):
                refused(read, grown)


def _is_free(data: bytes, place: int) -> bool:
    """Whether the object at that place is a value that may hold anything: arguments, details, kept blocks, a schema."""
    before = data[:place].rstrip(b"[")
    return before.endswith(
        (
            b'"arguments":',
            b'"parameters":',
            b'"kept":',
            b'"schema":',
            b'"client":',
            b'"metadata":',
            b'"value":',
            b'"options":',
            b'"tools":',
            b'"steps":',
        )
    )


@pytest.mark.parametrize("what", READERS)
def test_b4_89_what_somebody_else_wrote_is_refused_and_not_quoted(what: str) -> None:
    data, read = READERS[what]
    for hostile in (
        b"",
        b"null",
        b"\x80\x04\x95secret",
        b'{"f":1}',
        b"[" * 100_000,
        data[:-1],
        data + b"x",
        b'[1,"Prepared","secret"]',
        b'[1,"os.system",{"command":"secret"}]',
        b'[1,1,[],[[0.0,[["secret",0,"lifecycle.transition",{}]]]]]',
        b'[1,1,[],[[0.0,[["secret",-1,"lifecycle.transition",{}]]]]]',
    ):
        failure = refused(read, hostile)
        assert "secret" not in f"{failure.message}{failure.details}{failure.__cause__}"


def test_a_record_longer_than_any_of_ours_is_refused_unread() -> None:
    refused(codec.decode_value, b" " * (codec.MAX_RECORD_BYTES + 1))


def test_a_message_that_holds_another_is_refused() -> None:
    said = codec.encode_message(SAID)
    refused(lambda data: codec.decode_messages([data]), said + b"," + said)


def test_an_event_that_names_no_correlation_of_its_commit_is_refused() -> None:
    told = orjson.loads(codec.encode_events(committed(COMPLETED)))
    told[3][0][1][0][1] = 1
    refused(codec.decode_events, orjson.dumps(told))
