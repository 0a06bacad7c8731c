"""`run_code`: code of a model that calls tools, its rounds, its limits, and what a person answers in the middle."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.system import SystemClock
from portico.domain.access.tool_policy import PolicyRule, PolicyRules
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.outcomes import CodeRound, CodeStarted, InferenceSetup
from portico.domain.lifecycle import Mode, State
from portico.domain.tools import SideEffects
from portico.orchestration.runtime.replay import follows_record, open_code
from portico.ports.journal import ExecutionHistory
from portico.ports.tool import ToolContext, ToolError
from tests.support.code import DONE, code_harness, in_real_time, interpreter, rounds_of, runs
from tests.support.harness import PATTERNS, chat_request, open_suspensions, replay_offline, response_of
from tests.support.processes import programs_below
from tests.support.recovery import open_starts
from tests.support.tools import FakeTool


async def run(code: str, **options: Any) -> tuple[SystemResponse, ExecutionHistory]:
    """Run the code in an execution and return its response and record, which a replay without interpreter follows."""
    with in_real_time():
        response, record = await code_harness(SystemClock(), runs(code), DONE, **options).run(chat_request("go"))
    assert replay_offline(record) == len(record.steps)
    return response, record


async def echo(arguments: Mapping[str, Any], _context: ToolContext) -> str:
    return str(arguments)


async def refuse(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
    raise ToolError("no stock")


async def test_code_calls_tools_and_its_last_expression_is_the_result() -> None:
    code = (
        "import asyncio\n"
        "found = await asyncio.gather(*[calculate(expression=f'{n} * 2') for n in range(3)])\n"
        "print('found', len(found))\n"
        "sum([int(each) for each in found])"
    )
    response, record = await run(code)
    [outer, *inner] = response.tool_calls_made
    assert outer.result == '{"result": 6, "output": "found 3\\n", "calls": 3}'
    assert [(call.name, call.result) for call in inner] == [("calculate", str(n * 2)) for n in range(3)]
    causes = {item.correlation.caused_by for item in record.events if item.event.type == "tool.start"}
    assert causes == {outer.id}
    assert [len(each) for each in rounds_of(record)] == [3]
    assert list(record.steps)[3:5] == ["1/0/0/0", "1/0/1"]
    assert list(record.steps)[-3] == "1/0/0/1"


async def test_the_documented_loop_pays_back_the_orders_that_cost_more_than_100() -> None:
    async def order(arguments: Mapping[str, Any], _context: ToolContext) -> str:
        return f'{{"number": {arguments["number"]}, "total": {arguments["number"] * 30}}}'

    page = (Path(__file__).parents[3] / "docs/sandbox.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python run_code\n(.*?)```", page, re.DOTALL)
    response, record = await run(code, tools=[FakeTool("order_of", order), FakeTool("refund")])
    assert response.tool_calls_made[0].result == '{"result": 450, "output": "", "calls": 7}'
    assert rounds_of(record)[1:] == [[("refund", {"order": number})] for number in (4, 5)]


RESULTS = {
    "x = 5": '{"result": null, "output": "", "calls": 0}',
    "(1, {2, 1}, [None, True])": '{"result": [1, [1, 2], [null, true]], "output": "", "calls": 0}',
    "(await stock(sku='a'))['left']": '{"result": 3, "output": "", "calls": 1}',
    "f = stock\n(await f(sku='a'))['left']": '{"result": 3, "output": "", "calls": 1}',
    "await my_tool(n=1)": '{"result": "first", "output": "", "calls": 1}',
    "try:\n    await broken()\nexcept RuntimeError as e:\n    print(e)": "The tool failed: no stock",
    "try:\n    await stock('a')\nexcept TypeError as e:\n    print(e)": "stock() takes keyword arguments only",
    "try:\n    await stock(sku={1: 2})\nexcept TypeError as e:\n    print(e)": "a key of a dict is no str",
    "import time, random\ntime.sleep(1000)\ntype(random.random()).__name__": '"float"',
}
ERRORS = {
    "1 / 0": "ZeroDivisionError: division by zero (line 1)",
    "x = (": "SyntaxError: ",
    "await nothing(n=1)": "NameError: name 'nothing' is not defined (line 1)",
    "await run_code(code='1')": "NameError: name 'run_code' is not defined (line 1)",
    "open('/etc/passwd').read()": "PermissionError: ",
    "import subprocess": "ModuleNotFoundError: No module named 'subprocess' (line 1)",
    "[0] * 100_000_000": "MemoryError: ",
    "def f(n):\n    return f(n + 1)\nf(0)": "RecursionError: ",
    "lambda_ = float('nan')\nlambda_": "TypeError: the result is no JSON: a number is infinite",
    "print('so far')\nawait stock(sku='a')\nraise ValueError('bad')": "ValueError: bad (line 3)\nIt had made 1 call of"
    " tools.\nIts output:\nso far",
}


def tools() -> list[FakeTool]:
    async def left(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        return '{"left": 3}'

    async def first(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
        return "first"

    return [FakeTool("stock", left), FakeTool("my-tool", first), FakeTool("my_tool"), FakeTool("broken", refuse)]


@pytest.mark.parametrize("code", RESULTS)
async def test_code_gets_results_as_values_and_failures_as_exceptions(code: str) -> None:
    response, _ = await run(code, tools=tools())
    outer = response.tool_calls_made[0]
    assert (outer.is_error, outer.code if hasattr(outer, "code") else None) == (False, None)
    assert RESULTS[code] in (outer.result or "")


@pytest.mark.parametrize("code", ERRORS)
async def test_code_that_fails_is_an_error_with_its_type_message_line_output_and_calls(code: str) -> None:
    response, record = await run(code, tools=tools())
    outer = response.tool_calls_made[0]
    assert outer.is_error
    assert (outer.result or "").startswith(ERRORS[code])
    [end] = [
        item.event for item in record.events if item.event.type == "tool.end" and item.event.tool_name == "run_code"
    ]
    assert end.error_code is Code.TOOL_EXECUTION_FAILED
    assert response.content == "done"


async def test_code_that_is_too_long_is_refused_by_its_field() -> None:
    response, record = await run("#" * 65537)
    assert response.tool_calls_made[0].result == ("The arguments were refused: code: must have at most 65536 bytes.")
    assert response.tool_calls_made[0].attempts == 0
    assert not any(isinstance(step.outcome, CodeStarted) for step in record.steps.values())


async def test_calls_beyond_the_limits_fail_in_the_code() -> None:
    many = "import asyncio\nasync def one(n):\n    try:\n        return await calculate(expression=str(n))\n"
    many += "    except RuntimeError:\n        return None\n"
    many += "len([r for r in await asyncio.gather(*[one(n) for n in range(70)]) if r is not None])"
    response, _ = await run(many)
    assert (response.tool_calls_made[0].result or "").startswith('{"result": 64,')
    response, _ = await run(many, tool_calls=11)
    assert (response.tool_calls_made[0].result or "").startswith('{"result": 10,')


async def test_code_waits_at_most_a_hundred_times() -> None:
    response, record = await run("for n in range(101):\n    await calculate(expression='1')")
    assert (response.tool_calls_made[0].result or "").startswith(
        "The code was ended: it waited for calls more than 100"
    )
    assert len(rounds_of(record)) == 100


REFUNDS = """
for order in [1, 2, 3, 4, 5]:
    await refund(order=order)
