"""Forks: which steps are kept, that they are the same ones, and that nothing in them is done twice."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.failures import Code, RequestFailure
from app.domain.journal.step_key import PREPARE_KEY
from app.domain.lifecycle import State
from app.domain.tools import SideEffects
from app.orchestration.execution.execution import Execution
from app.orchestration.runtime.fork import ForkRequest, fork_execution, inherited_steps
from app.ports.journal import ExecutionHistory
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, response_of, scripted_engine
from tests.support.send_tool import SEND, sending
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

SAID = [{"role": "user", "content": "and now?"}]


async def fork(
    here: Harness, origin: ExecutionHistory, from_step: int, **overrides: Any
) -> tuple[Execution, ExecutionHistory]:
    """The execution that goes on from that step, at its end, and its record."""
    asked = ForkRequest.model_validate({"from_step": from_step, "overrides": overrides})
    header = here.execution(origin.header.request).header
    fresh = replace(header, execution_id="fork", request_id="fork", durability="journaled")
    header, rows = fork_execution(fresh, origin, asked, tools=asked.overrides.tools)
    await here.journal.open(header, steps=rows)
    record = ExecutionHistory(header, {row.key: row for row in rows}, ())
    execution = Execution(header, environment=here.environment, journal=here.journal, history=record)
    await here.drive(execution)
    return execution, here.record(execution)


ACT = {"tool_calls": [{"name": "act", "arguments": {}}]}


def unsafe() -> FakeTool:
    """A tool that must not run twice, and needs nobody's leave."""
    return FakeTool(side_effects=SideEffects.WRITE, idempotent=False)


async def acted(clock: VirtualClock, tool: FakeTool, *more: dict[str, Any]) -> tuple[Harness, ExecutionHistory]:
    """An execution that did something that must not be done twice."""
    here = make_harness(clock, scripted_engine(clock, "a", ACT, {"text": "done"}, *more), tools=[tool])
    return here, (await here.run(chat_request()))[1]


async def test_the_kept_steps_are_the_recorded_ones_and_unsafe_calls_in_them_are_not_repeated(
    clock: VirtualClock,
) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    await clock.sleep(86_400)
    execution, record = await fork(here, origin, 2, messages=SAID)
    assert tool.run_count == 1
    assert (response_of(execution).content, response_of(execution).state) == ("again", State.COMPLETE)
    for row in inherited_steps(origin, 2):
        assert replace(record.steps[row.key], at=0.0) == replace(row, at=0.0)
    assert record.steps["2"].fingerprint != origin.steps["2"].fingerprint
    assert replay_offline(record) == len(record.steps)
    assert execution.correlation.caused_by == origin.header.request_id


async def test_an_unsafe_call_behind_the_kept_steps_is_done_again(clock: VirtualClock) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    await fork(here, origin, 1)
    assert tool.run_count == 2


async def test_the_time_between_the_two_is_nobody_s(clock: VirtualClock) -> None:
    here, origin = await acted(clock, unsafe(), {"text": "again"})
    await clock.sleep(86_400)
    _, record = await fork(here, origin, 2)
    times = [row.at for row in record.steps.values()]
    assert times == sorted(times)
    assert max(times) - record.header.created_at < 60
    last = list(origin.steps.values())[-1].at - origin.header.created_at
    assert last < 60


async def test_what_may_have_been_left_undone_is_not_kept(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", SEND), tools=[sending([])])
    _, origin = await here.run(chat_request())
    with pytest.raises(RequestFailure) as refused:
        inherited_steps(origin, 2)
    assert refused.value.code is Code.REQUEST_INVALID
    assert [row.key for row in inherited_steps(origin, 1)] == [
        PREPARE_KEY,
        *(key for key in origin.steps if key.startswith("0")),
    ]


async def test_a_fork_of_a_fork_keeps_what_was_kept(clock: VirtualClock) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"}, {"text": "and again"})
    _, first = await fork(here, origin, 2)
    here.journal.close("fork")
    second = make_harness(clock, scripted_engine(clock, "a", {"text": "and again"}), tools=[tool])
    execution, record = await fork(second, first, 2, messages=SAID)
    assert response_of(execution).content == "and again"
    assert tool.run_count == 1
    assert replay_offline(record) == len(record.steps)
