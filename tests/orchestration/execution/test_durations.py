"""Durations: a wall clock that is set while an execution runs changes none of them."""

import pytest

from portico.domain.contract.response import StepStatus
from portico.domain.journal.events import StageEnd, StepEnd
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.recorder import ReplayCursor
from portico.ports.journal import ExecutionHistory
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.virtual_time import VirtualClock

HOUR = 3_600.0


class SettableClock(VirtualClock):
    """A clock whose wall time can be set."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


async def two_rounds(context: RunContext) -> str:
    context.start_step("infer")
    await context.infer(context.settings.messages)
    await context.infer(context.settings.messages)
    context.end_step(StepStatus.COMPLETED)
    return "done"


async def run_while_set(by: float) -> ExecutionHistory:
    """Run two inferences of two seconds each; during the first one the wall clock is set."""
    clock = SettableClock()

    def set_wall_clock() -> None:
        clock.ahead += by

    here = make_harness(clock, scripted_engine(clock, "a", {"text": "one", "delay": 2}, {"text": "two", "delay": 2}))
    clock.call_later(1, set_wall_clock)
    _, record = await here.run(chat_request(), two_rounds)
    return record


@pytest.mark.parametrize("by", [-HOUR, HOUR])
async def test_a_wall_clock_that_is_set_changes_no_duration(by: float) -> None:
    record = await run_while_set(by)
    step = next(each.event for each in record.events if isinstance(each.event, StepEnd))
    stages = {each.event.stage: each.event for each in record.events if isinstance(each.event, StageEnd)}
    assert step.duration_ms == pytest.approx(4_000)
    assert stages["Execute"].duration_ms == pytest.approx(4_000)
    assert record.events[-1].at - record.events[0].at == pytest.approx(4)
    assert replay_offline(record, two_rounds) == len(record.steps)


@pytest.mark.parametrize("by", [-HOUR, HOUR])
async def test_a_wall_clock_that_is_set_takes_and_gives_no_running_time(by: float) -> None:
    record = await run_while_set(by)
    assert ReplayCursor(record).remaining_seconds(600.0) == pytest.approx(596)