"all"
"""


class Refunds:
    """The tool `refund`, with the orders that it has refunded; a rule lets a person approve that of order 3."""

    RULES = PolicyRules(approve=(PolicyRule("refund", arguments={"properties": {"order": {"const": 3}}}),))

    def __init__(self) -> None:
        self.orders: list[int] = []
        self.tool = FakeTool("refund", self._refund, idempotent=False, side_effects=SideEffects.WRITE)

    async def _refund(self, arguments: Mapping[str, Any], _context: ToolContext) -> str:
        self.orders.append(arguments["order"])
        return "refunded"


async def suspended(refunds: Refunds) -> ExecutionHistory:
    here = code_harness(SystemClock(), runs(REFUNDS), tools=[refunds.tool], rules=Refunds.RULES)
    response, record = await here.run(chat_request("go"))
    assert response.state is State.SUSPENDED
    return record


async def test_a_loop_stops_before_the_call_that_a_person_approves_and_goes_on_with_each_call_once() -> None:
    refunds = Refunds()
    with in_real_time():
        record = await suspended(refunds)
        [question] = open_suspensions(record)
        assert (question.tool_id, question.value) == ("run_code::refund", {"tool": "refund", "arguments": {"order": 3}})
        assert refunds.orders == [1, 2]
        assert replay_offline(record) == len(record.steps)
        here = code_harness(SystemClock(), DONE, tools=[refunds.tool], rules=Refunds.RULES)
        response, after = await here.resume(record, {"decision": "approve"})
    assert refunds.orders == [1, 2, 3, 4, 5]
    assert response.tool_calls_made[0].result == '{"result": "all", "output": "", "calls": 5}'
    assert replay_offline(after) == len(after.steps)


async def test_the_questions_of_one_round_are_asked_at_once() -> None:
    refunds = Refunds()
    rules = PolicyRules(approve=(PolicyRule("refund"),))
    code = "import asyncio\nawait asyncio.gather(refund(order=1), calculate(expression='1'), refund(order=2))"
    with in_real_time():
        here = code_harness(SystemClock(), runs(code), tools=[refunds.tool], rules=rules)
        response, record = await here.run(chat_request("go"))
    assert response.state is State.SUSPENDED
    assert [each.tool_id for each in open_suspensions(record)] == ["run_code::refund"] * 2
    assert refunds.orders == []


async def test_a_denied_call_raises_in_the_code() -> None:
    refunds = Refunds()
    with in_real_time():
        record = await suspended(refunds)
        here = code_harness(SystemClock(), DONE, tools=[refunds.tool], rules=Refunds.RULES)
        response, _ = await here.resume(record, {"decision": "deny", "reason": "too much"})
    assert refunds.orders == [1, 2]
    assert "RuntimeError: " in (response.tool_calls_made[0].result or "")
    assert "too much" in (response.tool_calls_made[0].result or "")


async def test_a_record_whose_round_the_code_does_not_make_is_not_continued() -> None:
    refunds = Refunds()
    with in_real_time():
        record = await suspended(refunds)
        assert await follows_record(record, {Mode.CHAT: PATTERNS[Mode.CHAT]}, interpreter())
        assert [each.interpreter for each in open_code(record)] == [interpreter().version]
        key = next(key for key, step in record.steps.items() if isinstance(step.outcome, CodeRound))
        other = record.steps[key].outcome.calls[0].model_copy(update={"arguments": {"order": 9}})
        changed = replace(record, steps={**record.steps, key: replace(record.steps[key], outcome=CodeRound((other,)))})
        assert not await follows_record(changed, {Mode.CHAT: PATTERNS[Mode.CHAT]}, interpreter())
        here = code_harness(SystemClock(), DONE, tools=[refunds.tool], rules=Refunds.RULES)
        response, _ = await here.resume(changed, {"decision": "approve"})
    assert response.state is State.ERROR
    assert refunds.orders == [1, 2]


async def test_a_record_goes_no_further_without_the_interpreter() -> None:
    refunds = Refunds()
    with in_real_time():
        record = await suspended(refunds)
        here = code_harness(SystemClock(), DONE, tools=[refunds.tool], rules=Refunds.RULES)
        here.environment = replace(here.environment, code=None)
        response, _ = await here.resume(record, {"decision": "approve"})
    assert response.state is State.ERROR
    assert refunds.orders == [1, 2]


async def test_replaced_tools_are_offered_as_signatures_of_run_code() -> None:
    parameters = {
        "type": "object",
        "properties": {"order": {"type": "integer", "description": "Its number"}, "why": {"enum": ["lost", "late"]}},
        "required": ["order"],
    }
    tool = FakeTool("refund", parameters=parameters)
    with in_real_time():
        here = code_harness(SystemClock(), runs("await refund(order=1)"), DONE, tools=[tool], replaces_tools=True)
        response, record = await here.run(chat_request("go"))
    offers = [step.outcome.tools for step in record.steps.values() if isinstance(step.outcome, InferenceSetup)]
    assert [[tool.name for tool in each] for each in offers] == [["run_code"], ["run_code"]]
    [definition] = here.environment.tool_registry.offer(["refund", "run_code"])[1]
    assert "async def refund(*, order: int, why: Literal['lost', 'late'] = ...)\n    Acts.\n    order: Its number" in (
        definition.description
    )
    assert here.environment.tool_registry.offer(["refund", "run_code"])[1][0] is definition
    assert response.tool_calls_made[0].result == '{"result": "done", "output": "", "calls": 1}'


async def test_a_replica_is_offered_only_what_it_may_call() -> None:
    refunds = Refunds()
    code = "try:\n    await refund(order=1)\nexcept NameError as e:\n    print(e)"
    with in_real_time():
        request = chat_request("go", mode="redundant", tools=["run_code", "refund"], redundancy={"n": 2, "quorum": 1})
        replies = [runs(code), runs(code), DONE, DONE]
        here = code_harness(SystemClock(), *replies, tools=[refunds.tool])
        execution = here.execution(request)
        await here.drive(execution, PATTERNS[Mode.REDUNDANT].run)
    assert refunds.orders == []
    started = [s.outcome for s in here.record(execution).steps.values() if isinstance(s.outcome, CodeStarted)]
    assert started
    assert all("refund" not in [tool.name for tool in each.tools] for each in started)


async def test_code_that_runs_when_its_execution_is_stopped_ends_with_its_process() -> None:
    with in_real_time():
        here = code_harness(SystemClock(), runs("await calculate(expression='1')\nwhile True:\n    pass"), DONE)
        execution = here.execution(chat_request("go"))
        async with anyio.create_task_group() as group:
            group.start_soon(here.drive, execution)
            while not rounds_of(here.record(execution)):  # noqa: ASYNC110 - the interpreter is another process
                await anyio.sleep(0.02)
            await anyio.sleep(0.1)
            execution.stop(Code.CANCELLED_SIGNAL, "the client cancelled it")
    record = here.record(execution)
    assert response_of(execution).state is State.CANCELLED
    assert open_starts(record.events) == []
    assert replay_offline(record) == len(record.steps)
    assert programs_below(os.getpid(), "/monty") == []
