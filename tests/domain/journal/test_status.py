"""Status of an execution: it follows from the history, in however many pieces that is applied."""

from dataclasses import replace

import pytest

from portico.domain.contract.response import StepStatus
from portico.domain.failures import Code
from portico.domain.journal.events import Event, LifecycleTransition, StepEnd, StepStart, StoredEvent, ToolStart
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import State
from portico.domain.model_call import AttemptFailureReason
from tests.support.examples import (
    COMPLETED,
    EVENTS,
    FAILED,
    STARTED,
    SUSPENDED,
    SUSPENSION,
    TOOL_ENDED,
    correlation,
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


def at(anchor: str, event: Event, step_name: str | None = None) -> StoredEvent:
    return StoredEvent(1, 1.0, anchor, replace(correlation(), step_name=step_name), event)


def test_every_inference_at_the_top_level_is_a_round_however_often_it_is_attempted() -> None:
    attempts = [at(key, STARTED) for key in ("0/0", "0/1", "0/1", "2/0", "3/0/0/0")]
    status = NEW.apply([recorded_step("prepare"), recorded_step("0")], attempts)
    assert (status.total_steps, status.last_step) == (2, "round 2")


def test_all_replicas_of_a_vote_are_one_round() -> None:
    replicas = [at(f"0/{number}/0/0", replace(STARTED, replica=number)) for number in range(3)]
    assert NEW.apply([], replicas).total_steps == 1


def test_plan_steps_count_once_they_have_ended_and_inferences_in_them_do_not() -> None:
    started, failed = StepStart("infer", 1), StepEnd("infer", 1, StepStatus.FAILED, 1.0, Code.CONSTRAINT_JSON_INVALID)
    events = [at("1/0", started, "ask"), at("1/0/0/0", STARTED, "ask")]
    assert NEW.apply([], events).total_steps == 0
    ended = [*events, at("1/0/0/0", failed, "ask")]
    assert (NEW.apply([], ended).total_steps, NEW.apply([], ended).last_step) == (1, "ask")
    assert NEW.apply([], [*ended, at("1/0", replace(started, attempt=2), "ask")]).total_steps == 0


def test_a_fork_may_begin_at_every_step_that_has_started() -> None:
    assert NEW.apply([recorded_step("prepare"), recorded_step("0/0")], []).fork_points == 0
    assert NEW.apply([recorded_step("0/0")], [at("2/0/0", ToolStart("look", "call_1", "hash"))]).fork_points == 2
    asked = replace(SUSPENDED, suspensions=(SUSPENSION.model_copy(update={"suspension_id": "3/0/0"}),))
    assert NEW.apply([recorded_step("0/0")], [at("end", asked)]).fork_points == 3
    assert NEW.apply([recorded_step("4")], []).apply([recorded_step("1")], []).fork_points == 4


def test_an_error_that_was_recovered_from_is_the_last_one() -> None:
    failed = replace(EVENTS[1], reason=AttemptFailureReason.RATE_LIMITED)
    moved_on = replace(EVENTS[1], reason="selected")
    assert NEW.apply([], stored_events(failed, moved_on, COMPLETED)).last_error is Code.INFERENCE_MODEL_UNAVAILABLE
    rejected = LifecycleTransition(State.VALIDATE, State.EXECUTE, 2, "constraint_json_invalid")
    assert NEW.apply([], stored_events(rejected, COMPLETED)).last_error is Code.CONSTRAINT_JSON_INVALID


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
