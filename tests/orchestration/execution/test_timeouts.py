"""Timeouts of branches: the expiry is recorded first, and a replay and a recovery come to the same."""

from random import Random

import anyio
import pytest

from portico.capabilities.tools.definition import tool
from portico.domain.failures import Cancellation, Code, Failure, OrchestrationFailure
from portico.domain.journal.outcomes import AttemptCancelled, RaceDecided, StopDecision, ToolEnded
from portico.domain.lifecycle import TERMINAL, State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.position import PatternMisuse
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import chat_request, make_harness, replay_offline, response_of, scripted_engine
from tests.support.recovery import (
    cancel_after,
    check_recovery_after_every_commit,
    is_complete_log,
    open_starts,
    run_and_cancel,
)
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock


async def infer(context: RunContext) -> str:
    return (await context.infer(context.settings.messages)).text


async def hurried(context: RunContext) -> str:
    """Infer within two seconds, then infer again in any case."""
    try:
        first = await context.with_timeout(2, infer)
    except Cancellation as late:
        first = late.code
    return f"{first} {await infer(context)}"


def shown(each: object) -> str:
    return each.code if isinstance(each, Failure) else str(each)


async def test_a_branch_in_time_gives_its_result_and_leaves_no_trace(clock: VirtualClock) -> None:
    here = make_harness(
        clock, scripted_engine(clock, "a", {"text": "quick", "delay": 1}, {"text": "more", "delay": 60})
    )
    response, record = await here.run(chat_request(), hurried)
    assert response.content == "quick more"
    assert list(record.steps) == ["prepare", "0/0/0", "0/0/0/0", "1", "1/0"]
    assert replay_offline(record, hurried) == len(record.steps)


async def test_a_branch_that_is_late_is_cut_off_at_that_moment_and_the_pattern_goes_on(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"text": "late", "delay": 60}, {"text": "more", "delay": 3}))
    began = clock.monotonic()
    response, record = await here.run(chat_request(), hurried)
    assert response.content == "CANCELLED_TIMEOUT more"
    assert clock.monotonic() - began == pytest.approx(5)
    assert list(record.steps) == ["prepare", "0/0/0", "0", "0/0/0/0", "1", "1/0"]
    assert (record.steps["0"].outcome, type(record.steps["0/0/0/0"].outcome)) == (RaceDecided(()), AttemptCancelled)
    assert open_starts(record.events) == []
    assert replay_offline(record, hurried) == len(record.steps)


async def test_what_was_cut_off_is_paid_for_and_not_shown(clock: VirtualClock) -> None:
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    late = {"text": "late", "delay": 60}

    async def abandoned(context: RunContext) -> str:
        text = await infer(context)
        try:
            await context.with_timeout(2, infer)
        except Cancellation:
            return text
        return "in time"

    here = make_harness(clock, scripted_engine(clock, "a", {"text": "early", "usage": usage}, late))
    response, _ = await here.run(chat_request(), abandoned)
    assert response.content == "early"
    assert response.token_usage.total_tokens > usage["total_tokens"]
    assert response.token_usage.estimated
    assert response.metadata.finish_reason == "stop"


async def test_the_parents_run_is_shut_while_its_time_runs(clock: VirtualClock) -> None:
    async def greedy(context: RunContext) -> str:
        async def steal(_: RunContext) -> str:
            return await infer(context)

        try:
            return await context.with_timeout(2, steal)
        except PatternMisuse as misuse:
            return str(misuse)

    response, _ = await make_harness(clock, scripted_engine(clock, "a")).run(chat_request(), greedy)
    assert response.content == "use the context you were given; the parent's is closed meanwhile"


