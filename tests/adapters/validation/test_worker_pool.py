"""Workers validate hostile contracts and answers within their limits, and none is ever left behind."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from portico.adapters.validation.worker_pool import WorkerLimits, WorkerPool, open_worker_pool
from portico.capabilities.answer_contract import AnswerContract
from portico.domain.contract.request import OutputContract
from portico.domain.contract.rules import AnswerContent
from portico.domain.failures import Code, Failure
from portico.domain.raised_exception import RaisedException
from tests.support.hostile_schemas import HOSTILE
from tests.support.processes import children_of, ending
from tests.support.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.timeout(60)
LIMITS = WorkerLimits(workers=1, cpu_seconds=0.3)
TREE: dict[str, Any] = {"type": "array", "items": {"$ref": "#"}}
SEARCH = {"type": "regex", "pattern": "^x"}
COMPARE = {"type": "compare", "path": "$.a", "operator": "eq"}
TAKES_LONG, LONG_ANSWER = HOSTILE["twice below, 40 times"]


def contract(**output: Any) -> OutputContract:
    return OutputContract.model_validate(output)


@asynccontextmanager
async def in_real_time() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        yield


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with in_real_time(), open_worker_pool(LIMITS) as pool:
        yield pool
    assert children_of(os.getpid()) == []


def _never(rule: str, raised: RaisedException) -> None:
    raise AssertionError(f"{rule} raised {raised.type}")


async def failure_of(pool: WorkerPool, output: OutputContract) -> Failure:
    with pytest.raises(Failure) as caught:
        await pool.check_contract(output)
    return caught.value


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "bottomless allOf"])
async def test_a_hostile_schema_is_refused_or_validates_within_the_limits(pool: WorkerPool, name: str) -> None:
    schema, value = HOSTILE[name]
    refusals = []
    try:
        await pool.check_contract(contract(schema=schema))
    except Failure as refusal:
        refusals.append((refusal.code, refusal.details["field"]))
    assert refusals in ([], [(Code.CONFIG_SCHEMA_INVALID, "output.schema")])
    if not refusals:
        outcome = await pool.validate(contract(schema=schema), json.dumps(value), 2, _never)
        assert outcome.validation.valid is (outcome.failure is None)
        assert outcome.validation.attempts == 2
    assert len(children_of(os.getpid())) <= 1
    assert (await pool.validate(contract(schema=TREE), "[[]]", 1, _never)).structured_output == [[]]


async def test_a_schema_that_no_value_is_cheap_for_is_refused_as_too_costly(pool: WorkerPool) -> None:
    refusal = await failure_of(pool, contract(schema=HOSTILE["anyOf twice, 40 times"][0]))
    assert (refusal.code, refusal.details["path"]) == (Code.CONFIG_SCHEMA_INVALID, "$")
    assert "takes too much time or memory" in refusal.message


async def test_an_answer_that_is_too_costly_is_invalid(pool: WorkerPool) -> None:
    await pool.check_contract(contract(schema=TAKES_LONG))
    outcome = await pool.validate(contract(schema=TAKES_LONG), json.dumps(LONG_ANSWER), 3, _never)
    assert outcome.failure is not None
    assert outcome.failure.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert (outcome.validation.valid, outcome.validation.attempts) == (False, 3)
    assert outcome.validation.errors == outcome.failure.details["violations"]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"type": "compare", "path": "$[*]", "operator": "le", "other": "$[*]"}, [1] * 20_000),
        ({"type": "regex", "path": "$[*]", "pattern": "a.{50}"}, ["a" * 60] * 1_000),
        ({"type": "regex", "path": "$", "pattern": r"(?:a?){900}a{900}$"}, "a" * 200_000 + "!"),
        ({"type": "regex", "path": "$[*]", "pattern": r"\p{L}.{300}\d"}, ["éa" * 3_000] * 8),
    ],
)
async def test_hostile_rules_end_within_the_limits(pool: WorkerPool, rule: dict[str, Any], value: Any) -> None:
    output = contract(schema={}, rules=[rule] * 64)
    outcome = await pool.validate(output, AnswerContent(json.dumps(value), value), 1, _never)
    ends = {Code.CONSTRAINT_SCHEMA_INVALID, Code.VALIDATION_RULE_FAILED}
    assert outcome.failure is None or outcome.failure.code in ends
    await pool.check_contract(contract(schema=TREE))


@pytest.mark.parametrize(
    ("limits", "output", "field"),
    [
        (
            replace(LIMITS, cpu_seconds=20, memory_bytes=100 * 2**20),
            contract(schema={"allOf": [{"pattern": f"^.{{1,{number}}}$"} for number in range(300, 390)]}),
            "output.schema",
        ),
        (
            replace(LIMITS, cpu_seconds=0.02),
            contract(rules=[{"type": "regex", "pattern": f"^.{{1,{number}}}$"} for number in range(330, 394)]),
            "output.rules",
        ),
    ],
    ids=["memory", "time"],
)
async def test_what_takes_too_much_to_compile_is_refused_by_its_field(
    limits: WorkerLimits, output: OutputContract, field: str
) -> None:
    async with in_real_time(), open_worker_pool(limits) as pool:
        refusal = await failure_of(pool, output)
        assert field in {refusal.details.get("field"), *(each["field"] for each in refusal.details.get("errors", ()))}
        assert "takes too much time or memory" in refusal.message
        await pool.check_contract(contract(schema=TREE))


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (contract(schema=TREE), "Here: [[], [[]]]"),
        (contract(schema=TREE), "[[], [1]]"),
        (contract(schema=TREE), "no JSON"),
        (contract(schema={"enum": ["A", "B"]}), '"a"'),
        (contract(schema={}, grammar='root ::= "[" "1"* "]"'), "[11]"),
        (contract(rules=[{"type": "length", "max": 2}, {**SEARCH, "severity": "warning"}]), "abc"),
        (contract(rules=[{**COMPARE, "value": None}]), AnswerContent("x", {"a": None})),
    ],
)
async def test_a_worker_says_the_same_as_a_validation_in_place(
    pool: WorkerPool, output: OutputContract, answer: str | AnswerContent
) -> None:
    assert await pool.validate(output, answer, 2, _never) == AnswerContract(output).validate(answer, 2).outcome()


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (contract(schema={"type": "strng"}), Code.CONFIG_SCHEMA_INVALID),
        (contract(grammar="no-such-name"), Code.CONFIG_GRAMMAR_NOT_FOUND),
        (contract(rules=["unheard-of"]), Code.REQUEST_INVALID),
    ],
)
async def test_an_impossible_contract_is_refused_as_in_place(
    pool: WorkerPool, output: OutputContract, code: Code
) -> None:
    with pytest.raises(Failure) as here:
        AnswerContract(output).compile()
    there = await failure_of(pool, output)
    assert (there.code, there.message, there.details) == (code, here.value.message, here.value.details)


async def test_a_worker_starts_when_it_is_first_needed_and_is_used_again(pool: WorkerPool) -> None:
    assert children_of(os.getpid()) == []
    await pool.check_contract(contract(schema=TREE))
    first = children_of(os.getpid())
    assert len(first) == 1
    await pool.check_contract(contract(schema=TREE))
    assert children_of(os.getpid()) == first


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_worker_that_is_killed_from_outside_costs_nothing_but_time(pool: WorkerPool, number: int) -> None:
    await pool.check_contract(contract(schema=TREE))
    [worker] = children_of(os.getpid())
    with ending(worker):
        os.kill(worker, number)
    assert (await pool.validate(contract(schema=TREE), "[]", 1, _never)).failure is None
    assert worker not in children_of(os.getpid())


async def test_a_bug_in_a_worker_is_raised_and_the_next_job_gets_a_new_one(pool: WorkerPool) -> None:
    with pytest.raises(Exception, match="ended with status 1"):
        await pool._result(b"{}")
    await pool.check_contract(contract(schema=TREE))


async def test_a_caller_that_is_cancelled_leaves_no_worker_that_computes(pool: WorkerPool) -> None:
    await pool.check_contract(contract(schema=TREE))
    [worker] = children_of(os.getpid())
    async with anyio.create_task_group() as group:
        group.start_soon(pool.validate, contract(schema=TAKES_LONG), json.dumps(LONG_ANSWER), 1, _never)
        await checkpoint()
        with ending(worker):
            group.cancel_scope.cancel()
            await checkpoint()
    await pool.check_contract(contract(schema=TREE))


async def test_the_event_loop_is_served_beside_a_hostile_validation(pool: WorkerPool) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await checkpoint()
            ticks += 1

    async with anyio.create_task_group() as group:
        await pool.check_contract(contract(schema=TREE))
        group.start_soon(tick)
        outcome = await pool.validate(contract(schema=TAKES_LONG), json.dumps(LONG_ANSWER), 1, _never)
        group.cancel_scope.cancel()
    assert outcome.failure is not None
    assert ticks > 100


async def test_jobs_wait_for_the_worker_in_their_order(pool: WorkerPool) -> None:
    done = []

    async def work(number: int) -> None:
        await pool.check_contract(contract(schema={**TREE, "$comment": str(number)}))
        done.append(number)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(partial(work, number))
    assert done == list(range(8))
    assert len(children_of(os.getpid())) == 1
