"""Fallback grid, cell by cell, and its maximum number of transitions."""

import itertools
from collections.abc import Callable, Set
from functools import cache
from math import inf

import pytest

from portico.domain.fallback import (
    TABLE,
    TERMINAL,
    Event,
    FallbackFsm,
    InvalidTransition,
    State,
    max_attempts,
    max_transitions,
    max_transitions_if_answered,
)

TERMINAL_STATES = (State.SUCCEEDED, State.EXHAUSTED, State.ABORTED)
ABORTED, ATTEMPTING, EXHAUSTED = State.ABORTED, State.ATTEMPTING, State.EXHAUSTED
IDLE, RETRYING, SELECTING, SUCCEEDED = State.IDLE, State.RETRYING, State.SELECTING, State.SUCCEEDED

EVENTS = (
    Event.START,
    Event.PROVIDER_SUCCESS,
    Event.RETRYABLE_ERROR,
    Event.FATAL_ERROR,
    Event.USER_ABORT,
    Event.TIMEOUT,
)
REFUSED = None
# fmt: off
GRID = {
    #             START       SUCCESS      RETRYABLE    FATAL        ABORT        TIMEOUT
    IDLE:        (SELECTING,  REFUSED,     REFUSED,     REFUSED,     ABORTED,     ABORTED),
    SELECTING:   (REFUSED,    ATTEMPTING,  REFUSED,     EXHAUSTED,   ABORTED,     ABORTED),
    ATTEMPTING:  (REFUSED,    SUCCEEDED,   RETRYING,    ABORTED,     ABORTED,     RETRYING),
    RETRYING:    (REFUSED,    ATTEMPTING,  ATTEMPTING,  ABORTED,     ABORTED,     SELECTING),
    SUCCEEDED:   (SUCCEEDED,) * 6,
    EXHAUSTED:   (EXHAUSTED,) * 6,
    ABORTED:     (ABORTED,) * 6,
}
# fmt: on
CELLS = [(state, event, to) for state, row in GRID.items() for event, to in zip(EVENTS, row, strict=True)]
SIZES = list(itertools.product(range(4), range(4)))

Place = tuple[State, int, int]
"""Configuration of a machine: state, candidates left, retries spent."""


def machine(place: Place, max_retries: int) -> FallbackFsm:
    fsm = FallbackFsm(place[1], max_retries)
    fsm.state, fsm.retries_spent = place[0], place[2]
    return fsm


def place_of(fsm: FallbackFsm) -> Place:
    return fsm.state, fsm.candidates_left, fsm.retries_spent


def steps_from(place: Place, max_retries: int) -> dict[Event, Place]:
    """Return every configuration that one event leads to, without refused events."""
    following: dict[Event, Place] = {}
    for event in Event:
        fsm = machine(place, max_retries)
        if event in TABLE[place[0]]:
            fsm.fire(event)
            following[event] = place_of(fsm)
    return following


def longest_walk(
    candidates: int,
    max_retries: int,
    counted: Callable[[State], bool] = lambda after: True,
    ends: Set[State] = TERMINAL,
) -> float:
    """The most state changes that are counted, by where they lead, before one of those ends, over all event sequences.

    A walk that came back to a place it had left could be repeated for ever, so that is an error here.
    """
    under_way: set[Place] = set()

    @cache
    def longest(place: Place) -> float:
        if place[0] in TERMINAL:
            return 0 if place[0] in ends else -inf
        assert place not in under_way, f"a circle through {place}"
        under_way.add(place)
        following = steps_from(place, max_retries).values()
        most = max(counted(after[0]) + longest(after) for after in following)
        under_way.remove(place)
        return most

    return longest((State.IDLE, candidates, 0))


def test_the_grid_has_42_cells_of_which_7_are_refused() -> None:
    assert len(CELLS) == 42
    assert sum(to is REFUSED for *_, to in CELLS) == 7


@pytest.mark.parametrize(("state", "event", "to"), CELLS)
def test_each_cell_while_a_candidate_and_a_retry_are_left(state: State, event: Event, to: State | None) -> None:
    fsm = machine((state, 2, 0), 1)
    if to is REFUSED:
        with pytest.raises(InvalidTransition) as refused:
            fsm.fire(event)
        assert (refused.value.state, refused.value.event) == (state, event)
        assert (place_of(fsm), fsm.transitions) == ((state, 2, 0), 0)
        return
    assert fsm.fire(event) is to
    assert fsm.state is to
    assert fsm.transitions == (0 if state in TERMINAL_STATES else 1)


@pytest.mark.parametrize(("state", "event", "to"), CELLS)
def test_an_absent_cell_of_the_table_is_refused(state: State, event: Event, to: State | None) -> None:
    assert (event in TABLE[state]) == (to is not REFUSED)


@pytest.mark.parametrize(("state", "event"), [(s, e) for s, e, to in CELLS if to is REFUSED])
@pytest.mark.parametrize(("candidates", "max_retries"), SIZES)
def test_a_refused_event_changes_nothing(state: State, event: Event, candidates: int, max_retries: int) -> None:
    for spent in range(max_retries + 1):
        fsm = machine((state, candidates, spent), max_retries)
        with pytest.raises(InvalidTransition):
            fsm.fire(event)
        assert (place_of(fsm), fsm.max_retries) == ((state, candidates, spent), max_retries)
        assert fsm.transitions == 0


