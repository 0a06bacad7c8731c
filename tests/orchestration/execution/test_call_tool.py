"""A tool call that no model asked for: its record, its events, and what it may never do."""

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.tools.definition import tool
from portico.domain.contract.messages import ToolResult
from portico.domain.failures import Code
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.orchestration.execution.context import RunContext
from portico.ports.journal import ExecutionHistory
from portico.ports.tool import Tool, ToolContext, ToolError, ToolOutcomeUnknown
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.recovery import open_starts
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock


async def calling(context: RunContext) -> str:
    """Call the tool `act` and return its result."""
    return shown(await context.call_tool("act", {"number": 1}))


def shown(result: ToolResult) -> str:
    return f"{result.code}:{result.content}:{result.attempts}"


def act(clock: VirtualClock, *outcomes: str | float, **changes: object) -> tuple[Tool, list[str]]:
    """Return a tool with these outcomes in turn: a text is returned, `!` fails, `?` loses its
    connection, a number waits for so many seconds.
    """
    left, done = list(outcomes), list[str]()

    @tool(**{"side_effects": SideEffects.WRITE, "idempotent": False} | changes)
    async def act(number: int) -> str:
        """Act."""
        done.append(f"began {number}")
        outcome = left.pop(0)
        if isinstance(outcome, float):
            await clock.sleep(outcome)
            return "late"
        if outcome == "!":
            raise ToolError("no luck")
        if outcome == "?":
            raise ToolOutcomeUnknown("the connection broke")
        return outcome

    return act, done


async def test_a_call_has_an_id_of_its_own_and_stands_among_those_made(clock: VirtualClock) -> None:
    doing, done = act(clock, "done")
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[doing]).run(
        chat_request(), calling
    )
    assert (response.content, done) == ("None:done:1", ["began 1"])
    [made] = response.tool_calls_made
    assert (made.id, made.name, made.arguments, made.result) == ("call_0", "act", {"number": 1}, "done")
    types = [item.event.type for item in record.events if item.event.type.startswith("tool")]
    assert types == ["tool.start", "tool.end"]
    assert list(record.steps) == ["prepare", "0", "0/0/0/decision/0", "0/0/0/0"]
    assert replay_offline(record, calling) == len(record.steps)


async def test_every_attempt_at_a_call_has_its_key_and_no_other_call_has_it(clock: VirtualClock) -> None:
    keys: list[str] = []

    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def look(number: int, context: ToolContext) -> str:
        """Fail the first time."""
        keys.append(context.idempotency_key)
        if len(keys) % 2 == 1:
            raise ToolError("no luck")
        return "seen"

    async def twice(context: RunContext) -> str:
        for _ in range(2):
            await context.call_tool("look", {"number": 1})
        return "done"

    here = make_harness(clock, scripted_engine(clock, "a"), tools=[look])
    for _ in range(2):
        await here.run(chat_request(), twice)
    assert len(keys) == 8
    assert keys[::2] == keys[1::2]
    assert len(set(keys)) == 4


async def test_an_idempotent_call_that_failed_is_made_once_more_and_another_is_not(clock: VirtualClock) -> None:
    safe, twice = act(clock, "!", "done", idempotent=True, side_effects=SideEffects.READ)
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[safe]).run(chat_request(), calling)
    assert (response.content, len(twice)) == ("None:done:2", 2)
    assert replay_offline(record, calling) == len(record.steps)
    unsafe, once = act(clock, "!", "done")
    response, _ = await make_harness(clock, scripted_engine(clock, "a"), tools=[unsafe]).run(chat_request(), calling)
    assert (response.content, len(once)) == ("TOOL_EXECUTION_FAILED:The tool failed: no luck:1", 1)


@pytest.mark.parametrize(("idempotent", "condition"), [(True, "idempotent"), (False, "not idempotent")])
async def test_a_failed_call_says_whether_it_may_be_made_again(
    clock: VirtualClock, idempotent: bool, condition: str
) -> None:
    conditions: list[str | None] = []

    async def judging(context: RunContext) -> str:
        failure = (await context.call_tool("act", {"number": 1})).failure()
        assert failure is not None
        conditions.append(failure.condition)
        return failure.message

    doing, _ = act(clock, "!", "!", idempotent=idempotent, side_effects=SideEffects.NONE)
    _, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[doing]).run(chat_request(), judging)
    replay_offline(record, judging)
    assert conditions == [condition, condition]


async def test_a_tool_that_cannot_run_now_is_unavailable_and_does_not_run(clock: VirtualClock) -> None:
    gone = FakeTool("act")
    gone.unavailable_reason = "the disk is gone"
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[gone]).run(chat_request(), calling)
    assert response.content == "TOOL_UNAVAILABLE:The tool cannot run right now: the disk is gone.:0"
    assert gone.run_count == 0
    assert replay_offline(record, calling) == len(record.steps)


