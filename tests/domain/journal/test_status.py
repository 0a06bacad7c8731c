"""Status of an execution: it follows from the history, in however many pieces that is applied."""

import pytest

from app.domain.failures import Code
from app.domain.journal.events import LifecycleTransition
from app.domain.journal.status import ExecutionStatus
from app.domain.lifecycle import State
from tests.support.examples import (
    COMPLETED,
    EVENTS,
    FAILED,
    SUSPENDED,
    TOOL_ENDED,
    plain_chat,
    recorded_step,
    stored_events,
)

NEW = ExecutionStatus(1.0)


def test_the_status_is_that_of_the_last_transition_and_its_time() -> None:
    events = stored_events(LifecycleTransition(State.VALIDATE, State.EXECUTE, 2, "invalid"))
    status = NEW.apply([], events)
    assert (status.state, status.attempt, status.entered_at) == (State.EXECUTE, 2, events[0].at)


def test_the_start_and_the_engine_that_was_asked_last_are_those_of_the_events() -> None:
    events = plain_chat()
    status = NEW.apply([], events)
    assert (status.started_at, status.provider, status.model) == (events[0].at, "primary", "gpt-4o-mini")
    resumed = status.apply([], stored_events(LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed")))
    assert resumed.started_at == events[0].at


def test_steps_are_counted_and_the_last_is_named() -> None:
    status = (
        NEW.apply([recorded_step("prepare"), recorded_step("0")], []).apply([], []).apply([recorded_step("0/0")], [])
    )
    assert (status.total_steps, status.last_step) == (3, "0/0")


def test_the_last_error_is_the_most_recent_one() -> None:
    status = NEW.apply([], stored_events(TOOL_ENDED, COMPLETED))
    assert status.last_error is Code.TOOL_TIMEOUT
    assert NEW.apply([], stored_events(TOOL_ENDED, FAILED)).last_error is Code.INFERENCE_MODEL_UNAVAILABLE


def test_a_suspended_or_ended_execution_has_a_response_and_a_running_one_has_none() -> None:
    waits = NEW.apply([], stored_events(SUSPENDED))
    assert waits.response == SUSPENDED.response
    runs = waits.apply([], stored_events(LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed")))
    assert runs.response is None
    assert runs.apply([], stored_events(COMPLETED)).response == COMPLETED.response


@pytest.mark.parametrize("events", [plain_chat(), stored_events(*EVENTS)], ids=["chat", "everything"])
def test_applying_a_history_in_pieces_gives_the_same_status(events: list) -> None:
    whole = NEW.apply([], events)
    for cut in range(len(events)):
        assert NEW.apply([], events[:cut]).apply([], events[cut:]) == whole
