"""An event on the wire is the contract's section 5."""

import typing
from dataclasses import fields, is_dataclass

import pytest

from app.domain import events
from app.domain.events import (
    EVENT_TYPES,
    FIELDS,
    CorrelationContext,
    FallbackTransition,
    InferenceDelta,
    InferenceStart,
    LifecycleTransition,
    Live,
    Recorded,
    StageEnd,
    ToolEnd,
    timestamp,
    wire,
)
from app.domain.fallback import Event as FsmEvent
from app.domain.fallback import State as FsmState
from app.domain.lifecycle import State

CORRELATION = CorrelationContext("req-1", None, "ab" * 16, "cd" * 8, None)
HEAD = {
    "request_id": "req-1",
    "session_id": None,
    "trace_id": "ab" * 16,
    "span_id": "cd" * 8,
    "parent_span_id": None,
    "caused_by": None,
    "timestamp": "2026-11-21T12:00:00.250000Z",
}
AT = 1795262400.25

CONTRACT = {
    "lifecycle.transition": "from_state to_state attempt reason",
    "fallback.transition": "from_state to_state fsm_event provider model retry_count reason segment",
    "stage.end": "stage duration_ms outcome",
    "inference.start": "segment message_count tool_defs_count schema_present grammar_present "
    "temperature provider model",
    "inference.delta": "segment offset text reasoning",
    "inference.retracted": "segment",
    "inference.end": "segment duration_ms tokens_in tokens_out finish_reason tool_call_count",
    "tool.start": "tool_name tool_call_id args_hash",
    "tool.end": "tool_name tool_call_id duration_ms success error_code",
    "execution.suspended": "suspensions response",
    "execution.completed": "response",
    "execution.failed": "response",
    "execution.cancelled": "response",
}


def recorded(event: events.Event, number: int = 7) -> dict[str, typing.Any]:
    return wire(Recorded(number, AT, "0/0", CORRELATION, event))


def test_every_event_has_the_fields_of_the_contract() -> None:
    assert {kind.type: " ".join(FIELDS[kind]) for kind in EVENT_TYPES} == CONTRACT


def test_the_union_and_the_list_of_types_are_one_closed_set() -> None:
    union = set(typing.get_args(events.Event)) | {InferenceDelta}
    defined = {kind for kind in vars(events).values() if is_dataclass(kind) and hasattr(kind, "type")}
    assert set(EVENT_TYPES) == union == defined


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_no_event_has_a_field_of_the_correlation(kind: type) -> None:
    taken = {field.name for field in fields(CorrelationContext)} | {"sequence_number", "type", "timestamp"}
    assert not taken & set(FIELDS[kind])


def test_a_recorded_event_carries_its_number_and_its_correlation_in_the_contracts_order() -> None:
    shown = recorded(LifecycleTransition(State.EXECUTE, State.VALIDATE, 1, "output_ready"))
    assert shown == {
        "sequence_number": 7,
        "type": "lifecycle.transition",
        **HEAD,
        "from_state": "EXECUTE",
        "to_state": "VALIDATE",
        "attempt": 1,
        "reason": "output_ready",
    }
    assert list(shown)[:2] == ["sequence_number", "type"]
    assert list(shown)[-4:] == ["from_state", "to_state", "attempt", "reason"]


def test_a_field_that_is_none_is_shown_as_null() -> None:
    first = recorded(LifecycleTransition(None, State.INIT, 1, "accepted"), number=1)
    assert first["from_state"] is None
    assert recorded(ToolEnd("roll_dice", "call-1", 0.5, success=True, error_code=None))["error_code"] is None
    start = InferenceStart("0/0", 1, 0, False, False, None, "primary", "m")
    assert recorded(start)["temperature"] is None


def test_machine_states_and_events_are_upper_case_on_the_wire() -> None:
    moved = FallbackTransition(
        FsmState.IDLE, FsmState.SELECTING, FsmEvent.START, None, None, retry_count=0, reason="begin", segment=None
    )
    shown = recorded(moved)
    assert (str(shown["from_state"]), str(shown["to_state"]), str(shown["fsm_event"])) == ("IDLE", "SELECTING", "START")


@pytest.mark.parametrize(("field", "absent"), [("text", "reasoning"), ("reasoning", "text")])
def test_a_delta_has_no_number_and_only_what_it_says(field: str, absent: str) -> None:
    said = {"text": {"text": "Hel"}, "reasoning": {"reasoning": "Hel"}}[field]
    shown = wire(Live(AT, CORRELATION, InferenceDelta("0/0", 3, **said)))
    assert shown == {"type": "inference.delta", **HEAD, "segment": "0/0", "offset": 3, field: "Hel"}
    assert absent not in shown
    assert "sequence_number" not in shown


def test_the_session_is_shown_when_there_is_one() -> None:
    correlation = CorrelationContext("req-1", "ses-1", "ab" * 16, "cd" * 8, "ef" * 8, caused_by="call-1")
    shown = wire(Recorded(1, AT, "0", correlation, StageEnd("Execute", 1.5, "ok")))
    assert (shown["session_id"], shown["parent_span_id"], shown["caused_by"]) == ("ses-1", "ef" * 8, "call-1")


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (AT, "2026-11-21T12:00:00.250000Z"),
        (1.000001, "1970-01-01T00:00:01.000001Z"),
    ],
)
def test_times_are_rfc_3339_in_utc(at: float, text: str) -> None:
    assert timestamp(at) == text
