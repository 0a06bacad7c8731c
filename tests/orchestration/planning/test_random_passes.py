"""Random reasoning in passes: it ends within its passes, replays identically, and a recovery never acts twice."""

from random import Random

import pytest

from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import StepStatus, SystemResponse
from portico.domain.journal.events import PassEnd, StepStart
from portico.domain.lifecycle import TERMINAL, State
from portico.orchestration.planning.plan_mode import make_plan, run_plan
from portico.ports.journal import ExecutionHistory
from tests.support.chaos import ToolActions
from tests.support.harness import replay_offline
from tests.support.random_passes import random_reasoning, reasoning_harness
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
    """Check what holds for every execution in passes, in all of its ends."""
    assert request.plan is not None
    assert request.plan.policy is not None
    ends = [item.event for item in record.events if isinstance(item.event, PassEnd)]
    assert [end.pass_number for end in ends] == list(range(1, len(ends) + 1))
    assert len(ends) <= request.plan.passes
    assert all(not end.converged for end in ends[:-1])
    left = [end.ttl_remaining for end in ends if not end.converged]
    assert left == sorted(left, reverse=True)
    started = [(item.correlation.step_name, item.event) for item in record.events if isinstance(item.event, StepStart)]
    first_attempts = [name for name, event in started if event.attempt == 1]
    assert len(first_attempts) == len(set(first_attempts))
    assert len(first_attempts) <= (request.plan.policy.max_steps or 50)
    assert all(event.pass_number is not None for _, event in started)
    assert max((str(name).count("/") for name in first_attempts), default=0) <= 5
    if response.state in {State.COMPLETE, State.ERROR}:
        assert response.final_answer is not None
        assert response.content == response.final_answer.answer_text
        converged = bool(ends) and ends[-1].converged
        assert converged or response.final_answer.is_degraded
    if response.state is State.COMPLETE and response.plan is not None:
        assert all(step.status is not StepStatus.PENDING for step in response.plan.steps)


@pytest.mark.parametrize("block", seeds(4))
async def test_random_reasoning_ends_and_replays_offline_identically(clock: VirtualClock, block: int) -> None:
    ends: set[tuple[State, int]] = set()
    for seed in range(block * 40, block * 40 + 40):
        request = random_reasoning(Random(seed))
        response, record = await reasoning_harness(clock, seed, ToolActions(), tool_rounds=3, attempts=2).run(
            request, run_plan, make_plan
        )
        assert response.state in TERMINAL | {State.SUSPENDED}
        holds(request, response, record)
        ends.add((response.state, sum(isinstance(item.event, PassEnd) for item in record.events)))
        if response.state in TERMINAL:
            assert is_complete_log(record)
            assert open_starts(record.events) == open_steps(record.events) == []
        assert replay_offline(record, run_plan, make_plan) == len(record.steps)
    assert len(ends) >= 4


@pytest.mark.parametrize("seed", seeds(16))
async def test_a_crash_after_any_commit_of_reasoning_never_acts_twice_and_loses_no_event(
    clock: VirtualClock, seed: int
) -> None:
    await check_recovery_after_every_commit(
        clock, seed, random_reasoning(Random(seed)), run_plan, make_plan, reasoning_harness
    )


@pytest.mark.parametrize("block", seeds(2))
async def test_random_cancels_of_reasoning_leave_every_start_with_its_end(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        request = random_reasoning(Random(seed))
        here = reasoning_harness(clock, seed, ToolActions(), tool_rounds=3, attempts=2)
        response, record = await run_and_cancel(clock, here, request, Random(seed).random() * 12, run_plan, make_plan)
        assert response.state in TERMINAL
        assert is_complete_log(record)
        assert open_starts(record.events) == open_steps(record.events) == []
        holds(request, response, record)
        assert replay_offline(record, run_plan, make_plan) == len(record.steps)