@pytest.mark.parametrize(("candidates", "max_retries"), SIZES)
def test_every_event_sequence_ends_within_the_maximum_and_one_reaches_it(candidates: int, max_retries: int) -> None:
    assert max_transitions(candidates, max_retries) == candidates * (2 * max_retries + 3) + 2
    assert longest_walk(candidates, max_retries) == max_transitions(candidates, max_retries)


@pytest.mark.parametrize(("candidates", "max_retries"), [size for size in SIZES if size[0]])
def test_an_answered_walk_is_at_most_two_changes_shorter(candidates: int, max_retries: int) -> None:
    longest = longest_walk(candidates, max_retries, ends={SUCCEEDED})
    assert (
        max_transitions_if_answered(candidates, max_retries) == longest == max_transitions(candidates, max_retries) - 2
    )


@pytest.mark.parametrize(("candidates", "max_retries"), SIZES)
def test_the_maximum_number_of_attempts_is_reached_and_never_exceeded(candidates: int, max_retries: int) -> None:
    attempts = longest_walk(candidates, max_retries, counted=lambda after: after is ATTEMPTING)
    assert max_attempts(candidates, max_retries) == attempts
    if candidates:
        answered = longest_walk(candidates, max_retries, lambda after: after is ATTEMPTING, {SUCCEEDED})
        assert answered == attempts


@pytest.mark.parametrize(("candidates", "max_retries"), SIZES)
def test_the_machine_counts_its_own_changes_on_every_path(candidates: int, max_retries: int) -> None:
    reached = {(State.IDLE, candidates, 0): 0}
    waiting: list[tuple[Place, int]] = [((State.IDLE, candidates, 0), 0)]
    while waiting:
        place, changes = waiting.pop()
        for event in steps_from(place, max_retries):
            fsm = machine(place, max_retries)
            fsm.transitions = changes
            fsm.fire(event)
            after = place_of(fsm)
            assert fsm.transitions == changes + (place[0] not in TERMINAL)
            assert fsm.transitions <= max_transitions(candidates, max_retries)
            if reached.get(after, -1) < fsm.transitions:
                reached[after] = fsm.transitions
                waiting.append((after, fsm.transitions))
    assert {state for state, *_ in reached} >= {State.EXHAUSTED, State.ABORTED}


def test_the_pipeline_seeds_own_bounds_are_exceeded_by_its_own_table() -> None:
    assert longest_walk(2, 1) > 2 * 2 + 1
    assert longest_walk(2, 1) > 2 * (2 * 1 + 2) + 1


@pytest.mark.parametrize("state", TERMINAL_STATES)
def test_a_terminal_state_ignores_every_sequence_uncounted(state: State) -> None:
    fsm = machine((state, 1, 0), 1)
    for events in itertools.product(Event, repeat=3):
        for event in events:
            assert fsm.fire(event) is state
    assert (place_of(fsm), fsm.transitions) == ((state, 1, 0), 0)


@pytest.mark.parametrize("state", [State.IDLE, State.SELECTING])
@pytest.mark.parametrize("event", [Event.USER_ABORT, Event.TIMEOUT])
def test_amended_a_cancel_or_deadline_can_come_before_the_first_attempt(state: State, event: Event) -> None:
    assert machine((state, 1, 0), 1).fire(event) is State.ABORTED


def test_amended_selecting_without_a_candidate_is_exhausted() -> None:
    fsm = FallbackFsm(0, 3)
    fsm.fire(Event.START)
    assert fsm.fire(Event.PROVIDER_SUCCESS) is State.EXHAUSTED


@pytest.mark.parametrize("event", [Event.PROVIDER_SUCCESS, Event.RETRYABLE_ERROR])
@pytest.mark.parametrize("max_retries", range(4))
def test_amended_retrying_spends_a_retry_or_moves_on(event: Event, max_retries: int) -> None:
    fsm = machine((State.RETRYING, 1, 0), max_retries)
    for spent in range(1, max_retries + 1):
        assert fsm.retry_left
        assert fsm.fire(event) is State.ATTEMPTING
        assert fsm.retries_spent == spent
        fsm.fire(Event.RETRYABLE_ERROR)
    assert not fsm.retry_left
    assert fsm.fire(event) is State.SELECTING


def test_amended_the_next_candidate_has_all_its_retries() -> None:
    fsm = machine((State.SELECTING, 1, 2), 2)
    assert fsm.fire(Event.PROVIDER_SUCCESS) is State.ATTEMPTING
    assert (fsm.retries_spent, fsm.candidates_left) == (0, 0)


@pytest.mark.parametrize("max_retries", range(4))
def test_giving_up_a_candidate_leaves_its_retries_unspent(max_retries: int) -> None:
    fsm = machine((State.RETRYING, 2, 0), max_retries)
    assert fsm.fire(Event.TIMEOUT) is State.SELECTING
    assert fsm.candidates_left == 2


@pytest.mark.parametrize(("candidates", "max_retries"), [(-1, 0), (0, -1)])
def test_negative_counts_are_refused(candidates: int, max_retries: int) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        FallbackFsm(candidates, max_retries)
