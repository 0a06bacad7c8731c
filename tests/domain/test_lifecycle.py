"""Lifecycle: the edges of every mode, and the count of attempts."""

import itertools
import operator
from collections.abc import Iterator
from typing import Any, cast

import pytest

from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.lifecycle import NEXT, TERMINAL, Lifecycle, Mode, State, max_transitions

EVERYWHERE = "EXECUTE>SUSPENDED SUSPENDED>EXECUTE"
FORWARD = {
    Mode.CHAT: "INIT>PREPARE PREPARE>EXECUTE EXECUTE>COMPLETE EXECUTE>VALIDATE VALIDATE>COMPLETE VALIDATE>EXECUTE",
    Mode.STRUCTURED: "INIT>PREPARE PREPARE>EXECUTE EXECUTE>VALIDATE VALIDATE>COMPLETE VALIDATE>EXECUTE",
    Mode.PLAN: "INIT>PLAN PLAN>PREPARE PREPARE>EXECUTE EXECUTE>VALIDATE VALIDATE>COMPLETE VALIDATE>EXECUTE",
    Mode.REDUNDANT: "INIT>PREPARE PREPARE>EXECUTE EXECUTE>VALIDATE VALIDATE>COMPLETE",
    Mode.FLOW: "INIT>PREPARE PREPARE>EXECUTE EXECUTE>VALIDATE VALIDATE>COMPLETE",
}
ROWS = list(itertools.product(Mode, State))


def live_states(mode: Mode) -> set[State]:
    """Return the states of this mode that are not terminal."""
    named = {State(name) for edge in f"{FORWARD[mode]} {EVERYWHERE}".split() for name in edge.split(">")}
    return named - {State.COMPLETE}


def expected(mode: Mode, before: State, after: State) -> bool:
    """Return True if the behaviour page grants the edge."""
    if after in {State.ERROR, State.CANCELLED}:
        return before in live_states(mode)
    return f"{before}>{after}" in f"{FORWARD[mode]} {EVERYWHERE}".split()


@pytest.mark.parametrize(("mode", "before"), ROWS)
def test_each_edge_of_the_table_and_no_other(mode: Mode, before: State) -> None:
    assert NEXT[mode][before] == {after for after in State if expected(mode, before, after)}


@pytest.mark.parametrize(("mode", "before"), ROWS)
def test_an_edge_is_followed_and_a_missing_one_is_refused(mode: Mode, before: State) -> None:
    place = Lifecycle(mode, before)
    for after in State:
        if expected(mode, before, after):
            attempt = 2 if (before, after) == (State.VALIDATE, State.EXECUTE) else 1
            assert place.transition_to(after) == Lifecycle(mode, after, attempt)
            continue
        with pytest.raises(OrchestrationFailure) as refused:
            place.transition_to(after)
        assert refused.value.code is Code.ORCHESTRATION_INVALID_TRANSITION
    assert place == Lifecycle(mode, before, 1)


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_begins_in_init_at_attempt_1(mode: Mode) -> None:
    assert (Lifecycle(mode).state, Lifecycle(mode).attempt) == (State.INIT, 1)


def test_three_states_are_terminal() -> None:
    assert {State.COMPLETE, State.ERROR, State.CANCELLED} == TERMINAL
    assert all(NEXT[mode][state] == frozenset() for mode in Mode for state in TERMINAL)


@pytest.mark.parametrize("mode", Mode)
def test_every_reachable_state_can_still_end(mode: Mode) -> None:
    reached, waiting = {State.INIT}, [State.INIT]
    while waiting:
        for state in NEXT[mode][waiting.pop()] - reached:
            reached.add(state)
            waiting.append(state)
    assert reached == live_states(mode) | TERMINAL
    assert all(NEXT[mode][state] & TERMINAL for state in reached - TERMINAL)


def test_only_plan_mode_has_the_plan_state() -> None:
    for mode in Mode:
        knows = any(State.PLAN in following for following in NEXT[mode].values())
        assert knows == (mode is Mode.PLAN)


@pytest.mark.parametrize("mode", [Mode.CHAT, Mode.STRUCTURED, Mode.PLAN])
def test_each_return_from_validate_increments_the_attempt(mode: Mode) -> None:
    place = Lifecycle(mode, State.EXECUTE)
    for attempt in range(2, 6):
        place = place.transition_to(State.VALIDATE).transition_to(State.EXECUTE)
        assert place.attempt == attempt


def test_a_suspension_does_not_count_as_an_attempt() -> None:
    place = Lifecycle(Mode.CHAT, State.EXECUTE)
    assert place.transition_to(State.SUSPENDED).transition_to(State.EXECUTE) == place


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        operator.setitem(cast(Any, NEXT[Mode.CHAT]), State.INIT, frozenset())


def walks(place: Lifecycle, attempts: int, avoided: frozenset[State]) -> Iterator[int]:
    """Yield the number of changes of every walk from there to an end."""
    if place.state in TERMINAL:
        yield 0
        return
    for to in NEXT[place.mode][place.state] - avoided:
        after = place.transition_to(to)
        if after.attempt <= attempts:
            yield from (1 + changes for changes in walks(after, attempts, avoided))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("attempts", range(1, 5))
@pytest.mark.parametrize("unjudged", [False, True])
def test_the_maximum_is_the_longest_walk_with_that_many_attempts(mode: Mode, attempts: int, *, unjudged: bool) -> None:
    avoided = frozenset({State.VALIDATE}) if unjudged else frozenset()
    changes = max(walks(Lifecycle(mode), attempts, avoided | {State.SUSPENDED}))
    assert max_transitions(mode, attempts, avoided) == 1 + changes


def test_the_maximum_holds_for_every_configurable_number_of_attempts() -> None:
    assert max_transitions(Mode.STRUCTURED, 100) == 5 + 2 * 99
