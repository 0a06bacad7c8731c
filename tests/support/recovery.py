"""Checks of journals: whole logs, starts without an end, and recovery after a crash at any commit."""

from collections.abc import Sequence
from typing import Any, Protocol

import anyio

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import StepEnd, StepStart, StoredEvent
from portico.domain.lifecycle import State
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import Clock
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import Harness, replay_offline, response_of, watch_commits
from tests.support.virtual_time import VirtualClock

TERMINAL_TYPES = {"execution.completed", "execution.failed", "execution.cancelled"}


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


def is_complete_log(record: ExecutionHistory) -> bool:
    numbers = [item.sequence_number for item in record.events]
    terminal = [item.event.type for item in record.events if item.event.type in TERMINAL_TYPES]
    return (
        numbers == list(range(1, len(numbers) + 1))
        and len(terminal) == 1
        and terminal[0] == record.events[-1].event.type
    )


class MakeHarness(Protocol):
    """Makes a harness from a seed."""

    def __call__(self, clock: Clock, seed: int, acts: ToolActions, **bounds: Any) -> Harness: ...


def committing_harness(clock: VirtualClock, seed: int, acts: ToolActions, make: MakeHarness = chaos_harness) -> Harness:
    here = make(clock, seed, acts, tool_rounds=3)
    return watch_commits(here, acts.performed)


async def check_recovery(
    clock: VirtualClock,
    seed: int,
    record: ExecutionHistory,
    done: Sequence[tuple[str, str]],
    pattern: Any = agent_loop,
    planning: Any = None,
    make: MakeHarness = chaos_harness,
) -> ExecutionHistory:
    acts = ToolActions()
    acts.performed += done
    response, after = await make(clock, seed + 1_000, acts, tool_rounds=3).recover(record, pattern, planning)
    assert acts.repeated_writes == []
    assert tuple(after.events[: len(record.events)]) == tuple(record.events)
    assert all(after.steps[key] == row for key, row in record.steps.items())
    if response.state is State.SUSPENDED:
        assert {each.kind for each in response.suspensions} == {"unknown_outcome"}
        assert len(open_starts(after.events)) == len(response.suspensions)
    else:
        assert is_complete_log(after)
        assert open_starts(after.events) == open_steps(after.events) == []
    replay_offline(after, pattern, planning)
    return after


async def check_recovery_after_every_commit(
    clock: VirtualClock,
    seed: int,
    request: SystemRequest,
    pattern: Any = agent_loop,
    planning: Any = None,
    make: MakeHarness = chaos_harness,
) -> None:
    """Run the request once, then recover from every prefix of its commits that did not come to rest."""
    acts = ToolActions()
    here = committing_harness(clock, seed, acts, make)
    await here.run(request, pattern, planning)
    commits = here.journal.commits
    for number, (record, _) in enumerate(commits):
        if record.events and record.events[-1].event.type in TERMINAL_TYPES | {"execution.suspended"}:
            continue
        await check_recovery(clock, seed, record, acts.performed[: commits[number + 1][1]], pattern, planning, make)


async def run_and_cancel(
    clock: VirtualClock,
    here: Harness,
    request: SystemRequest,
    seconds: float,
    pattern: Any = agent_loop,
    planning: Any = None,
) -> tuple[SystemResponse, ExecutionHistory]:
    """Cancel an execution after so many seconds; return its response and its record."""
    execution = here.execution(request)
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_after, clock, seconds, execution)
        await here.drive(execution, pattern, planning)
    return response_of(execution), here.record(execution)


async def cancel_after(clock: VirtualClock, seconds: float, execution) -> None:
    await clock.sleep(seconds)
    execution.stop(Code.CANCELLED_SIGNAL, "the client cancelled it")