async def test_a_crash_between_the_decision_and_the_cut_is_finished_in_the_same_way(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"text": "late", "delay": 60}, {"text": "more"}))
    _, record = await here.run(chat_request(), hurried)
    kept = {key: record.steps[key] for key in ("prepare", "0/0/0", "0")}
    cut = next(item for item in record.events if item.event.type == "inference.end")
    crashed = ExecutionHistory(record.header, kept, record.events[: cut.sequence_number - 1])
    response, after = await make_harness(clock, scripted_engine(clock, "a", {"text": "else"})).recover(crashed, hurried)
    assert response.content == "CANCELLED_TIMEOUT else"
    assert type(after.steps["0/0/0/0"].outcome) is AttemptCancelled
    assert open_starts(after.events) == []
    assert replay_offline(after, hurried) == len(after.steps)


async def test_a_branch_that_was_in_time_is_in_time_in_a_recovery(clock: VirtualClock) -> None:
    """The time of the effects counts, not that of the next owner after a crash."""
    here = make_harness(
        clock, scripted_engine(clock, "a", {"text": "quick", "delay": 1}, {"text": "never", "delay": 600})
    )
    execution = here.execution(chat_request())
    with anyio.move_on_after(5):
        await here.drive(execution, hurried)
    record = here.record(execution)
    await clock.sleep(1000)
    response, after = await make_harness(clock, scripted_engine(clock, "a", {"text": "more"})).recover(record, hurried)
    assert response.content == "quick more"
    assert replay_offline(after, hurried) == len(after.steps)


async def test_another_time_than_the_recorded_one_diverges(clock: VirtualClock) -> None:
    async def patient(context: RunContext) -> str:
        return await context.with_timeout(3, infer)

    async def hasty(context: RunContext) -> str:
        return await context.with_timeout(2, infer)

    _, record = await make_harness(clock, scripted_engine(clock, "a", {"text": "late", "delay": 60})).run(
        chat_request(), hasty
    )
    with pytest.raises(OrchestrationFailure) as caught:
        replay_offline(record, patient)
    assert caught.value.code is Code.ORCHESTRATION_REPLAY_DIVERGED


async def test_a_stop_while_the_time_runs_is_the_only_decision(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"text": "late", "delay": 60}))
    execution = here.execution(chat_request())
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_after, clock, 1, execution)
        await here.drive(execution, hurried)
    record = here.record(execution)
    assert response_of(execution).state is State.CANCELLED
    assert type(record.steps["stop"].outcome) is StopDecision
    assert "0" not in record.steps
    await clock.sleep(10)
    assert here.record(execution) == record
    assert replay_offline(record, hurried) == len(record.steps)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"), [(5, 2, "inner:late"), (2, 5, "outer:late"), (5, 9, "outer:late")]
)
async def test_of_two_times_the_one_that_passes_first_holds(
    clock: VirtualClock, outer: float, inner: float, expected: str
) -> None:
    async def nested(context: RunContext) -> str:
        async def within(door: RunContext) -> str:
            try:
                return await door.with_timeout(inner, infer)
            except Cancellation:
                return "inner:late"

        try:
            return await context.with_timeout(outer, within)
        except Cancellation:
            return "outer:late"

    response, record = await make_harness(clock, scripted_engine(clock, "a", {"text": "late", "delay": 60})).run(
        chat_request(), nested
    )
    assert response.content == expected
    assert open_starts(record.events) == []
    assert replay_offline(record, nested) == len(record.steps)


async def test_a_race_within_a_time_and_a_time_within_a_race(clock: VirtualClock) -> None:
    async def slow(context: RunContext) -> str:
        return await context.with_timeout(4, infer)

    async def race(context: RunContext) -> str:
        ends = await context.gather([slow, slow, slow], until=lambda finished: len(finished) == 2)
        return " ".join(f"{branch}:{shown(each)}" for branch, each in ends.items())

    async def both(context: RunContext) -> str:
        return await context.with_timeout(9, race)

    replies = [{"text": "x", "delay": 60}, {"text": "y", "delay": 1}, {"text": "z", "delay": 5}]
    response, record = await make_harness(clock, scripted_engine(clock, "a", *replies)).run(chat_request(), both)
    assert response.content == "0:CANCELLED_TIMEOUT 1:y"
    assert open_starts(record.events) == []
    assert replay_offline(record, both) == len(record.steps)


