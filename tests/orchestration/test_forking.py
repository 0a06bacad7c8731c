"""Forks: which steps are kept, that they are the same ones, and that nothing in them is done twice."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.effects import PREPARE
from app.domain.failures import Code, RequestFailure
from app.domain.lifecycle import State
from app.domain.tools import SideEffects
from app.orchestration.execution import Execution
from app.orchestration.forking import ForkRequest, begun, kept
from app.orchestration.story import live
from app.ports import Record
from tests.orchestration.test_suspensions import SEND, sending
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock
from tests.support.world import Stage, ask, scripted, settled, stage, tell_again

SAID = [{"role": "user", "content": "and now?"}]


async def fork(here: Stage, origin: Record, from_step: int, **overrides: Any) -> tuple[Execution, Record]:
    """The execution that goes on from that step, at its end, and its record."""
    asked = ForkRequest.model_validate({"from_step": from_step, "overrides": overrides})
    fresh = replace(here.execution(origin.header.request).header, execution_id="fork", request_id="fork")
    header, rows = begun(fresh, origin, asked, tools=asked.overrides.tools)
    await here.journal.open(header, rows=rows)
    record = Record(header, {row.key: row for row in rows}, ())
    execution = Execution(header, world=here.world, journal=here.journal, record=record)
    await live(execution, here.story(execution))
    return execution, here.record(execution)


ACT = {"tool_calls": [{"name": "act", "arguments": {}}]}


def unsafe() -> FakeTool:
    """A tool that must not run twice, and needs nobody's leave."""
    return FakeTool(side_effects=SideEffects.WRITE, idempotent=False)


async def acted(clock: VirtualClock, tool: FakeTool, *more: dict[str, Any]) -> tuple[Stage, Record]:
    """An execution that did something that must not be done twice."""
    here = stage(clock, scripted(clock, "a", ACT, {"text": "done"}, *more), tools=[tool])
    return here, (await here.run(ask()))[1]


async def test_the_kept_steps_are_the_recorded_ones_and_unsafe_calls_in_them_are_not_repeated(
    clock: VirtualClock,
) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    await clock.sleep(86_400)
    execution, record = await fork(here, origin, 2, messages=SAID)
    assert tool.runs == 1
    assert (settled(execution).content, settled(execution).state) == ("again", State.COMPLETE)
    for row in kept(origin, 2):
        assert replace(record.rows[row.key], at=0.0) == replace(row, at=0.0)
    assert record.rows["2"].fingerprint != origin.rows["2"].fingerprint
    assert tell_again(record) == len(record.rows)
    assert execution.root.caused_by == origin.header.request_id


async def test_an_unsafe_call_behind_the_kept_steps_is_done_again(clock: VirtualClock) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"})
    await fork(here, origin, 1)
    assert tool.runs == 2


async def test_the_time_between_the_two_is_nobody_s(clock: VirtualClock) -> None:
    here, origin = await acted(clock, unsafe(), {"text": "again"})
    await clock.sleep(86_400)
    _, record = await fork(here, origin, 2)
    times = [row.at for row in record.rows.values()]
    assert times == sorted(times)
    assert max(times) - record.header.created_at < 60
    last = list(origin.rows.values())[-1].at - origin.header.created_at
    assert last < 60


async def test_what_may_have_been_left_undone_is_not_kept(clock: VirtualClock) -> None:
    here = stage(clock, scripted(clock, "a", SEND), tools=[sending([])])
    _, origin = await here.run(ask())
    with pytest.raises(RequestFailure) as refused:
        kept(origin, 2)
    assert refused.value.code is Code.REQUEST_INVALID
    assert [row.key for row in kept(origin, 1)] == [PREPARE, *(key for key in origin.rows if key.startswith("0"))]


async def test_a_fork_of_a_fork_keeps_what_was_kept(clock: VirtualClock) -> None:
    tool = unsafe()
    here, origin = await acted(clock, tool, {"text": "again"}, {"text": "and again"})
    _, first = await fork(here, origin, 2)
    here.journal.close("fork")
    second = stage(clock, scripted(clock, "a", {"text": "and again"}), tools=[tool])
    execution, record = await fork(second, first, 2, messages=SAID)
    assert settled(execution).content == "and again"
    assert tool.runs == 1
    assert tell_again(record) == len(record.rows)
