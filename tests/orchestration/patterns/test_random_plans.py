"""Random plans of random steps: they end, replay identically, and a recovery never acts twice."""

from random import Random
from typing import Any

import pytest

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import StepStatus, SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import StepEnd, StepStart
from portico.domain.lifecycle import TERMINAL, State
from portico.domain.plan.graph import predecessors
from portico.orchestration.patterns.plan_executor import plan_executor
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions, chaos_harness
from tests.support.harness import replay_offline
from tests.support.random_plans import random_plan_request
from tests.support.recovery import (
    check_recovery_after_every_commit,
    is_complete_log,
    open_starts,
    open_steps,
    run_and_cancel,
)
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock


def holds(request: SystemRequest, response: SystemResponse, record: ExecutionHistory) -> None:
    """Check what holds for every plan that was started, in all of its ends."""
    assert request.plan is not None
    assert request.plan.steps is not None
    assert response.plan is not None
    reports, steps = response.plan.steps, request.plan.steps
    assert [report.name for report in reports] == [step.name for step in steps]
    for report, earlier in zip(reports, predecessors(steps), strict=True):
        completed = all(reports[each].status is StepStatus.COMPLETED for each in earlier)
        began = any(_is_of(item, report.name, StepStart) for item in record.events)
        assert completed or not began
        assert report.status is not StepStatus.SKIPPED or not completed
        assert report.status is not StepStatus.COMPLETED or began
        ended = [item.event.status for item in record.events if _is_of(item, report.name, StepEnd)]
        assert not ended or report.status is ended[-1]
    failed = [report.error.code for report in reports if report.error is not None]
    if response.state is State.ERROR:
        assert response.error is not None
        assert response.error.code == failed[0]
    if response.state is State.COMPLETE:
        assert {report.status for report in reports} == {StepStatus.COMPLETED}


def _is_of(item: Any, name: str, kind: type[Any]) -> bool:
    return isinstance(item.event, kind) and item.correlation.step_name == name


@pytest.mark.parametrize("block", seeds(6))
async def test_random_plans_end_and_replay_offline_identically(clock: VirtualClock, block: int) -> None:
    ends: set[tuple[State, Code | None]] = set()
    for seed in range(block * 50, block * 50 + 50):
        request = random_plan_request(Random(seed))
        response, record = await chaos_harness(clock, seed, ToolActions(), tool_rounds=3, attempts=2).run(
            request, plan_executor, make_plan
        )
        assert response.state in TERMINAL | {State.SUSPENDED}
        ends.add((response.state, response.error.code if response.error else None))
        if "prepare" in record.steps:
            holds(request, response, record)
        if response.state in TERMINAL:
            assert is_complete_log(record)
            assert open_starts(record.events) == open_steps(record.events) == []
        assert replay_offline(record, plan_executor, make_plan) == len(record.steps)
    assert len(ends) >= 5


@pytest.mark.parametrize("seed", seeds(24))
async def test_a_crash_after_any_commit_of_a_plan_never_acts_twice_and_loses_no_event(
    clock: VirtualClock, seed: int
) -> None:
    await check_recovery_after_every_commit(clock, seed, random_plan_request(Random(seed)), plan_executor, make_plan)


@pytest.mark.parametrize("block", seeds(4))
async def test_random_cancels_of_plans_leave_every_start_with_its_end(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        request = random_plan_request(Random(seed))
        here = chaos_harness(clock, seed, ToolActions(), tool_rounds=3, attempts=2)
        seconds = Random(seed).random() * 6
        response, record = await run_and_cancel(clock, here, request, seconds, plan_executor, make_plan)
        assert response.state in TERMINAL
        assert is_complete_log(record)
        assert open_starts(record.events) == open_steps(record.events) == []
        if "prepare" in record.steps:
            holds(request, response, record)
        assert replay_offline(record, plan_executor, make_plan) == len(record.steps)
