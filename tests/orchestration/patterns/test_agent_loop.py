"""The chat pattern in whole executions: pipeline, failover, tools, lifecycle, events."""

from collections.abc import Mapping
from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.tools.definition import tool
from portico.domain.failures import Code
from portico.domain.lifecycle import State
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolContext, ToolError
from tests.support.harness import chat_request, make_harness, replay_offline, scripted_engine
from tests.support.tools import FakeTool
from tests.support.virtual_time import VirtualClock

ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}]}


def types(record) -> list[str]:
    return [item.event.type for item in record.events]


async def test_plain_chat_emits_its_whole_story_in_order(clock: VirtualClock) -> None:
    response, record = await make_harness(clock, scripted_engine(clock, "primary", {"text": "hi"})).run(chat_request())
    assert (response.state, response.content) == (State.COMPLETE, "hi")
    assert types(record) == [
        "lifecycle.transition",
        "stage.end",
        "lifecycle.transition",
        *["stage.end"] * 3,
        "lifecycle.transition",
        "fallback.transition",
        "fallback.transition",
        "inference.start",
        "inference.end",
        "fallback.transition",
        "stage.end",
        "stage.end",
        "lifecycle.transition",
        "execution.completed",
    ]
    assert [item.sequence_number for item in record.events] == list(range(1, len(record.events) + 1))
    assert replay_offline(record) == len(record.steps)


async def test_tool_results_reach_the_model_and_the_response(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", ROLL, {"text": "rolled"}), tools=BUILTIN_TOOLS)
    response, record = await here.run(chat_request("roll"))
    assert response.content == "rolled"
    [call] = response.tool_calls_made
    assert (call.name, call.is_error, call.attempts) == ("roll_dice", False, 1)
    assert call.result.startswith("Rolled 2d6")
    assert response.metadata.tool_rounds == 1
    assert replay_offline(record) == len(record.steps)


@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_exactly_n_tool_rounds_run_and_one_more_is_the_iteration_limit(clock: VirtualClock, rounds: int) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", *[ROLL] * 9), tools=BUILTIN_TOOLS, tool_rounds=rounds)
    response, record = await here.run(chat_request("roll"))
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_ITERATION_LIMIT
    assert response.metadata.tool_rounds == rounds
    assert len(response.tool_calls_made) == rounds + 1
    assert types(record).count("tool.start") == rounds
    assert replay_offline(record) == len(record.steps)


async def test_the_model_learns_of_an_unknown_tool_without_the_catalogue(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "primary", {"tool_calls": [{"name": "rm_rf"}]}, {"text": "sorry"}),
        tools=BUILTIN_TOOLS,
    )
    response, _ = await here.run(chat_request())
    [call] = response.tool_calls_made
    assert call.is_error
    assert "roll_dice" not in call.result
    assert response.content == "sorry"


async def test_a_registered_tool_that_was_not_offered_is_an_unknown_tool(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "primary", ROLL, {"text": "ok"}), tools=BUILTIN_TOOLS)
    response, record = await here.run(chat_request(tools=["calculate"]))
    [end] = [item.event for item in record.events if item.event.type == "tool.end"]
    assert end.error_code is Code.TOOL_NOT_FOUND
    assert (response.tool_calls_made[0].is_error, response.tool_calls_made[0].attempts) == (True, 0)


async def test_a_tool_that_goes_away_is_unavailable_and_one_that_was_never_offered_is_not_found(
    clock: VirtualClock,
) -> None:
    async def fade(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        fading.unavailable_reason = "the disk is gone"
        return "done"

    fading = FakeTool("fade", fade)
    calls = {"tool_calls": [{"name": "fade"}, {"name": "unheard_of"}]}
    engine = scripted_engine(clock, "primary", {"tool_calls": [{"name": "fade"}]}, calls, {"text": "sorry"})
    here = make_harness(clock, engine, tools=[fading, *BUILTIN_TOOLS])
    response, record = await here.run(chat_request())
    ends = [item.event for item in record.events if item.event.type == "tool.end"]
    assert [end.error_code for end in ends] == [None, Code.TOOL_UNAVAILABLE, Code.TOOL_NOT_FOUND]
    assert response.tool_calls_made[1].result == "the tool cannot run right now"
    assert (response.content, fading.run_count) == ("sorry", 1)
    assert replay_offline(record) == len(record.steps)


async def test_calls_above_the_cap_get_an_error_result_each(clock: VirtualClock) -> None:
    many = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}] * 200}
    here = make_harness(
        clock, scripted_engine(clock, "primary", many, {"text": "ok"}), tools=BUILTIN_TOOLS, calls_per_reply=3
    )
    response, record = await here.run(chat_request())
    assert [call.is_error for call in response.tool_calls_made] == [False] * 3 + [True] * 197
    assert types(record).count("tool.start") == 3


async def test_unsafe_calls_are_barriers_and_safe_ones_overlap(clock: VirtualClock) -> None:
    log: list[str] = []

    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def look(name: str) -> str:
        """Look."""
        log.append(f"+{name}")
        await clock.sleep(1)
        log.append(f"-{name}")
        return name

    @tool(side_effects=SideEffects.WRITE, idempotent=False)
    async def write(name: str) -> str:
        """Write."""
        log.append(f"+{name}")
        await clock.sleep(1)
        log.append(f"-{name}")
        return name

    calls = [("look", "a"), ("look", "b"), ("write", "w"), ("look", "c"), ("look", "d")]
    reply = {"tool_calls": [{"name": name, "arguments": {"name": value}} for name, value in calls]}
    here = make_harness(clock, scripted_engine(clock, "primary", reply, {"text": "done"}), tools=[look, write])
    response, record = await here.run(chat_request())
    assert log == ["+a", "+b", "-a", "-b", "+w", "-w", "+c", "+d", "-c", "-d"]
    assert [call.result for call in response.tool_calls_made] == ["a", "b", "w", "c", "d"]
    assert replay_offline(record) == len(record.steps)


async def test_a_failed_idempotent_tool_is_retried_once_and_no_other(clock: VirtualClock) -> None:
    runs = {"safe": 0, "unsafe": 0}

    @tool(side_effects=SideEffects.READ, idempotent=True)
    async def safe() -> str:
        """Fail."""
        runs["safe"] += 1
        raise ToolError("no luck")

    @tool(side_effects=SideEffects.WRITE, idempotent=False)
    async def unsafe() -> str:
        """Fail."""
        runs["unsafe"] += 1
        raise ToolError("no luck")

    reply = {"tool_calls": [{"name": "safe"}, {"name": "unsafe"}]}
    here = make_harness(clock, scripted_engine(clock, "primary", reply, {"text": "ok"}), tools=[safe, unsafe])
    response, record = await here.run(chat_request())
    assert runs == {"safe": 2, "unsafe": 1}
    assert [call.attempts for call in response.tool_calls_made] == [2, 1]
    assert replay_offline(record) == len(record.steps)


async def test_a_demanded_tool_call_is_demanded_of_the_first_answer_only(clock: VirtualClock) -> None:
    seen = []

    class Watching:
        profile = scripted_engine(clock, "primary").profile
        script = scripted_engine(clock, "primary", ROLL, {"text": "ok"})

        async def attempt(self, call, progress, *, stream):
            seen.append(call.hints.tool_choice)
            return await self.script.attempt(call, progress, stream=stream)

        async def reach(self) -> str:
            return "here"

    here = make_harness(clock, Watching(), tools=BUILTIN_TOOLS)
    await here.run(chat_request(hints={"tool_choice": "required"}))
    assert seen == ["required", None]
