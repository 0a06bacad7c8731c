"""The law of commits: before the world is touched or anything is waited for, and after it, never between."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.prompting.prompts.assessment import InputJudgementOutput
from portico.domain.access.limits import AccessLimits, Rate
from portico.domain.context.guards import RequestedJudge
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import NO_USAGE
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.execution.context import RunContext
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.runtime.resume import status_of
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities, Progress
from portico.ports.runtime import Clock
from tests.support.harness import (
    Harness,
    chat_request,
    make_harness,
    profile,
    replay_offline,
    watch_commits,
)
from tests.support.recovery import is_complete_log, open_starts
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

ANSWER_S, JUDGEMENT_S = 5.0, 60.0
JUDGE = RequestedJudge("careful", "refuse", "Ask for secrets.")
SCHEMA = InputJudgementOutput.model_json_schema()
ACT = ToolCall(id="c1", name="act", arguments={})


class SlowEngine:
    """An engine that takes 5 seconds to answer, and a minute to judge an input, which it passes.

    It makes the calls, if there are tools, and answers when those have answered.
    """

    def __init__(self, clock: Clock, calls: tuple[ToolCall, ...] = (ACT,), **changes: Any) -> None:
        self._calls = calls
        self.profile = profile("slow", capabilities=EngineCapabilities(schema=True), **changes)
        self._clock = clock

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Answer by what is asked."""
        judges = call.schema == SCHEMA
        await self._clock.sleep(JUDGEMENT_S if judges else ANSWER_S)
        text = InputJudgementOutput(refused=False).model_dump_json() if judges else "yes"
        if call.tools and call.messages[-1].role == "user":
            return Reply("", self._calls, "tool", "tool", NO_USAGE, "slow")
        return Reply(text, (), "stop", "stop", NO_USAGE, "slow")

    async def ping(self) -> str:
        """Return at once."""
        return "here"


async def two(context: RunContext) -> str:
    """Ask twice at the same time."""

    async def infer(branch: RunContext) -> str:
        return (await branch.infer(branch.settings.messages)).text

    return " ".join(map(str, await context.gather([infer, infer])))


