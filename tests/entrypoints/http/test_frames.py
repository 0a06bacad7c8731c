"""Frames of events as section 5 of the contract defines them."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from portico.domain.fallback import Event as FsmEvent
from portico.domain.fallback import State as FsmState
from portico.domain.journal.events import (
    ConstraintRepaired,
    CorrelationContext,
    Event,
    FallbackTransition,
    InferenceDelta,
    InferenceStart,
    LifecycleTransition,
    LiveDelta,
    StageEnd,
    StoredEvent,
    ToolEnd,
    ValidationEnd,
)
from portico.domain.lifecycle import State
from portico.entrypoints.http.sse import FrameEncoder

AT = 1795262400.25
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


def shown(item: StoredEvent | LiveDelta) -> dict[str, Any]:
    """Return the data of the item's frame."""
    data: dict[str, Any] = orjson.loads(FrameEncoder().encode([item]).partition(b"data: ")[2])
    return data


def recorded(event: Event, number: int = 7) -> dict[str, Any]:
    return shown(StoredEvent(number, AT, "0/0", CORRELATION, event))


def test_a_stored_event_has_its_fields_in_the_order_of_the_contract() -> None:
    data = recorded(LifecycleTransition(State.EXECUTE, State.VALIDATE, 1, "output_ready"))
    assert data == {
        "sequence_number": 7,
        "type": "lifecycle.transition",
        **HEAD,
        "from_state": "EXECUTE",
        "to_state": "VALIDATE",
        "attempt": 1,
        "reason": "output_ready",
    }
    assert list(data)[:2] == ["sequence_number", "type"]
    assert list(data)[-4:] == ["from_state", "to_state", "attempt", "reason"]


def test_a_field_without_a_value_is_null() -> None:
    first = recorded(LifecycleTransition(None, State.INIT, 1, "accepted"), number=1)
    assert first["from_state"] is None
    assert recorded(ToolEnd("roll_dice", "call-1", 0.5, success=True, error_code=None))["error_code"] is None
    start = InferenceStart("0/0", 1, 0, False, False, None, "primary", "m")
    assert recorded(start)["temperature"] is None


@pytest.mark.parametrize(
    "event",
    [
        InferenceStart("0/0", 1, 0, False, False, None, "primary", "m"),
        ConstraintRepaired(1, ({"action": "quotes_replaced", "path": "$", "times": 2},)),
        ValidationEnd(1, valid=False, errors=({"rule": "semantic", "path": "$", "message": "No."},), warnings=()),
    ],
)
def test_a_replica_is_present_only_with_a_value(event: Any) -> None:
    data = recorded(event)
    assert "replica" not in data
    assert recorded(replace(event, replica=0)) == {**data, "replica": 0}


def test_machine_states_and_events_are_upper_case() -> None:
    moved = FallbackTransition(
        FsmState.IDLE, FsmState.SELECTING, FsmEvent.START, None, None, retry_count=0, reason="begin", segment=None
    )
    data = recorded(moved)
    assert (str(data["from_state"]), str(data["to_state"]), str(data["fsm_event"])) == (
        "IDLE",
        "SELECTING",
        "START",
    )


@pytest.mark.parametrize(("field", "absent"), [("text", "reasoning"), ("reasoning", "text")])
def test_a_delta_has_no_number_and_only_its_own_content(field: str, absent: str) -> None:
    content = {"text": {"text": "Hel"}, "reasoning": {"reasoning": "Hel"}}[field]
    data = shown(LiveDelta(AT, CORRELATION, InferenceDelta("0/0", 3, **content)))
    assert data == {"type": "inference.delta", **HEAD, "segment": "0/0", "offset": 3, field: "Hel"}
    assert absent not in data
    assert "sequence_number" not in data


def test_the_session_is_present_if_there_is_one() -> None:
    correlation = CorrelationContext("req-1", "ses-1", "ab" * 16, "cd" * 8, "ef" * 8, caused_by="call-1")
    data = shown(StoredEvent(1, AT, "0", correlation, StageEnd("Execute", 1.5, "ok")))
    assert (data["session_id"], data["parent_span_id"], data["caused_by"]) == ("ses-1", "ef" * 8, "call-1")


def test_ids_follow_every_change_of_the_span() -> None:
    spans = ["cd" * 8, "cd" * 8, "12" * 8, "cd" * 8]
    correlations = [CorrelationContext("req-1", None, "ab" * 16, span, None) for span in spans]
    items = [
        StoredEvent(number, AT, "0", each, StageEnd("Execute", 1.5, "ok"))
        for number, each in enumerate(correlations, 1)
    ]
    frames = FrameEncoder().encode(items).split(b"\n\n")[:-1]
    assert [orjson.loads(frame.partition(b"data: ")[2])["span_id"] for frame in frames] == spans
