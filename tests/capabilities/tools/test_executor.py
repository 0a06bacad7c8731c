"""One attempt at one tool call, with tools of every behaviour."""

import asyncio
import itertools
import math
import sys
from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator

from portico.capabilities.tools.definition import tool
from portico.capabilities.tools.executor import ToolExecutor
from portico.capabilities.tools.registry import MODULES, ToolList, ToolRegistry
from portico.domain.contract.messages import ToolCall
from portico.domain.failures import Code, ConfigurationFailure
from portico.domain.ids import ToolCallId
from portico.domain.journal.outcomes import ToolEnded
from portico.domain.tools import Availability, SideEffects
from portico.ports.tool import Tool, ToolContext, ToolError, ToolOutcomeUnknown
from tests.support.entropy import SeededEntropy
from tests.support.tools import FakeTool, ToolBody, tool_call
from tests.support.virtual_time import VirtualClock

Executes = Callable[..., ToolExecutor]
KEY = "0f" * 16
DICE: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "faces": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["count"],
    "additionalProperties": False,
}


@pytest.fixture
def executes(clock: VirtualClock, entropy: SeededEntropy) -> Executes:
    def make(*tools: Tool, result_bytes: int = 262_144) -> ToolExecutor:
        return ToolExecutor(ToolRegistry(*tools), clock, entropy, result_bytes)

    return make


def _raises(error: BaseException) -> ToolBody:
    async def body(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        raise error

    return body


def _returns(result: Any) -> ToolBody:
    async def body(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        return result

    return body


def _sleeps(seconds: float) -> ToolBody:
    async def body(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        await anyio.sleep(seconds)
        return "late"

    return body


async def _once(executor: ToolExecutor, call: ToolCall | None = None, *, seconds_left: float = 60) -> ToolEnded:
    return await executor.attempt(call or tool_call(), key=KEY, attempt=0, seconds_left=seconds_left)


async def test_a_result_is_the_tools_text_and_the_time_it_took(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(body=_sleeps(1.5))))
    assert ended == ToolEnded("late", is_error=False, code=None, duration_ms=pytest.approx(1500), retry=False)


async def test_a_tool_gets_its_call_its_time_limit_and_its_ports(
    executes: Executes, clock: VirtualClock, entropy: SeededEntropy
) -> None:
    seen: list[ToolContext] = []

    async def body(_arguments: Mapping[str, Any], context: ToolContext) -> str:
        seen.append(context)
        return ""

    await _once(executes(FakeTool(body=body, timeout=5)), seconds_left=3)
    await _once(executes(FakeTool(body=body, timeout=5)), seconds_left=30)
    assert seen == [ToolContext("call_1", 3, clock, entropy, KEY), ToolContext("call_1", 5, clock, entropy, KEY)]


async def test_a_tool_that_is_not_installed_is_unavailable_and_the_catalogue_is_not_listed(
    executes: Executes,
) -> None:
    known = FakeTool("secret_tool")
    ended = await _once(executes(known), tool_call("rm_rf"))
    assert (ended.is_error, ended.code, ended.retry) == (True, Code.TOOL_UNAVAILABLE, False)
    assert "secret_tool" not in ended.content
    assert known.run_count == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "count: is required"),
        ({"count": "2"}, 'count: the value is not of type "integer"'),
        ({"count": True}, 'count: the value is not of type "integer"'),
        ({"count": 0}, "count: the value is less than the minimum of 1"),
        ({"count": 1, "faces": ["a", 2]}, 'faces.1: the value is not of type "string"'),
        ({"count": 1, "sides": 6}, "sides: is not expected"),
    ],
)
async def test_arguments_that_do_not_fit_are_named_and_nothing_runs(
    executes: Executes, arguments: dict[str, Any], expected: str
) -> None:
    dice = FakeTool(parameters=DICE)
    ended = await _once(executes(dice), tool_call(**arguments))
    assert (ended.is_error, ended.code, ended.retry) == (True, Code.TOOL_EXECUTION_FAILED, False)
    assert expected in ended.content
    assert dice.run_count == 0


