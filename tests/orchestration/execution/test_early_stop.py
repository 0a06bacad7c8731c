"""Early stop of a gather: the winners are recorded first, and a replay and a recovery come to the same."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from portico.domain.failures import Code, Failure, OrchestrationFailure
from portico.domain.journal.outcomes import AttemptCancelled, RaceDecided, RecordedStep
from portico.domain.lifecycle import TERMINAL, State
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.recovery import (
    check_recovery_after_every_commit,
    is_complete_log,
    open_starts,
    run_and_cancel,
)
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock


def enough(many: int) -> Any:
    def until(finished: Mapping[int, Any]) -> bool:
        return len(finished) >= many

    return until


def shown(each: object) -> str:
    return each.code if isinstance(each, Failure) else str(each)


async def infer(context: RunContext) -> str:
    return (await context.infer(context.settings.messages)).text


async def first(context: RunContext) -> str:
    results = await context.gather([infer, infer, infer], until=enough(1))
    return " ".join(f"{branch}:{shown(result)}" for branch, result in results.items())


async def inner(context: RunContext) -> str:
    results = await context.gather([agent_loop, agent_loop], until=enough(1))
    return await agent_loop(context) + " ".join(map(shown, results.values()))


async def racing(context: RunContext) -> str:
    """Gather branches with tools and with early stops of their own, then infer again."""
    results = await context.gather([agent_loop, inner, agent_loop, inner], until=enough(2))
    plain = await context.gather([agent_loop, inner])
    every = await context.gather([infer, agent_loop], until=enough(2))
    said = [f"{branch}:{shown(each)}" for branch, each in results.items()]
    return await infer(context) + " ".join([*said, *map(shown, plain), *map(shown, every.values())])


async def test_the_first_that_is_enough_counts_and_the_others_are_cut_off(clock: VirtualClock) -> None:
    began = clock.monotonic()
    engine = scripted_engine(
        clock, "a", {"text": "x", "delay": 3}, {"text": "y", "delay": 1}, {"text": "z", "delay": 2}
    )
    response, record = await make_harness(clock, engine).run(chat_request(), first)
    assert response.content == "1:y"
    assert clock.monotonic() - began == pytest.approx(1)
    assert list(record.steps) == [
        "prepare",
        *(f"0/{each}/0" for each in range(3)),
        "0/1/0/0",
        "0",
        "0/0/0/0",
        "0/2/0/0",
    ]
    assert record.steps["0"].outcome == RaceDecided((1,))
    assert {type(record.steps[key].outcome) for key in ("0/0/0/0", "0/2/0/0")} == {AttemptCancelled}
    assert open_starts(record.events) == []
    assert replay_offline(record, first) == len(record.steps)


async def test_a_crash_between_the_decision_and_the_cuts_is_finished_in_the_same_way(clock: VirtualClock) -> None:
    engine = scripted_engine(
        clock, "a", {"text": "x", "delay": 3}, {"text": "y", "delay": 1}, {"text": "z", "delay": 2}
    )
    here = make_harness(clock, engine)
    _, record = await here.run(chat_request(), first)
    keys = list(record.steps)
    kept = keys[: keys.index("0") + 1]
    last = next(item for item in record.events if item.anchor == "0/0/0/0" and item.event.type == "inference.end")
    crashed = ExecutionHistory(
        record.header, {key: record.steps[key] for key in kept}, record.events[: last.sequence_number - 1]
    )
    response, after = await make_harness(clock, scripted_engine(clock, "a")).recover(crashed, first)
    assert response.content == "1:y"
    assert {type(after.steps[key].outcome) for key in ("0/0/0/0", "0/2/0/0")} == {AttemptCancelled}
    assert is_complete_log(after)
    assert open_starts(after.events) == []
    assert replay_offline(after, first) == len(after.steps)


async def test_a_question_of_a_branch_that_did_not_count_is_not_asked_any_more(clock: VirtualClock) -> None:
    async def gate(context: RunContext) -> str:
        return str(await context.suspend("?", "gate"))

    async def asked_or_answered(context: RunContext) -> str:
        return str(await context.gather([gate, infer], until=enough(1)))

    response, record = await make_harness(clock, scripted_engine(clock, "a", {"text": "on", "delay": 1})).run(
        chat_request(), asked_or_answered
    )
    assert (response.state, response.content) == (State.COMPLETE, "{1: 'on'}")
    assert response.suspensions == []
    assert replay_offline(record, asked_or_answered) == len(record.steps)


@pytest.mark.parametrize("counted", [(0,), (0, 1), ()])
async def test_another_decision_than_the_recorded_one_diverges(counted: tuple[int, ...], clock: VirtualClock) -> None:
    engine = scripted_engine(
        clock, "a", {"text": "x", "delay": 3}, {"text": "y", "delay": 1}, {"text": "z", "delay": 2}
    )
    _, record = await make_harness(clock, engine).run(chat_request(), first)
    forged = RecordedStep("0", record.steps["0"].fingerprint, RaceDecided(counted), record.steps["0"].at)
    with pytest.raises(OrchestrationFailure) as caught:
        replay_offline(ExecutionHistory(record.header, {**record.steps, "0": forged}, record.events), first)
    assert caught.value.code is Code.ORCHESTRATION_REPLAY_DIVERGED


async def test_a_divergence_within_a_branch_that_did_not_count_is_found(clock: VirtualClock) -> None:
    engine = scripted_engine(
        clock, "a", {"text": "x", "delay": 3}, {"text": "y", "delay": 1}, {"text": "z", "delay": 2}
    )
    _, record = await make_harness(clock, engine).run(chat_request(), first)
    changed = RecordedStep("0/0/0", "another", record.steps["0/0/0"].outcome, record.steps["0/0/0"].at)
    with pytest.raises(OrchestrationFailure) as caught:
        replay_offline(ExecutionHistory(record.header, {**record.steps, "0/0/0": changed}, record.events), first)
    assert caught.value.code is Code.ORCHESTRATION_REPLAY_DIVERGED


@pytest.mark.parametrize("seed", seeds(100))
async def test_random_races_replay_offline_identically(clock: VirtualClock, seed: int) -> None:
    response, record = await chaos_harness(clock, seed, ToolActions(), tool_rounds=3).run(chat_request(), racing)
    assert response.state in TERMINAL | {State.SUSPENDED}
    assert is_complete_log(record)
    assert open_starts(record.events) == []
    assert replay_offline(record, racing) == len(record.steps)


@pytest.mark.parametrize("seed", seeds(12))
async def test_a_crash_after_any_commit_of_a_race_never_acts_twice_and_loses_no_event(
    clock: VirtualClock, seed: int
) -> None:
    await check_recovery_after_every_commit(clock, seed, chat_request(), racing)


@pytest.mark.parametrize("block", seeds(4))
async def test_random_cancels_of_races_leave_every_start_with_its_end(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        here = chaos_harness(clock, seed, ToolActions(), tool_rounds=3)
        seconds = Random(seed).random() * 12
        response, record = await run_and_cancel(clock, here, chat_request(), seconds, racing)
        assert is_complete_log(record)
        assert open_starts(record.events) == []
        assert response.state in TERMINAL
        assert replay_offline(record, racing) == len(record.steps)
