"""Record and replay: a replay is identical, a recovery never acts twice, a stop leaves nothing open."""

from dataclasses import replace
from random import Random

import anyio
import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain import fallback
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.journal.events import FallbackTransition, InferenceEnd, InferenceRetracted, InferenceStart
from portico.domain.journal.outcomes import AttemptSucceeded, RecordedStep, ToolEnded
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import TERMINAL, State
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import (
    Harness,
    chat_request,
    make_harness,
    replay_offline,
    response_of,
    scripted_engine,
    watch_commits,
)
from tests.support.recovery import (
    check_recovery_after_every_commit,
    is_complete_log,
    open_starts,
    run_and_cancel,
)
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock

ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}]}


@pytest.mark.parametrize("seed", seeds(150))
async def test_random_runs_replay_offline_identically(clock: VirtualClock, seed: int) -> None:
    response, record = await chaos_harness(clock, seed, ToolActions(), tool_rounds=4).run(chat_request())
    assert response.state in TERMINAL
    assert is_complete_log(record)
    assert replay_offline(record) == len(record.steps)


async def test_an_offline_replay_never_touches_the_journal_it_reads(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", ROLL, {"text": "ok"}), tools=BUILTIN_TOOLS)
    _, record = await here.run(chat_request())
    before = len(here.log.items)
    replay_offline(record)
    assert len(here.log.items) == before


def changed(row: RecordedStep) -> RecordedStep:
    match row.outcome:
        case AttemptSucceeded(reply):
            return replace(row, outcome=replace(row.outcome, reply=replace(reply, text=f"{reply.text}!")))
        case ToolEnded():
            return replace(row, outcome=replace(row.outcome, content="something else"))
        case _:
            return replace(row, fingerprint="another")


async def test_one_changed_recorded_effect_diverges_and_names_the_step(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", ROLL, {"text": "ok"}), tools=BUILTIN_TOOLS)
    _, record = await here.run(chat_request())
    assert len(record.steps) == 6
    for key, row in record.steps.items():
        forged = replace(record, steps={**record.steps, key: changed(row)})
        with pytest.raises(OrchestrationFailure) as caught:
            replay_offline(forged)
        assert caught.value.code is Code.ORCHESTRATION_REPLAY_DIVERGED
        assert caught.value.details["step"]


async def test_a_missing_and_a_surplus_step_diverge(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", ROLL, {"text": "ok"}), tools=BUILTIN_TOOLS)
    _, record = await here.run(chat_request())
    for key in record.steps:
        rows = {each: row for each, row in record.steps.items() if each != key}
        with pytest.raises(OrchestrationFailure):
            replay_offline(replace(record, steps=rows))
    surplus = RecordedStep("9", "x", next(iter(record.steps.values())).outcome, 0.0)
    with pytest.raises(OrchestrationFailure) as caught:
        replay_offline(replace(record, steps={**record.steps, "9": surplus}))
    assert caught.value.details["step"] == "9"


async def test_a_pattern_that_awaits_anything_foreign_is_found_out(clock: VirtualClock) -> None:
    async def foreign(context) -> str:
        reply = await context.infer(context.settings.messages)
        await anyio.sleep(1)
        return reply.text

    _, record = await make_harness(clock, scripted_engine(clock, "primary", {"text": "ok"})).run(
        chat_request(), foreign
    )
    with pytest.raises(RuntimeError, match="may await only its context"):
        replay_offline(record, foreign)


@pytest.mark.parametrize("seed", seeds(60))
async def test_a_crash_after_any_commit_never_acts_twice_and_loses_no_event(clock: VirtualClock, seed: int) -> None:
    await check_recovery_after_every_commit(clock, seed, chat_request())


@pytest.mark.parametrize("block", seeds(20))
async def test_a_thousand_random_cancels_leave_every_start_with_its_end(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        here = chaos_harness(clock, seed, ToolActions(), tool_rounds=4)
        seconds = Random(seed).random() * 6
        response, record = await run_and_cancel(clock, here, chat_request(), seconds)
        assert is_complete_log(record)
        assert open_starts(record.events) == []
        assert response.state in TERMINAL
        assert replay_offline(record) == len(record.steps)


async def test_a_cancel_before_the_first_step_still_ends_in_cancelled(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", {"text": "never"}))
    execution = here.execution(chat_request())
    execution.stop(Code.CANCELLED_SIGNAL, "the client cancelled it")
    await here.drive(execution)
    record = here.record(execution)
    assert [item.event.type for item in record.events] == [
        "lifecycle.transition",
        "stage.end",
        "lifecycle.transition",
        "execution.cancelled",
    ]
    assert response_of(execution).state is State.CANCELLED
    replay_offline(record)


async def test_the_deadline_is_recorded_before_anything_is_cut_off(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", {"text": "late", "delay": 100}), timeout=5)
    response, record = await here.run(chat_request())
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert list(record.steps) == ["prepare", "0", "stop", "0/0"]
    aborted = [item.event for item in record.events if item.event.type == "fallback.transition"][-1]
    assert (aborted.fsm_event, aborted.to_state) == ("USER_ABORT", "ABORTED")
    assert replay_offline(record) == len(record.steps)


async def test_a_cancellation_without_a_decision_is_a_hand_over_to_the_next_owner(
    clock: VirtualClock,
) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", {"text": "late", "delay": 100}))
    execution = here.execution(chat_request())
    with anyio.move_on_after(5):
        await here.drive(execution)
    record = here.record(execution)
    assert list(record.steps) == ["prepare", "0"]
    assert execution.response is None
    response, after = await make_harness(clock, scripted_engine(clock, "primary", {"text": "taken over"})).recover(
        record
    )
    assert response.content == "taken over"
    assert is_complete_log(after)
    segments = [item.event.type for item in after.events if item.event.type.startswith("inference")]
    assert segments == ["inference.start", "inference.retracted", "inference.start", "inference.end"]
    assert replay_offline(after) == len(after.steps)


def restarted(clock: VirtualClock) -> Harness:
    """Return a service that has just started, whose engine answers once."""
    return watch_commits(make_harness(clock, scripted_engine(clock, "primary", {"text": "ok"})))


async def interrupted_chat(clock: VirtualClock) -> ExecutionHistory:
    """Return the record of a chat up to the start of its inference."""
    here = restarted(clock)
    await here.run(chat_request())
    records = [record for record, _ in here.journal.commits]
    return next(each for each in records if any(isinstance(item.event, InferenceStart) for item in each.events))


def segments(record: ExecutionHistory) -> list[tuple[str, str]]:
    return [
        (each.event.type, each.event.segment)
        for each in record.events
        if isinstance(each.event, InferenceStart | InferenceRetracted | InferenceEnd)
    ]


async def test_an_inference_that_runs_again_after_a_crash_starts_a_new_segment(clock: VirtualClock) -> None:
    record = await interrupted_chat(clock)
    _, after = await restarted(clock).recover(record)
    assert segments(after) == [
        ("inference.start", "0/0"), ("inference.retracted", "0/0"),
        ("inference.start", "0/0#2"), ("inference.end", "0/0#2"),
    ]  # fmt: skip
    answered = [each.event for each in after.events if isinstance(each.event, FallbackTransition)][-1]
    assert (answered.to_state, answered.segment) == (fallback.State.SUCCEEDED, "0/0#2")
    assert StepKey("0/0") in after.steps
    assert replay_offline(after) == len(after.steps)


async def test_every_further_run_of_an_inference_retracts_the_one_before(clock: VirtualClock) -> None:
    record = await interrupted_chat(clock)
    _, second = await restarted(clock).recover(record)
    last_start = max(index for index, each in enumerate(second.events) if isinstance(each.event, InferenceStart))
    crashed = replace(record, events=second.events[: last_start + 1])
    _, third = await restarted(clock).recover(crashed)
    assert segments(third)[-3:] == [
        ("inference.retracted", "0/0#2"), ("inference.start", "0/0#3"), ("inference.end", "0/0#3")
    ]  # fmt: skip
    assert replay_offline(third) == len(third.steps)


async def test_a_record_in_which_both_runs_have_one_segment_still_replays(clock: VirtualClock) -> None:
    record = await interrupted_chat(clock)
    _, after = await restarted(clock).recover(record)
    events = [
        each._replace(event=replace(each.event, segment="0/0")) if getattr(each.event, "segment", None) else each
        for each in after.events
    ]
    assert replay_offline(replace(after, events=events)) == len(after.steps)