async def test_all_errors_are_reported_together_without_the_values(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(parameters=DICE)), tool_call(count="hunter2", faces="hunter3"))
    assert "count: " in ended.content
    assert "faces: " in ended.content
    assert "hunter" not in ended.content


def _deep() -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"a": nested}
    return nested


@pytest.mark.parametrize("arguments", [{"count": "\ud800"}, _deep(), {"count": float("nan")}])
async def test_arguments_that_no_validator_can_read_are_refused(executes: Executes, arguments: dict[str, Any]) -> None:
    dice = FakeTool(parameters=DICE)
    call = ToolCall.model_construct(id="call_1", name="act", arguments=arguments)
    ended = await _once(executes(dice), call)
    assert (ended.code, ended.retry, dice.run_count) == (Code.TOOL_EXECUTION_FAILED, False, 0)


def _no_monday(day: str) -> str:
    if day == "monday":
        raise ValueError("is no day for this")
    return day


async def test_arguments_that_the_function_itself_refuses_are_not_tried_again(executes: Executes) -> None:
    @tool(side_effects=SideEffects.NONE, idempotent=True)
    def plan(day: Annotated[str, AfterValidator(_no_monday)]) -> str:
        """Plan a day."""
        return day

    ended = await _once(executes(plan), tool_call("plan", day="monday"))
    assert (ended.code, ended.retry) == (Code.TOOL_EXECUTION_FAILED, False)
    assert ended.content == "The arguments were refused: day: Value error, is no day for this."


async def test_whole_floats_are_integers_as_json_has_it(executes: Executes) -> None:
    dice = FakeTool(parameters=DICE)
    assert not (await _once(executes(dice), tool_call(count=2.0))).is_error


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "objekt"},
        {"$ref": "http://169.254.169.254/latest"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_parameters_that_are_not_a_self_contained_schema_are_refused_at_startup(
    parameters: dict[str, Any],
) -> None:
    with pytest.raises(ConfigurationFailure, match="the parameters of tool act cannot be used"):
        ToolRegistry(sources=[ToolList(MODULES, [FakeTool(parameters=parameters)])])


async def test_a_tool_that_hangs_is_stopped_at_its_own_timeout(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(body=_sleeps(3600), timeout=5, idempotent=False)))
    assert (ended.is_error, ended.code, ended.retry) == (True, Code.TOOL_TIMEOUT, False)
    assert ended.content == "The tool did not finish within 5 s."
    assert ended.duration_ms == pytest.approx(5000)


async def test_a_tool_that_hangs_is_stopped_at_the_deadline(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(body=_sleeps(3600), timeout=600)), seconds_left=2)
    assert (ended.code, ended.retry) == (Code.TOOL_TIMEOUT, False)
    assert ended.duration_ms == pytest.approx(2000)


async def test_without_time_nothing_runs(executes: Executes) -> None:
    fake = FakeTool()
    ended = await _once(executes(fake), seconds_left=0)
    assert (ended.code, ended.retry, fake.run_count) == (Code.TOOL_TIMEOUT, False, 0)


@pytest.mark.parametrize(("seconds_left", "granted"), [(10, True), (9.9, False)])
async def test_after_a_timeout_a_second_attempt_needs_time_for_all_of_it(
    executes: Executes, seconds_left: float, granted: bool
) -> None:
    ended = await _once(executes(FakeTool(body=_sleeps(3600), timeout=5)), seconds_left=seconds_left)
    assert (ended.code, ended.retry) == (Code.TOOL_TIMEOUT, granted)


async def test_a_timeout_error_of_the_tool_itself_is_a_failure(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(body=_raises(TimeoutError()))))
    assert (ended.code, ended.content) == (Code.TOOL_EXECUTION_FAILED, "The tool failed: TimeoutError")