async def test_an_unsafe_call_is_not_cut_off_and_its_outcome_is_kept(clock: VirtualClock) -> None:
    acts: list[str] = []

    @tool(side_effects=SideEffects.WRITE, idempotent=False)
    async def write() -> str:
        """Write slowly."""
        acts.append("began")
        await clock.sleep(3)
        acts.append("done")
        return "written"

    async def writing(context: RunContext) -> str:
        try:
            await context.with_timeout(1, agent_loop)
        except Cancellation as late:
            return f"{late.code} {await infer(context)}"
        return "in time"

    replies = [{"tool_calls": [{"name": "write"}]}, {"text": "next"}]
    response, record = await make_harness(clock, scripted_engine(clock, "a", *replies), tools=[write]).run(
        chat_request(), writing
    )
    assert acts == ["began", "done"]
    assert response.content == "CANCELLED_TIMEOUT next"
    [ended] = [row.outcome for row in record.steps.values() if isinstance(row.outcome, ToolEnded)]
    assert ended.content == "written"
    assert replay_offline(record, writing) == len(record.steps)


async def test_a_question_suspends_and_its_time_does_not_run_meanwhile(clock: VirtualClock) -> None:
    async def gate(context: RunContext) -> str:
        return str(await context.suspend("?", "gate"))

    async def asking(context: RunContext) -> str:
        return await context.with_timeout(2, gate)

    here = make_harness(clock, scripted_engine(clock, "a"))
    response, record = await here.run(chat_request(), asking)
    assert response.state is State.SUSPENDED
    await clock.sleep(100)
    assert replay_offline(record, asking) == len(record.steps)
    assert "0" not in record.steps


async def hurrying(context: RunContext) -> str:
    """Set timeouts around tools, within and around early stops and within each other, some of which expire."""

    async def short(door: RunContext) -> str:
        return str(await door.with_timeout(1.5, agent_loop))

    async def racing(door: RunContext) -> str:
        ends = await door.gather([short, agent_loop, short], until=lambda finished: len(finished) == 2)
        return " ".join(map(shown, ends.values()))

    async def twice(door: RunContext) -> str:
        return await door.with_timeout(2.5, short)

    async def around(door: RunContext) -> str:
        return await door.with_timeout(3, racing)

    ends = await context.gather([around, twice, short, agent_loop])
    return await infer(context) + " ".join(map(shown, ends))


@pytest.mark.parametrize("seed", seeds(60))
async def test_random_times_replay_offline_identically(clock: VirtualClock, seed: int) -> None:
    response, record = await chaos_harness(clock, seed, ToolActions(), tool_rounds=3).run(chat_request(), hurrying)
    assert response.state in TERMINAL | {State.SUSPENDED}
    assert is_complete_log(record)
    assert len(open_starts(record.events)) == len(response.suspensions)
    assert replay_offline(record, hurrying) == len(record.steps)


@pytest.mark.parametrize("seed", seeds(8))
async def test_a_crash_after_any_commit_never_acts_twice_and_loses_no_event(clock: VirtualClock, seed: int) -> None:
    await check_recovery_after_every_commit(clock, seed, chat_request(), hurrying)


@pytest.mark.parametrize("block", seeds(3))
async def test_random_cancels_leave_every_start_with_its_end(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        here = chaos_harness(clock, seed, ToolActions(), tool_rounds=3)
        seconds = Random(seed).random() * 6
        response, record = await run_and_cancel(clock, here, chat_request(), seconds, hurrying)
        assert is_complete_log(record)
        assert open_starts(record.events) == []
        assert response.state in TERMINAL
        assert replay_offline(record, hurrying) == len(record.steps)
