"""Stored bytes are read back exactly, are those of the golden set, and foreign bytes are refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.stores import codec
from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.messages import Message, ModelMessage
from portico.domain.failures import Code, StorageFailure
from portico.domain.journal.events import CorrelationContext, Event
from portico.domain.journal.header import EffectiveLimits, ExecutionHeader
from portico.domain.journal.outcomes import Outcome, Prepared, RecordedStep, Refused, SuspensionAnswer
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
from tests.support.stored_format import (
    CODECS,
    GOLDEN,
    MODEL_MESSAGE,
    REMEDY,
    committed,
    stored_examples,
    stored_fields,
)
from tests.support.virtual_time import EPOCH

PREPARED = next(each for each in OUTCOMES if isinstance(each, Prepared))
READERS: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "header": (codec.encode_header(header("a"), [recorded_step("0")]), codec.decode_header),
    "outcome": (codec.encode_outcome(PREPARED), codec.decode_outcome),
    "events": (codec.encode_events(stored_events(MOVED)), codec.decode_events),
    "response": (codec.encode_response(response()), codec.decode_response),
    "messages": (codec.encode_message(MODEL_MESSAGE), lambda data: codec.decode_messages([data])),
    "suspension": (codec.encode_suspension(SUSPENSION), codec.decode_suspension),
    "value": (codec.encode_value({"a": 1}), codec.decode_value),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abµ\u0000", max_size=3), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def test_every_outcome_and_every_event_has_an_example() -> None:
    assert {type(each) for each in OUTCOMES} == set(get_args(Outcome))
    assert {type(each) for each in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
def test_an_outcome_is_read_back_equal(outcome: Outcome) -> None:
    assert codec.decode_outcome(codec.encode_outcome(outcome)) == outcome


@pytest.mark.parametrize("event", EVENTS, ids=lambda each: type(each).__name__)
def test_an_event_is_read_back_equal(event: Event) -> None:
    events = committed(event, first=7)
    assert codec.decode_events(codec.encode_events(events)) == events


def golden(name: str) -> Any:
    return orjson.loads((GOLDEN / f"{name}.json").read_bytes())


@pytest.mark.parametrize("kind", CODECS)
def test_a_golden_record_is_read_and_written_again_with_the_same_bytes(kind: str) -> None:
    encode, decode = CODECS[kind]
    stored = [each.encode() for each in golden("stored_bytes")[kind]]
    assert stored
    for each in stored:
        assert encode(decode(each)) == each


def test_the_examples_are_stored_with_the_bytes_of_the_golden_set() -> None:
    assert stored_examples() == golden("stored_bytes"), REMEDY


def test_everything_that_is_stored_is_listed_in_the_golden_set() -> None:
    assert stored_fields() == golden("fields"), REMEDY


@pytest.mark.parametrize(
    "kind", [*get_args(Outcome), *get_args(Event), ExecutionHeader, EffectiveLimits, CorrelationContext]
)
def test_a_stored_dataclass_has_no_slots_because_a_dict_is_written_five_times_as_fast(kind: type[Any]) -> None:
    assert "__slots__" not in vars(kind)


def test_events_of_a_commit_keep_their_order_numbers_and_correlations() -> None:
    other = replace(correlation(), span_id="0" * 16, caused_by="call_1", step_name="first")
    events = [
        each._replace(correlation=other) if index % 3 else each
        for index, each in enumerate(committed(*EVENTS, first=40))
    ]
    data = codec.encode_events(events)
    assert codec.decode_events(data) == events
    assert data.count(b'"0000000000000000"') == 1


def test_events_keep_their_different_times() -> None:
    events = stored_events(MOVED, COMPLETED, MOVED)
    assert codec.decode_events(codec.encode_events(events)) == events


def test_steps_stored_with_the_header_are_read_back_equal() -> None:
    rows = [RecordedStep(f"{number}/0", "f" * 32, outcome, EPOCH + number) for number, outcome in enumerate(OUTCOMES)]
    assert codec.decode_header(codec.encode_header(header("a"), rows)) == (header("a"), rows)


def test_headers_responses_suspensions_and_messages_are_read_back_equal() -> None:
    assert codec.decode_header(codec.encode_header(header("a"))) == (header("a"), [])
    answer = FinalAnswer(
        answer_text="µ\u2028",
        used_step_ids=["a"],
        ttl_exhausted=True,
        metadata={"degraded": True, "plan_state": {"n": 1.5}},
    )
    for each in (response(), response().model_copy(update={"final_answer": answer})):
        assert codec.decode_response(codec.encode_response(each)) == each
    assert codec.decode_suspension(codec.encode_suspension(SUSPENSION)) == SUSPENSION
    message = codec.decode_messages([codec.encode_message(MODEL_MESSAGE)])[0]
    assert (type(message), message) == (ModelMessage, MODEL_MESSAGE)
    plain = Message(role="user", content="hello")
    assert [type(each) for each in codec.decode_messages([codec.encode_message(plain)] * 2)] == [Message] * 2
    assert codec.decode_messages([]) == []


def test_a_prepared_conversation_stores_provider_specific_message_parts() -> None:
    with_answer = replace(PREPARED, messages=(*PREPARED.messages, MODEL_MESSAGE))
    again = codec.decode_outcome(codec.encode_outcome(with_answer))
    assert again == with_answer
    assert isinstance(again, Prepared)
    assert [type(each) for each in again.messages] == [Message, Message, ModelMessage]


@given(JSON)
def test_any_json_value_is_read_back_equal(value: Any) -> None:
    again = codec.decode_value(codec.encode_value(value))
    assert again == value
    assert repr(again) == repr(value)
    assert codec.decode_outcome(codec.encode_outcome(SuspensionAnswer(value))) == SuspensionAnswer(value)
    refused = Refused(Code.REQUEST_INVALID, "no", {"path": value})
    assert codec.decode_outcome(codec.encode_outcome(refused)) == refused


@pytest.mark.parametrize(
    "value", [2**70, "\ud800", object(), {1: 2}], ids=["large", "surrogate", "object", "number as key"]
)
def test_a_value_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode_value(value)


def refused(read: Callable[[bytes], Any], data: bytes) -> StorageFailure:
    with pytest.raises(StorageFailure) as caught:
        read(data)
    assert caught.value.code is Code.STORAGE_SNAPSHOT_INVALID
    return caught.value


@pytest.mark.parametrize("number", [b"0", b"-1", b"2", b"99", b"1.5", b'"1"', b"null"])
@pytest.mark.parametrize("kind", READERS)
def test_a_record_of_another_format_is_refused(kind: str, number: bytes) -> None:
    data, read = READERS[kind]
    assert data.startswith(b"[%d," % codec.FORMAT)
    failure = refused(read, b"[%b,%b" % (number, data.partition(b",")[2]))
    assert failure.status == 409
    assert codec.is_newer_format(b"[%b,{}]" % number) == (number in {b"2", b"99"})


@pytest.mark.parametrize("kind", [each for each in READERS if each != "value"])
def test_a_record_with_an_unknown_field_is_refused(kind: str) -> None:
    data, read = READERS[kind]
    for place in range(len(data)):
        if data[place : place + 1] == b"{":
            start = b'{"newer":1' + (b"" if data[place + 1 : place + 2] == b"}" else b",")
            if not _is_free_form(data, place):
                refused(read, data[:place] + start + data[place + 1 :])


def _is_free_form(data: bytes, place: int) -> bool:
    """Return whether the object at that place may hold any keys: arguments, details, provider blocks, a schema."""
    before = data[:place].rstrip(b"[")
    return before.endswith(
        (
            b'"arguments":',
            b'"parameters":',
            b'"kept":',
            b'"schema":',
            b'"client":',
            b'"redacted":',
            b'"metadata":',
            b'"value":',
            b'"options":',
            b'"tools":',
            b'"steps":',
        )
    )


@pytest.mark.parametrize("kind", READERS)
def test_foreign_bytes_are_refused_and_not_quoted(kind: str) -> None:
    data, read = READERS[kind]
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


def test_a_record_above_the_size_limit_is_refused_unread() -> None:
    refused(codec.decode_value, b" " * (codec.MAX_RECORD_BYTES + 1))


def test_a_message_that_contains_another_is_refused() -> None:
    message = codec.encode_message(MODEL_MESSAGE)
    refused(lambda data: codec.decode_messages([data]), message + b"," + message)


def test_an_event_with_an_unknown_correlation_index_is_refused() -> None:
    stored = orjson.loads(codec.encode_events(committed(COMPLETED)))
    stored[3][0][1][0][1] = 1
    refused(codec.decode_events, orjson.dumps(stored))


def test_the_end_of_an_execution_is_stored_as_its_events_and_its_response_alone_are() -> None:
    events = committed(COMPLETED)
    ended = codec.encode_end(events, response())
    assert ended == (codec.encode_events(events), codec.encode_response(response()))
    carried = events[-1].event.response
    assert codec.encode_end(events, carried) == (codec.encode_events(events), codec.encode_response(carried))
