"""Where an execution stands follows from its steps and events, however they are cut into pieces."""

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


def test_it_stands_at_the_last_transition_and_its_time() -> None:
    told = stored_events(LifecycleTransition(State.VALIDATE, State.EXECUTE, 2, "invalid"))
    stands = NEW.apply([], told)
    assert (stands.state, stands.attempt, stands.entered_at) == (State.EXECUTE, 2, told[0].at)


def test_steps_are_counted_and_the_last_is_named() -> None:
    stands = (
        NEW.apply([recorded_step("prepare"), recorded_step("0")], []).apply([], []).apply([recorded_step("0/0")], [])
    )
    assert (stands.total_steps, stands.last_step) == (3, "0/0")


def test_the_most_recent_error_stays_until_another_comes() -> None:
    stands = NEW.apply([], stored_events(TOOL_ENDED, COMPLETED))
    assert stands.last_error is Code.TOOL_TIMEOUT
    assert NEW.apply([], stored_events(TOOL_ENDED, FAILED)).last_error is Code.INFERENCE_MODEL_UNAVAILABLE


def test_a_response_is_there_while_it_waits_and_when_it_ended_and_not_while_it_runs() -> None:
    waits = NEW.apply([], stored_events(SUSPENDED))
    assert waits.response == SUSPENDED.response
    runs = waits.apply([], stored_events(LifecycleTransition(State.SUSPENDED, State.EXECUTE, 1, "resumed")))
    assert runs.response is None
    assert runs.apply([], stored_events(COMPLETED)).response == COMPLETED.response


@pytest.mark.parametrize("told", [plain_chat(), stored_events(*EVENTS)], ids=["chat", "everything"])
def test_pieces_lead_where_the_whole_does(told: list) -> None:
    whole = NEW.apply([], told)
    for cut in range(len(told)):
        assert NEW.apply([], told[:cut]).apply([], told[cut:]) == whole