@pytest.mark.parametrize("tools", [[], ["roll_dice"]])
async def test_a_tool_that_the_request_does_not_name_is_no_tool(clock: VirtualClock, tools: list[str]) -> None:
    doing, done = act(clock, "done")
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[doing, *BUILTIN_TOOLS])
    response, record = await here.run(chat_request(tools=tools), calling)
    assert (response.tool_calls_made[0].is_error, done) == (True, [])
    assert (response.content or "").startswith(Code.TOOL_NOT_FOUND)
    assert replay_offline(record, calling) == len(record.steps)


async def test_a_name_of_no_tool_and_arguments_that_do_not_fit_are_results_too(clock: VirtualClock) -> None:
    async def mistaken(context: RunContext) -> str:
        unknown, unfit = await context.call_tool("nothing", {}), await context.call_tool("act", {"number": "one"})
        return f"{unknown.code} {unfit.code}"

    doing, done = act(clock)
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[doing]).run(
        chat_request(), mistaken
    )
    assert (response.content, done) == ("TOOL_NOT_FOUND TOOL_EXECUTION_FAILED", [])
    assert [made.id for made in response.tool_calls_made] == ["call_0", "call_1"]
    assert replay_offline(record, mistaken) == len(record.steps)


@pytest.mark.parametrize("outcome", [100.0, "?"], ids=["timeout", "lost connection"])
async def test_an_unsafe_call_that_is_in_doubt_waits_for_a_person_and_is_never_made_again(
    clock: VirtualClock, outcome: str | float
) -> None:
    doing, done = act(clock, outcome, timeout=1)
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[doing]).run(
        chat_request(), calling
    )
    assert response.state is State.SUSPENDED
    [waiting] = response.suspensions
    assert (waiting.kind, waiting.tool_id, waiting.tool_call_id) == ("unknown_outcome", "act", "call_0")
    assert [(call.status, call.result) for call in response.tool_calls_made] == [("waiting", None)]
    again, done_again = act(clock, "done")
    response, _ = await make_harness(clock, scripted_engine(clock, "a"), tools=[again]).recover(record, calling)
    assert response.state is State.SUSPENDED
    assert (done, done_again) == (["began 1"], [])


async def test_an_unsafe_call_that_had_begun_before_a_crash_is_in_doubt(clock: VirtualClock) -> None:
    doing, _ = act(clock, "done")
    _, whole = await make_harness(clock, scripted_engine(clock, "a"), tools=[doing]).run(chat_request(), calling)
    began = next(item for item in whole.events if item.event.type == "tool.start")
    kept = {key: whole.steps[key] for key in ("prepare", "0")}
    crashed = ExecutionHistory(whole.header, kept, whole.events[: began.sequence_number])
    again, done = act(clock, "done")
    response, after = await make_harness(clock, scripted_engine(clock, "a"), tools=[again]).recover(crashed, calling)
    assert (response.state, done) == (State.SUSPENDED, [])
    assert len(open_starts(after.events)) == 1


async def test_an_unsafe_call_that_a_sibling_branch_has_made_waits_for_a_person(clock: VirtualClock) -> None:
    """The branches are concurrent: the decision is recorded, so a replay does not depend on their order."""

    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def look() -> str:
        """Look for a while."""
        await clock.sleep(2)
        return "seen"

    async def call_late(context: RunContext) -> str:
        await context.call_tool("look", {})
        return await calling(context)

    async def both(context: RunContext) -> str:
        return " ".join(map(str, await context.gather([calling, call_late])))

    failing, done = act(clock, "!", "done")
    here = make_harness(clock, scripted_engine(clock, "a"), tools=[failing, look])
    response, record = await here.run(chat_request(), both)
    assert (response.state, [each.kind for each in response.suspensions]) == (State.SUSPENDED, ["approval"])
    assert done == ["began 1"]
    assert replay_offline(record, both) == len(record.steps)


async def test_calls_of_several_branches_run_at_once_and_are_listed_in_the_order_of_the_branches(
    clock: VirtualClock,
) -> None:
    async def both(context: RunContext) -> str:
        ends = await context.gather([calling, calling])
        return " ".join(map(str, ends))

    doing, _ = act(clock, 3.0, 2.0)
    began = clock.monotonic()
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tools=[doing]).run(chat_request(), both)
    assert clock.monotonic() - began == pytest.approx(3)
    assert [made.id for made in response.tool_calls_made] == ["call_0/0/0", "call_0/1/0"]
    assert replay_offline(record, both) == len(record.steps)