@pytest.mark.parametrize(
    ("attempt", "idempotent", "granted"), [(0, True, True), (1, True, False), (0, False, False), (1, False, False)]
)
async def test_a_failed_call_is_granted_one_more_attempt_only_when_idempotent(
    executes: Executes, attempt: int, idempotent: bool, granted: bool
) -> None:
    executor = executes(FakeTool(body=_raises(ToolError("no answer")), idempotent=idempotent))
    ended = await executor.attempt(tool_call(), key=KEY, attempt=attempt, seconds_left=60)
    assert ended.retry is granted
    assert (ended.is_error, ended.code, ended.content) == (
        True,
        Code.TOOL_EXECUTION_FAILED,
        "The tool failed: no answer",
    )


@pytest.mark.parametrize(
    ("side_effects", "idempotent", "ending"),
    [
        (SideEffects.READ, False, ("The tool failed: the connection broke", Code.TOOL_EXECUTION_FAILED, False)),
        (SideEffects.WRITE, True, ("The tool failed: the connection broke", Code.TOOL_EXECUTION_FAILED, True)),
        (SideEffects.WRITE, False, ("The tool may have acted: the connection broke", Code.TOOL_OUTCOME_UNKNOWN, False)),
    ],
)
async def test_a_call_whose_connection_broke_is_in_doubt_if_it_could_act_twice(
    executes: Executes, side_effects: SideEffects, idempotent: bool, ending: tuple[str, Code, bool]
) -> None:
    lost = _raises(ToolOutcomeUnknown("the connection broke"))
    ended = await _once(executes(FakeTool(body=lost, side_effects=side_effects, idempotent=idempotent)))
    assert (ended.content, ended.code, ended.retry) == ending


async def test_a_question_whose_state_is_too_large_to_be_stored_is_a_failure(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(body=_raises(ToolError.suspend("?", "x" * 65_537)))))
    assert ended.content == "The tool failed: the state of its question has more than 65536 bytes"


@pytest.mark.parametrize(
    "crash", [RuntimeError("hunter2"), SystemExit(1), MemoryError("hunter2"), ExceptionGroup("hunter2", [ValueError()])]
)
async def test_a_crash_is_a_result_that_names_its_class_only(executes: Executes, crash: BaseException) -> None:
    ended = await _once(executes(FakeTool(body=_raises(crash))))
    assert (ended.is_error, ended.code) == (True, Code.TOOL_EXECUTION_FAILED)
    assert ended.content == f"The tool failed: {type(crash).__name__}"


async def test_a_tool_that_exits_does_not_end_the_service(executes: Executes) -> None:
    async def body(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        sys.exit(1)

    assert (await _once(executes(FakeTool(body=body)))).code is Code.TOOL_EXECUTION_FAILED


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"sum": 8, "größe": [1.5, None]}, '{"sum": 8, "größe": [1.5, null]}'),
        (date(2026, 11, 20), '"2026-11-20"'),
        (ToolCall(id=ToolCallId("c"), name="t", arguments={}), '{"id": "c", "name": "t", "arguments": {}}'),
        (None, "null"),
    ],
)
async def test_a_value_is_shown_to_the_model_as_json(executes: Executes, value: object, text: str) -> None:
    ended = await _once(executes(FakeTool(body=_returns(value))))
    assert (ended.code, ended.content) == (None, text)


_LOOP: list[object] = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize("value", [math.nan, {"x": [-math.inf]}, object(), itertools.count(), _LOOP, b"\xff"])
async def test_a_result_that_is_no_json_is_a_failure(executes: Executes, value: object) -> None:
    ended = await _once(executes(FakeTool(body=_returns(value))))
    kind = type(value).__name__
    assert (ended.code, ended.content) == (
        Code.TOOL_EXECUTION_FAILED,
        f"The tool failed: it returned {kind}, which is no JSON",
    )


async def test_a_tool_that_became_unavailable_says_why_and_does_not_run(executes: Executes) -> None:
    fake = FakeTool()
    executor = executes(fake)
    assert not (await _once(executor)).is_error
    fake.unavailable_reason = "rate limited"
    ended = await _once(executor)
    assert (ended.is_error, ended.code, ended.retry) == (True, Code.TOOL_UNAVAILABLE, False)
    assert "rate limited" in ended.content
    assert fake.run_count == 1


