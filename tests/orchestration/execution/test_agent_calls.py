"""Agents as tools: nested runs under the caller's budget, rights, ledger, limits and deadline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest

from portico.domain.access.principal import Permissions
from portico.domain.contract.request import Limits, OutputContract
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import InferenceStart
from portico.domain.journal.outcomes import AgentCallStarted, InferenceSetup
from portico.domain.lifecycle import Mode, State
from portico.domain.tools import SideEffects
from portico.ports.journal import ExecutionHistory
from portico.ports.tool import ToolContext, ToolError
from tests.support.agents import AgentWorld, agent, asks, calls_made, to
from tests.support.harness import answer_suspension, open_suspensions, replay_offline, response_of
from tests.support.recovery import TERMINAL_TYPES, cancel_after, is_complete_log, open_starts
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

SAYS, DONE = {"text": "from the inner"}, {"text": "done"}
ACT, SEND = asks(("act", {})), asks(("send", {"to": "Ada"}))


async def refuse(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
    raise ToolError("no connection")


async def ask_whom(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
    raise ToolError.suspend("whom?")


async def sleep_long(_arguments: Mapping[str, Any], context: ToolContext) -> str:
    await context.clock.sleep(100)
    return "slept"


def sender(**fields: Any) -> FakeTool:
    """Return a tool that must not run twice."""
    return FakeTool("send", idempotent=False, side_effects=SideEffects.WRITE, **fields)


def offered(record: ExecutionHistory) -> list[list[str]]:
    """Return the tools of each inference, in order."""
    setups = (step.outcome for step in record.steps.values() if isinstance(step.outcome, InferenceSetup))
    return [[tool.name for tool in setup.tools] for setup in setups]


def is_sound(record: ExecutionHistory) -> bool:
    return is_complete_log(record) and not open_starts(record.events) and replay_offline(record) == len(record.steps)


async def test_the_calls_of_an_agent_are_listed_with_its_name(clock: VirtualClock) -> None:
    here = AgentWorld(
        clock, [agent("helper", "act")], [FakeTool()], outer=[asks(to("helper")), DONE], inner=[ACT, SAYS]
    )
    response, record = await here.run("agent:helper")
    assert response.content == "done"
    assert calls_made(response) == [
        ("agent__helper", None, "from the inner", False),
        ("act", "agent:helper", "done", False),
    ]
    assert [message.role for message in response.messages] == ["assistant", "tool", "assistant"]
    assert (response.metadata.provider, response.metadata.tool_rounds) == ("outer", 2)
    named = [each.correlation.step_name for each in record.events if isinstance(each.event, InferenceStart)]
    assert named == [None, "agent:helper", "agent:helper", None]
    assert is_sound(record)


async def test_an_agent_has_a_span_below_that_of_its_call(clock: VirtualClock) -> None:
    here = AgentWorld(clock, [agent("helper")], outer=[asks(to("helper")), DONE], inner=[SAYS])
    _, record = await here.run("agent:helper")
    [call] = [each.correlation for each in record.events if each.event.type == "tool.start"]
    inner = next(each.correlation for each in record.events if each.correlation.step_name == "agent:helper")
    parents = {each.correlation.parent_span_id for each in record.events if each.correlation.step_name is not None}
    assert call.span_id in parents
    assert inner.caused_by == call.caused_by


SIZE = OutputContract.model_validate(
    {"schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}
)


@pytest.mark.parametrize("mode", [Mode.STRUCTURED, Mode.REDUNDANT])
async def test_an_agent_of_another_mode_answers_with_its_value(clock: VirtualClock, mode: Mode) -> None:
    sizer, answers = agent("sizer", mode=mode, output=SIZE), [{"text": '{"n": 1}'}] * 3
    here = AgentWorld(clock, [sizer], outer=[asks(to("sizer")), DONE], inner=answers)
    response, record = await here.run("agent:sizer")
    assert calls_made(response) == [("agent__sizer", None, '{"n":1}', False)]
    assert response.structured_output is None
    assert is_sound(record)


async def test_a_failed_agent_is_an_error_for_the_model_that_called_it(clock: VirtualClock) -> None:
    sizer = agent("sizer", mode=Mode.STRUCTURED, output=SIZE)
    here = AgentWorld(clock, [sizer], outer=[asks(to("sizer")), DONE], inner=[{"text": "x"}] * 3, attempts=3)
    response, record = await here.run("agent:sizer")
    [call] = response.tool_calls_made
    assert call.is_error
    assert call.result.startswith("The agent failed: ")
    assert (response.state, response.content) == (State.COMPLETE, "done")
    assert is_sound(record)


async def test_arguments_that_do_not_fit_are_refused_before_the_agent_starts(clock: VirtualClock) -> None:
    here = AgentWorld(clock, [agent("helper")], outer=[asks(("agent:helper", {"task": "go"})), DONE])
    response, record = await here.run("agent:helper")
    [call] = response.tool_calls_made
    assert (call.is_error, call.attempts) == (True, 0)
    assert is_sound(record)


async def test_agents_call_each_other_four_levels_deep(clock: VirtualClock) -> None:
    names = ["a", "b", "c", "d", "e"]
    chain = [
        agent(name, *(f"agent:{below}" for below in names[index + 1 : index + 2])) for index, name in enumerate(names)
    ]
    inner = [*(asks(to(name)) for name in names[1:]), *[{"text": "up"}] * 4]
    here = AgentWorld(clock, chain, outer=[asks(to("a")), DONE], inner=inner)
    response, record = await here.run("agent:a")
    made = calls_made(response)
    assert [name for name, *_ in made] == [f"agent__{name}" for name in names]
    assert [is_error for *_, is_error in made] == [False] * 4 + [True]
    assert "4 levels deep" in made[-1][2]
    assert is_sound(record)


async def test_the_request_narrows_the_tools_at_every_depth(clock: VirtualClock) -> None:
    tools = [FakeTool("act"), FakeTool("look")]
    here = AgentWorld(
        clock, [agent("helper", "act", "look")], tools, outer=[asks(to("helper")), DONE], inner=[ACT, SAYS]
    )
    response, record = await here.run("agent:helper", "look", request={"tools": ["agent:helper", "look"]})
    assert offered(record) == [["agent__helper", "look"], ["look"], ["look"], ["agent__helper", "look"]]
    assert calls_made(response)[1][2:] == ("no such tool", True)
    assert tools[0].run_count == 0


async def test_the_rights_of_the_execution_hold_at_every_depth(clock: VirtualClock) -> None:
    rights = Permissions.of(["agent:helper", "tool:look", "model:*"])
    agents = [agent("helper", "act", "look", "agent:other"), agent("other")]
    tools = [FakeTool("act"), FakeTool("look")]
    here = AgentWorld(clock, agents, tools, outer=[asks(to("helper")), DONE], inner=[SAYS])
    response, record = await here.run("agent:helper", header={"permissions": rights})
    assert response.metadata.left_out == ["tools.act", "tools.agent:other"]
    assert offered(record) == [["agent__helper"], ["look"], ["agent__helper"]]


async def test_an_agent_whose_model_is_forbidden_does_not_run(clock: VirtualClock) -> None:
    rights = Permissions.of(["agent:*", "model:default"])
    here = AgentWorld(clock, [agent("helper")], outer=[asks(to("helper")), DONE])
    response, _ = await here.run("agent:helper", header={"permissions": rights})
    assert calls_made(response) == [("agent__helper", None, "the caller may not use the agent's model", True)]


async def test_an_agent_works_within_its_callers_budget(clock: VirtualClock) -> None:
    usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
    here = AgentWorld(
        clock,
        [agent("helper", "act")],
        [FakeTool()],
        outer=[asks(to("helper")) | {"usage": usage}],
        inner=[ACT | {"usage": usage}],
        tokens=201,
    )
    response, record = await here.run("agent:helper")
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_BUDGET_EXCEEDED
    assert calls_made(response)[0][3]
    assert response.token_usage.total_tokens == 200
    assert is_sound(record)


async def test_all_calls_of_an_execution_count_to_one_limit(clock: VirtualClock) -> None:
    act = FakeTool()
    here = AgentWorld(
        clock,
        [agent("helper", "act")],
        [act],
        outer=[asks(to("helper")), ACT, DONE],
        inner=[ACT, ACT, SAYS],
        tool_calls=2,
    )
    response, record = await here.run("agent:helper", "act")
    assert act.run_count == 1
    refused = [result for _, _, result, is_error in calls_made(response) if is_error]
    assert refused == ["not run: an execution makes at most 2 tool calls"] * 2
    assert is_sound(record)


async def test_the_limits_of_an_agent_hold_for_its_run_only(clock: VirtualClock) -> None:
    helper = agent("helper", "act", limits=Limits(tool_rounds=0))
    here = AgentWorld(clock, [helper], [FakeTool()], outer=[asks(to("helper")), ACT, DONE], inner=[ACT])
    response, _ = await here.run("agent:helper", "act")
    assert [is_error for *_, is_error in calls_made(response)] == [True, False, False] or calls_made(response)[0][3]
    assert response.content == "done"


async def test_an_unsafe_call_that_failed_waits_for_approval_anywhere_in_the_execution(clock: VirtualClock) -> None:
    send = sender(body=refuse)
    agents = [agent("one", "send"), agent("two", "send")]
    both = asks(to("one"), to("two"))
    here = AgentWorld(clock, agents, [send], outer=[both, DONE], inner=[SEND, SAYS, SEND, SAYS])
    response, record = await here.run("agent:one", "agent:two")
    assert (response.state, send.run_count) == (State.SUSPENDED, 1)
    [waiting] = response.suspensions
    assert (waiting.kind, waiting.tool_id) == ("approval", "send")
    after = here.again(record)
    answered = answer_suspension(clock, record, {"decision": "deny"})
    response, record = await after.harness.recover(answered)
    assert (response.content, send.run_count) == ("done", 1)
    assert is_sound(record)


async def test_an_agent_that_can_act_is_a_barrier(clock: VirtualClock) -> None:
    order: list[str] = []

    async def note(name: str, _arguments: Mapping[str, Any], context: ToolContext) -> str:
        order.append(f"{name} begins")
        await context.clock.sleep(1)
        order.append(f"{name} ends")
        return "ok"

    tools = [sender(body=partial(note, "send")), FakeTool(body=partial(note, "act"))]
    here = AgentWorld(
        clock,
        [agent("poster", "send")],
        tools,
        outer=[asks(("act", {}), to("poster"), ("act", {})), DONE],
        inner=[SEND, SAYS],
    )
    await here.run("agent:poster", "act")
    assert order == ["act begins", "act ends", "send begins", "send ends", "act begins", "act ends"]


async def test_agents_that_cannot_act_run_at_the_same_time(clock: VirtualClock) -> None:
    slow = FakeTool(body=sleep_long)
    here = AgentWorld(
        clock,
        [agent("helper", "act")],
        [slow],
        outer=[asks(to("helper"), to("helper")), DONE],
        inner=[ACT, ACT, SAYS, SAYS],
    )
    began = clock.monotonic()
    response, record = await here.run("agent:helper")
    assert response.content == "done"
    assert clock.monotonic() - began == pytest.approx(100)
    assert is_sound(record)


async def test_a_question_within_an_agent_is_answered_and_goes_on_exactly_there(clock: VirtualClock) -> None:
    act, whom = FakeTool(), FakeTool("whom", body=ask_whom)
    here = AgentWorld(
        clock,
        [agent("helper", "act", "whom")],
        [act, whom],
        outer=[asks(to("helper")), DONE],
        inner=[ACT, asks(("whom", {}), ("act", {})), SAYS],
    )
    response, record = await here.run("agent:helper")
    assert [each.tool_id for each in response.suspensions] == ["whom"]
    assert calls_made(response)[0][2:] == (None, False)
    assert [call.status for call in response.tool_calls_made] == ["waiting", "done", "waiting", "done"]
    assert replay_offline(record) == len(record.steps)
    response, record = await here.again(record).harness.recover(answer_suspension(clock, record, "Ada"))
    assert (response.content, act.run_count, whom.run_count) == ("done", 2, 1)
    assert ("whom", "agent:helper", "Ada", False) in calls_made(response)
    assert is_sound(record)


async def test_an_agent_whose_pattern_has_another_version_by_now_ends_the_execution_and_calls_nothing(
    clock: VirtualClock,
) -> None:
    act, whom = FakeTool(), FakeTool("whom", body=ask_whom)
    asked_twice = asks(to("helper"), ("act", {}))
    agents = [agent("helper", "act", "whom")]
    here = AgentWorld(clock, agents, [act, whom], outer=[asked_twice, DONE], inner=[asks(("whom", {})), ACT, SAYS])
    _, record = await here.run("agent:helper", "act")
    key = next(key for key, step in record.steps.items() if isinstance(step.outcome, AgentCallStarted))
    started = record.steps[key].outcome
    assert isinstance(started, AgentCallStarted)
    older = replace(record.steps[key], outcome=replace(started, pattern_version=started.pattern_version + 1))
    record = replace(record, steps={**record.steps, key: older})
    response, _ = await here.again(record).harness.recover(answer_suspension(clock, record, "Ada"))
    assert response.error is not None
    assert (response.state, response.error.code) == (State.ERROR, Code.STORAGE_SNAPSHOT_INVALID)
    assert (act.run_count, whom.run_count) == (1, 1)


@pytest.mark.parametrize("ends", [Code.CANCELLED_SIGNAL, Code.CANCELLED_TIMEOUT])
async def test_a_cancel_and_the_deadline_reach_the_agent(clock: VirtualClock, ends: Code) -> None:
    slow = FakeTool(body=sleep_long)
    here = AgentWorld(clock, [agent("helper", "act")], [slow], outer=[asks(to("helper"))], inner=[ACT], timeout=40)
    execution, began = here.start("agent:helper"), clock.monotonic()
    async with anyio.create_task_group() as group:
        if ends is Code.CANCELLED_SIGNAL:
            group.start_soon(cancel_after, clock, 10, execution)
        await here.harness.drive(execution)
    response, record = response_of(execution), here.harness.record(execution)
    assert response.error is not None
    assert response.error.code is ends
    assert clock.monotonic() - began < 45
    assert [result for _, _, result, _ in calls_made(response)] == ["cancelled while it ran"] * 2
    assert is_sound(record)


async def test_nested_runs_recover_after_every_commit(clock: VirtualClock) -> None:
    tools = [FakeTool(), sender()]
    agents = [agent("helper", "act", "agent:poster"), agent("poster", "send")]
    scripts: dict[str, Sequence[Mapping[str, Any]]] = {
        "outer": [asks(to("helper"), ("act", {})), asks(to("poster")), DONE],
        "inner": [asks(("act", {}), to("poster")), SEND, SAYS, SAYS, asks(("send", {"to": "Bob"})), SAYS],
    }
    here = AgentWorld(clock, agents, tools, commits=True, **scripts)
    whole, record = await here.run("agent:helper", "agent:poster", "act")
    assert is_sound(record)
    commits = [prefix for prefix, _ in here.journal_commits if not _is_at_rest(prefix)]
    assert len(commits) > 20
    for prefix in commits:
        response, after = await here.again(prefix).harness.recover(prefix)
        if response.state is State.SUSPENDED:
            [asked] = open_suspensions(after)
            assert (asked.kind, asked.tool_id) == ("unknown_outcome", "send")
            happened = answer_suspension(clock, after, {"decision": "happened", "result": "done"})
            response, after = await here.again(after).harness.recover(happened)
        assert _seen(response) == _seen(whole)
        assert tuple(after.events[: len(prefix.events)]) == tuple(prefix.events)
        assert is_sound(after)


def _is_at_rest(record: ExecutionHistory) -> bool:
    return not record.events or record.events[-1].event.type in TERMINAL_TYPES


def _seen(
    response: SystemResponse,
) -> tuple[str | None, list[tuple[str, str]], list[tuple[str, str | None, str, bool]]]:
    """Return the answer, the messages without their ids, which a new process numbers again, and the calls."""
    return response.content, [(each.role, each.text) for each in response.messages], calls_made(response)