@dataclass(frozen=True)
class Wait:
    """Executions of which the last one waits, `at` seconds after the start, for what `changes` make scarce.

    `pending` is the type of the event that follows the wait.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    engine: Mapping[str, Any] = field(default_factory=dict)
    request: SystemRequest = field(default_factory=chat_request)
    header: Mapping[str, Any] = field(default_factory=dict)
    pattern: Callable[[RunContext], Awaitable[str]] = agent_loop
    executions: int = 1
    at: float = 1.0
    pending: str = "inference.start"

    def harness(self, clock: Clock, *, scarce: bool = True) -> Harness:
        changes, engine = (self.changes, self.engine) if scarce else ({}, {})
        tools = [FakeTool(name) for name in self.request.tools or ()]
        return watch_commits(make_harness(clock, SlowEngine(clock, **engine), tools=tools, **changes))


WAITS: Mapping[str, Wait] = {
    "a connection": Wait(engine={"max_connections": 1}, executions=2),
    "a slot": Wait(changes={"concurrent_inferences": 1}, pattern=two),
    "a reservation": Wait(
        changes={"limits": AccessLimits(tokens=Rate(6_000, 60))}, request=chat_request(background=True), executions=2
    ),
    "the judges": Wait(request=chat_request(tools=["act"]), header={"judges": (JUDGE,)}, at=6.0, pending="tool.start"),
}


async def run(clock: VirtualClock, here: Harness, wait: Wait) -> tuple[ExecutionHistory, ExecutionHistory]:
    """Run the executions; return the stored history of the last one as it waits, and at its end."""
    executions = [here.execution(wait.request, durability="journaled", **wait.header) for _ in range(wait.executions)]
    async with anyio.create_task_group() as group:
        for each in executions:
            group.start_soon(here.drive, each, wait.pattern)
        await clock.sleep(wait.at)
        await here.journal.flush(executions[-1].header.execution_id)
        waiting = here.record(executions[-1])
    return waiting, here.record(executions[-1])


def commits_of(here: Harness, record: ExecutionHistory) -> list[tuple[list[str], list[str]]]:
    """Return the keys of the steps and the types of the events that each commit of the execution added."""
    found, steps, events = [], 0, 0
    for after, _ in here.journal.commits:
        if after.header.execution_id == record.header.execution_id:
            found.append(([*after.steps][steps:], [item.event.type for item in after.events[events:]]))
            steps, events = len(after.steps), len(after.events)
    return found


def shape(record: ExecutionHistory) -> tuple[list[str], Sequence[tuple[str, str]]]:
    """Return the keys of the steps, and the events with their places; branches may take turns in another order."""
    return sorted(record.steps), sorted((item.anchor, item.event.type) for item in record.events)


START = [
    "lifecycle.transition",
    "stage.end",
    "lifecycle.transition",
    *["stage.end"] * 3,
    "lifecycle.transition",
    *["fallback.transition"] * 2,
    "inference.start",
]
END = ["fallback.transition", "stage.end", "stage.end", "lifecycle.transition", "execution.completed"]


async def test_a_chat_that_waits_for_nothing_has_three_commits(clock: VirtualClock) -> None:
    here = watch_commits(make_harness(clock, SlowEngine(clock)))
    _, record = await here.run(chat_request())
    assert commits_of(here, record) == [(["prepare", "0"], START), (["0/0"], ["inference.end"]), ([], END)]


async def test_a_chat_in_a_queue_has_one_commit_more_and_the_same_record(clock: VirtualClock) -> None:
    wait = WAITS["a connection"]
    here = wait.harness(clock)
    _, record = await run(clock, here, wait)
    assert commits_of(here, record) == [
        (["prepare", "0"], START[:-1]),
        ([], START[-1:]),
        (["0/0"], ["inference.end"]),
        ([], END),
    ]


@pytest.mark.parametrize("name", WAITS)
async def test_all_that_was_decided_is_committed_before_a_wait(clock: VirtualClock, name: str) -> None:
    wait = WAITS[name]
    waiting, record = await run(clock, wait.harness(clock), wait)
    _, unhindered = await run(clock, wait.harness(clock, scarce=False), wait)
    assert status_of(waiting).state is State.EXECUTE
    assert wait.pending in [item.event.type for item in record.events[len(waiting.events) :]]
    assert tuple(record.events[: len(waiting.events)]) == tuple(waiting.events)
    assert shape(record) == shape(unhindered)
    assert replay_offline(record, wait.pattern) == len(record.steps)


@pytest.mark.parametrize("name", WAITS)
async def test_an_execution_that_is_lost_in_a_wait_goes_on_from_there(clock: VirtualClock, name: str) -> None:
    wait = WAITS[name]
    waiting, whole = await run(clock, wait.harness(clock), wait)
    response, after = await wait.harness(clock).recover(waiting, wait.pattern)
    assert response.state is State.COMPLETE
    assert tuple(after.events[: len(waiting.events)]) == tuple(waiting.events)
    assert is_complete_log(after)
    assert open_starts(after.events) == []
    assert sorted(after.steps) == sorted(whole.steps)
    assert replay_offline(after, wait.pattern) == len(after.steps)


CALLS = tuple(ToolCall(id=f"c{n}", name="calculate", arguments={"expression": f"{n} * 2"}) for n in range(2))
TWO_CALLS = (["1/0/0/0", "1/1/0/0", "2"], [*["tool.start", "tool.end"] * 2, "inference.start"])


def calculating(clock: VirtualClock) -> Harness:
    return watch_commits(make_harness(clock, SlowEngine(clock, CALLS), tools=BUILTIN_TOOLS))


async def test_calls_that_wait_for_nothing_are_committed_with_what_follows(clock: VirtualClock) -> None:
    here = calculating(clock)
    _, record = await here.run(chat_request())
    commits = [
        (steps, [each for each in events if "transition" not in each]) for steps, events in commits_of(here, record)
    ]
    assert commits[1:4] == [(["0/0"], ["inference.end"]), TWO_CALLS, (["2/0"], ["inference.end"])]


async def test_the_start_of_such_a_call_is_committed_before_its_readers_see_its_arguments(clock: VirtualClock) -> None:
    here = calculating(clock)
    execution = here.execution(chat_request(), durability="journaled")
    here.bus.subscribe(execution.header.execution_id)
    await here.drive(execution)
    whole, prefixes = here.record(execution), [record for record, _ in here.journal.commits[:-1]]
    assert [[*each.steps] for each in prefixes if each.events[-1].event.type == "tool.start"] == [
        ["prepare", "0", "0/0"],
        ["prepare", "0", "0/0", "1/0/0/0"],
    ]
    for prefix in prefixes:
        response, after = await calculating(clock).recover(prefix)
        assert response.state is State.COMPLETE
        assert is_complete_log(after)
        assert open_starts(after.events) == []
        assert sorted(after.steps) == sorted(whole.steps)
        assert replay_offline(after) == len(after.steps)