async def test_a_tool_whose_check_breaks_is_unavailable(executes: Executes) -> None:
    class Careless(FakeTool):
        def available(self) -> Availability:
            raise OSError("secret path")

    ended = await _once(executes(Careless()))
    assert ended.code is Code.TOOL_UNAVAILABLE
    assert "secret" not in ended.content


async def test_one_of_five_fails_and_one_hangs_and_the_others_keep_their_results(executes: Executes) -> None:
    executor = executes(
        FakeTool("one"),
        FakeTool("two", _raises(RuntimeError())),
        FakeTool("three", _sleeps(3)),
        FakeTool("four", _sleeps(3600), timeout=5),
        FakeTool("five"),
    )
    names = ["one", "two", "three", "four", "five"]
    results = await asyncio.gather(*(_once(executor, tool_call(name)) for name in names))
    assert [each.code for each in results] == [None, Code.TOOL_EXECUTION_FAILED, None, Code.TOOL_TIMEOUT, None]
    assert [each.content for each in results if not each.is_error] == ["done", "late", "done"]


async def test_a_cancellation_is_never_swallowed(executes: Executes) -> None:
    executor = executes(FakeTool(body=_sleeps(3600)))
    with anyio.move_on_after(1) as scope:
        await _once(executor)
        pytest.fail("the cancellation was swallowed")
    assert scope.cancelled_caught


async def test_a_cancelled_task_stays_cancelled(executes: Executes) -> None:
    running = asyncio.ensure_future(_once(executes(FakeTool(body=_sleeps(3600)))))
    await anyio.sleep(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_the_cancellation_of_a_task_of_the_tools_own_is_its_failure(executes: Executes) -> None:
    async def body(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        return await gone

    ended = await _once(executes(FakeTool(body=body)))
    assert (ended.code, ended.content) == (Code.TOOL_EXECUTION_FAILED, "The tool failed: CancelledError")


async def test_a_result_at_the_limit_is_whole_and_one_beyond_is_cut_and_marked(executes: Executes) -> None:
    whole = await _once(executes(FakeTool(body=_returns("x" * 100)), result_bytes=100))
    assert whole.content == "x" * 100
    cut = await _once(executes(FakeTool(body=_returns("x" * 101)), result_bytes=100))
    assert len(cut.content.encode()) == 100
    assert cut.content.endswith("\n[cut: the result was longer]")
    assert not cut.is_error


@pytest.mark.parametrize("size", range(60, 70))
async def test_a_result_is_cut_between_characters(executes: Executes, size: int) -> None:
    cut = await _once(executes(FakeTool(body=_returns("€𝄞" * 50)), result_bytes=size))
    assert len(cut.content.encode()) <= size
    assert set(cut.content.partition("\n")[0]) == {"€", "𝄞"}


async def test_an_error_text_is_cut_too(executes: Executes) -> None:
    ended = await _once(executes(FakeTool(body=_raises(ToolError("x" * 1000))), result_bytes=100))
    assert len(ended.content.encode()) == 100


async def test_lone_surrogates_do_not_reach_the_model(executes: Executes) -> None:
    assert (await _once(executes(FakeTool(body=_returns("a\ud800b"))))).content == "a?b"


async def test_arguments_that_are_no_json_object_never_reach_a_tool_that_takes_anything(
    clock: VirtualClock, entropy: SeededEntropy
) -> None:
    anything = FakeTool()
    executor = ToolExecutor(ToolRegistry(anything), clock, entropy, 1000)
    ended = await executor.attempt(tool_call(_raw="{broken"), key=KEY, attempt=0, seconds_left=10)
    assert (ended.code, ended.retry, anything.run_count) == (Code.TOOL_EXECUTION_FAILED, False, 0)
    assert "no JSON object" in ended.content
