"""The law of the journal: replay is identical, recovery never acts twice, a stop leaves nothing open."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import anyio
import pytest

from app.adapters.stores.memory_journal import MemoryJournal
from app.adapters.tools.builtin import BUILTIN_TOOLS
from app.domain.contract.messages import Message
from app.domain.failures import Code, OrchestrationFailure
from app.domain.journal.events import StepEnd, StepStart, StoredEvent, UnnumberedEvent
from app.domain.journal.outcomes import AttemptSucceeded, RecordedStep, ToolEnded
from app.domain.lifecycle import TERMINAL, State
from app.orchestration.patterns.agent_loop import agent_loop
from app.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, response_of, scripted_engine
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock

ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}]}
TERMINAL_TYPES = {"execution.completed", "execution.failed", "execution.cancelled"}


class Committing(MemoryJournal):
    """Remembers what was committed after every put, and how much had been done in the world by then."""

    def watch_commits(self, acts: ToolActions) -> list[tuple[ExecutionHistory, int]]:
        self.acts = acts
        self.commits: list[tuple[ExecutionHistory, int]] = []
        return self.commits

    def put(
        self,
        execution_id: str,
        row: RecordedStep | None,
        events: Sequence[UnnumberedEvent],
        new_messages: Sequence[Message] = (),
    ) -> None:
        super().put(execution_id, row, events, new_messages)
        record = self.record(execution_id)
        assert record is not None
        self.commits.append((record, len(self.acts.performed)))


def open_starts(events: Sequence[StoredEvent]) -> list[object]:
    """Starts without an end, by segment or call."""
    begun: list[object] = []
    for item in events:
        event = item.event
        match event.type:
            case "inference.start":
                begun.append(event.segment)
            case "inference.end" | "inference.retracted" if event.segment in begun:
                begun.remove(event.segment)
            case "tool.start":
                begun.append((item.anchor, event.tool_call_id))
            case "tool.end":
                begun.remove((item.anchor, event.tool_call_id))
    return begun


def open_steps(events: Sequence[StoredEvent]) -> list[tuple[str | None, int]]:
    """Steps of a plan without an end, by name and attempt."""
    begun: list[tuple[str | None, int]] = []
    for item in events:
        match item.event:
            case StepStart(attempt=attempt):
                begun.append((item.correlation.step_name, attempt))
            case StepEnd(attempt=attempt):
                begun.remove((item.correlation.step_name, attempt))
    return begun


def is_a_whole_log(record: ExecutionHistory) -> bool:
    numbers = [item.sequence_number for item in record.events]
    terminal = [item.event.type for item in record.events if item.event.type in TERMINAL_TYPES]
    return (
        numbers == list(range(1, len(numbers) + 1))
        and len(terminal) == 1
        and terminal[0] == record.events[-1].event.type
    )


@pytest.mark.parametrize("seed", seeds(150))
async def test_random_runs_replay_offline_identically(clock: VirtualClock, seed: int) -> None:
    response, record = await chaos_harness(clock, seed, ToolActions(), tool_rounds=4).run(chat_request())
    assert response.state in TERMINAL
    assert is_a_whole_log(record)
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
    async def foreign(run) -> str:
        reply = await run.infer(run.settings.messages)
        await anyio.sleep(1)
        return reply.text

    _, record = await make_harness(clock, scripted_engine(clock, "primary", {"text": "ok"})).run(
        chat_request(), foreign
    )
    with pytest.raises(RuntimeError, match="may await only its context"):
        replay_offline(record, foreign)


@pytest.mark.parametrize("seed", seeds(60))
async def test_a_crash_after_any_commit_never_acts_twice_and_loses_no_event(clock: VirtualClock, seed: int) -> None:
    acts = ToolActions()
    here = committing(clock, seed, acts)
    await here.run(chat_request())
    commits = here.journal.commits
    for number, (record, _) in enumerate(commits):
        if record.events and record.events[-1].event.type in TERMINAL_TYPES | {"execution.suspended"}:
            continue
        done_by_then = acts.performed[: commits[number + 1][1]]
        await check_recovery(clock, seed, record, done_by_then)


def committing(clock: VirtualClock, seed: int, acts: ToolActions) -> Harness:
    here = chaos_harness(clock, seed, acts, tool_rounds=3)
    here.journal = Committing(clock, here.bus, keep_ended=100)
    here.environment = replace(here.environment, journal=here.journal)
    here.journal.watch_commits(acts)
    return here


async def check_recovery(
    clock: VirtualClock,
    seed: int,
    record: ExecutionHistory,
    done: Sequence[tuple[str, str]],
    pattern: Any = agent_loop,
    planning: Any = None,
) -> ExecutionHistory:
    acts = ToolActions()
    acts.performed += done
    response, after = await chaos_harness(clock, seed + 1_000, acts, tool_rounds=3).recover(record, pattern, planning)
    assert acts.repeated_writes == []
    assert tuple(after.events[: len(record.events)]) == tuple(record.events)
    assert all(after.steps[key] == row for key, row in record.steps.items())
    if response.state is State.SUSPENDED:
        assert {each.kind for each in response.suspensions} == {"unknown_outcome"}
        assert len(open_starts(after.events)) == len(response.suspensions)
    else:
        assert is_a_whole_log(after)
        assert open_starts(after.events) == open_steps(after.events) == []
    replay_offline(after, pattern, planning)
    return after


@pytest.mark.parametrize("block", seeds(20))
async def test_a_thousand_random_cancels_leave_every_start_with_its_end(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        here = chaos_harness(clock, seed, ToolActions(), tool_rounds=4)
        execution = here.execution(chat_request())
        async with anyio.create_task_group() as group:
            group.start_soon(cancel_after, clock, Random(seed).random() * 6, execution)
            await here.drive(execution)
        record = here.record(execution)
        assert is_a_whole_log(record)
        assert open_starts(record.events) == []
        assert response_of(execution).state in TERMINAL
        assert replay_offline(record) == len(record.steps)


async def cancel_after(clock: VirtualClock, seconds: float, execution) -> None:
    await clock.sleep(seconds)
    execution.stop(Code.CANCELLED_SIGNAL, "the client cancelled it")


async def test_a_cancel_before_the_first_step_still_ends_in_cancelled(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", {"text": "never"}))
    execution = here.execution(chat_request())
    execution.stop(Code.CANCELLED_SIGNAL, "the client cancelled it")
    await here.drive(execution)
    record = here.record(execution)
    assert [item.event.type for item in record.events] == [
        "lifecycle.transition",
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


async def test_a_cancellation_nobody_decided_records_nothing_and_the_next_owner_continues(clock: VirtualClock) -> None:
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
    assert is_a_whole_log(after)
    segments = [item.event.type for item in after.events if item.event.type.startswith("inference")]
    assert segments == ["inference.start", "inference.retracted", "inference.start", "inference.end"]
    assert replay_offline(after) == len(after.steps)
