"""Offline replay: the report of the first difference names its place and both values, redacted and cut."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from portico.adapters.tools.builtin import ask_person
from portico.bootstrap.service import PATTERNS
from portico.domain.journal.events import ExecutionCompleted, LifecycleTransition, StageEnd, StoredEvent
from portico.domain.journal.outcomes import TimerFired
from portico.domain.journal.step_key import StepKey
from portico.domain.lifecycle import Mode
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.runtime.replay import OfflineReplayer, ReplayReport
from portico.ports.journal import ExecutionHistory
from tests.support.harness import chat_request, make_harness, scripted_engine
from tests.support.virtual_time import VirtualClock

SECRET = "sk-proj-abcdefghijklmnop123456"


async def recorded(clock: VirtualClock, text: str = "Hello") -> ExecutionHistory:
    here = make_harness(clock, scripted_engine(clock, "a", {"text": text}), tools=[ask_person])
    return (await here.run(chat_request()))[1]


def changed(record: ExecutionHistory, kind: type[Any], change: Callable[[Any], Any]) -> ExecutionHistory:
    """Return the record with the last event of that type changed."""
    events: list[StoredEvent] = [*record.events]
    index = max(index for index, item in enumerate(events) if isinstance(item.event, kind))
    events[index] = events[index]._replace(event=change(events[index].event))
    return replace(record, events=events)


def report(record: ExecutionHistory, run: Any = agent_loop, *, redacted: bool = True) -> ReplayReport:
    patterns = {**PATTERNS, Mode.CHAT: replace(PATTERNS[Mode.CHAT], run=run)}
    return OfflineReplayer(patterns).replay(record, redacted=redacted)


def difference(found: ReplayReport) -> tuple[str | None, str | None, str | None]:
    assert found.identical is False
    return found.field, found.recorded, found.replayed


async def test_a_value_of_an_event_that_differs_is_shown_on_both_sides(clock: VirtualClock) -> None:
    record = await recorded(clock)
    assert report(record).identical
    moved = changed(record, LifecycleTransition, lambda event: replace(event, reason="other"))
    assert difference(report(moved)) == ("$.reason", '"other"', '"answered"')
    timed = changed(record, StageEnd, lambda event: replace(event, outcome="error"))
    assert difference(report(timed)) == ("$.outcome", '"error"', '"ok"')


async def test_a_value_within_the_response_is_found_by_its_path_redacted_and_then_cut(clock: VirtualClock) -> None:
    record = await recorded(clock, f"{SECRET} " + "x" * 400)
    other = changed(
        record,
        ExecutionCompleted,
        lambda event: replace(event, response=event.response.model_copy(update={"content": "Hello"})),
    )
    field, before, now = difference(report(other))
    assert (field, before) == ("$.response.content", '"Hello"')
    assert now is not None
    assert now.startswith('"[redacted:')
    assert len(now) == 200
    assert difference(report(other, redacted=False))[2] == f'"{SECRET} ' + "x" * (200 - len(SECRET) - 2)


async def test_a_value_of_a_sensitive_key_is_redacted_although_its_path_leads_into_it(clock: VirtualClock) -> None:
    asked = {"tool_calls": [{"name": "ask_person", "arguments": {"question": "?", "password": "opened"}}]}
    here = make_harness(clock, scripted_engine(clock, "a", asked, {"text": "done"}))
    _, record = await here.run(chat_request())

    def change(event: ExecutionCompleted) -> ExecutionCompleted:
        [call] = event.response.tool_calls_made
        call = call.model_copy(update={"arguments": {**call.arguments, "password": "closed"}})
        return replace(event, response=event.response.model_copy(update={"tool_calls_made": [call]}))

    field, before, now = difference(report(changed(record, ExecutionCompleted, change)))
    assert field == "$.response.tool_calls_made[0].arguments.password"
    assert before == now == '"[redacted:password]"'


async def asks_twice(run: RunContext) -> Any:
    await agent_loop(run)
    return await agent_loop(run)


async def test_what_only_one_side_has_is_shown_whole(clock: VirtualClock) -> None:
    record = await recorded(clock)
    field, before, now = difference(report(record, asks_twice))
    assert (field, before) == ("$", None)
    assert now is not None
    key = StepKey("7")
    more = replace(
        record, steps={**record.steps, key: replace(record.steps[StepKey("0")], key=key, outcome=TimerFired())}
    )
    assert difference(report(more)) == ("$", '{"kind":"wait","outcome":{}}', None)


@pytest.mark.parametrize("key", ["0", "0/0"])
async def test_another_question_than_the_recorded_one_is_shown_by_its_fingerprint(
    clock: VirtualClock, key: str
) -> None:
    record = await recorded(clock)
    step = replace(record.steps[StepKey(key)], fingerprint="other")
    found = report(replace(record, steps={**record.steps, StepKey(key): step}))
    assert (found.step, difference(found)[:2]) == (key, ("$.fingerprint", '"other"'))
