"""An event on the wire is the contract's section 5."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.domain.fallback import Event as FsmEvent
from app.domain.fallback import State as FsmState
from app.domain.journal.events import (
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
from app.domain.lifecycle import State
from app.entrypoints.http.sse import FrameEncoder

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
    """The data of the item's frame."""
    data: dict[str, Any] = orjson.loads(FrameEncoder().encode([item]).partition(b"data: ")[2])
    return data


def recorded(event: Event, number: int = 7) -> dict[str, Any]:
    return shown(StoredEvent(number, AT, "0/0", CORRELATION, event))


def test_a_recorded_event_carries_its_number_and_its_correlation_in_the_contracts_order() -> None:
    told = recorded(LifecycleTransition(State.EXECUTE, State.VALIDATE, 1, "output_ready"))
    assert told == {
        "sequence_number": 7,
        "type": "lifecycle.transition",
        **HEAD,
        "from_state": "EXECUTE",
        "to_state": "VALIDATE",
        "attempt": 1,
        "reason": "output_ready",
    }
    assert list(told)[:2] == ["sequence_number", "type"]
    assert list(told)[-4:] == ["from_state", "to_state", "attempt", "reason"]


def test_a_field_that_is_none_is_shown_as_null() -> None:
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
def test_a_replica_is_shown_where_there_is_one(event: Any) -> None:
    told = recorded(event)
    assert "replica" not in told
    assert recorded(replace(event, replica=0)) == {**told, "replica": 0}


def test_machine_states_and_events_are_upper_case_on_the_shown() -> None:
    moved = FallbackTransition(
        FsmState.IDLE, FsmState.SELECTING, FsmEvent.START, None, None, retry_count=0, reason="begin", segment=None
    )
    told = recorded(moved)
    assert (str(told["from_state"]), str(told["to_state"]), str(told["fsm_event"])) == ("IDLE", "SELECTING", "START")


@pytest.mark.parametrize(("field", "absent"), [("text", "reasoning"), ("reasoning", "text")])
def test_a_delta_has_no_number_and_only_what_it_says(field: str, absent: str) -> None:
    said = {"text": {"text": "Hel"}, "reasoning": {"reasoning": "Hel"}}[field]
    told = shown(LiveDelta(AT, CORRELATION, InferenceDelta("0/0", 3, **said)))
    assert told == {"type": "inference.delta", **HEAD, "segment": "0/0", "offset": 3, field: "Hel"}
    assert absent not in told
    assert "sequence_number" not in told


def test_the_session_is_shown_when_there_is_one() -> None:
    correlation = CorrelationContext("req-1", "ses-1", "ab" * 16, "cd" * 8, "ef" * 8, caused_by="call-1")
    told = shown(StoredEvent(1, AT, "0", correlation, StageEnd("Execute", 1.5, "ok")))
    assert (told["session_id"], told["parent_span_id"], told["caused_by"]) == ("ses-1", "ef" * 8, "call-1")


def test_ids_are_told_anew_when_the_span_changes_and_when_it_changes_back() -> None:
    spans = ["cd" * 8, "cd" * 8, "12" * 8, "cd" * 8]
    told = [CorrelationContext("req-1", None, "ab" * 16, span, None) for span in spans]
    items = [StoredEvent(number, AT, "0", each, StageEnd("Execute", 1.5, "ok")) for number, each in enumerate(told, 1)]
    frames = FrameEncoder().encode(items).split(b"\n\n")[:-1]
    assert [orjson.loads(frame.partition(b"data: ")[2])["span_id"] for frame in frames] == spans
