"""Quotes: no execution comes to more, and some come to just as much."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.bootstrap.service import PATTERNS
from app.capabilities.tools.definition import tool
from app.domain.contract.messages import ToolCall
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import SystemResponse
from app.domain.lifecycle import Mode
from app.domain.tools import SideEffects
from app.ports.journal import ExecutionHistory
from app.ports.tool import ToolError
from tests.support.harness import Harness, chat_request, make_harness, profile, replay_offline
from tests.support.seeds import seeds
from tests.support.spending import (
    GENEROUS,
    SCHEMA,
    AnswerScript,
    ReluctantEngine,
    SpentTotals,
    ended_by_budget,
    planning_of,
    quote_of,
    random_engines,
    random_limits,
    random_request,
    spending_harness,
)
from tests.support.virtual_time import VirtualClock


async def spent(
    clock: VirtualClock, here: Harness, request: SystemRequest
) -> tuple[SystemResponse, ExecutionHistory, SpentTotals]:
    began, pattern, planning = clock.monotonic(), PATTERNS[request.mode].run, planning_of(request)
    response, record = await here.run(request, pattern, planning)
    assert replay_offline(record, pattern, planning) == len(record.steps)
    return response, record, SpentTotals.of(response, record, clock.monotonic() - began)


@pytest.mark.parametrize("block", seeds(20))
async def test_a_thousand_random_executions_never_exceed_their_quote(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=dice.random() < 0.5)
        here = spending_harness(clock, engines, dice, **random_limits(dice))
        request = random_request(dice, engines)
        _, _, came_to = await spent(clock, here, request)
        assert came_to.beyond(quote_of(here, request)) == [], seed


@pytest.mark.parametrize("block", seeds(20))
async def test_a_thousand_random_plans_never_exceed_their_quote(clock: VirtualClock, block: int) -> None:
    ended = Counter[str]()
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True)
        tokens, cost = limits(dice) if dice.random() < 0.5 else (None, None)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        request = random_request(dice, engines, Mode.PLAN)
        response, _, came_to = await spent(clock, here, request)
        assert came_to.beyond(quote_of(here, request)) == [], seed
        ended[response.state if response.error is None else response.error.code] += 1
    assert len(ended) > 5


@pytest.mark.parametrize("block", seeds(20))
async def test_a_thousand_executions_with_limits_use_no_more_than_those_and_what_was_running(
    clock: VirtualClock, block: int
) -> None:
    ended = 0
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True)
        tokens, cost = limits(dice)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        request = random_request(dice, engines)
        response, _, came_to = await spent(clock, here, request)
        assert came_to.beyond(quote_of(here, request)) == [], seed
        if tokens is not None and request.mode is not Mode.PLAN:
            running = request.redundancy.n if request.redundancy else 1
            window = max(engine.profile.context_window for engine in engines)
            assert came_to.tokens <= tokens + running * window, seed
        ended += ended_by_budget(response)
    assert ended > 5


@pytest.mark.parametrize("block", seeds(20))
async def test_with_engines_that_keep_to_what_they_are_told_no_limit_is_passed_at_all(
    clock: VirtualClock, block: int
) -> None:
    ended = 0
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True, obedient=True)
        tokens, cost = limits(dice)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        response, _, came_to = await spent(clock, here, random_request(dice, engines))
        assert tokens is None or came_to.tokens <= tokens, seed
        assert cost is None or (came_to.cost or 0.0) <= cost * (1 + 1e-9), seed
        ended += ended_by_budget(response)
    assert ended > 5


def limits(dice: Random) -> tuple[int | None, float | None]:
    """Tokens and cost from next to nothing to more than enough."""
    tokens = dice.choice([None, dice.randrange(1, 100), dice.randrange(100, 10_000), dice.randrange(10_000, 500_000)])
    cost = dice.choice([None, dice.random() * 1e-4, dice.random() * 0.01, dice.random()])
    return tokens, cost


SIZES = list(itertools.product([1, 2, 3], [0, 1, 2]))
PRICE = (1.0, 4.0)


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def broken() -> str:
    """Never works."""
    raise ToolError("broken")


def calls(number: int, many: int) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id=f"c{number}.{index}", name="broken", arguments={}) for index in range(many))


def stubborn(
    clock: VirtualClock, size: tuple[int, int], says: Sequence[str | tuple[ToolCall, ...]], **limits: Any
) -> Harness:
    """That many engines, with that many retries each."""
    count, retries = size
    each = AnswerScript(count * (retries + 1), says)
    engines = [ReluctantEngine(clock, profile(f"e{number}", price=PRICE), each) for number in range(count)]
    return make_harness(clock, *engines, tools=[broken], policy=replace(GENEROUS, max_retries=retries), **limits)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_a_chat_can_come_to_exactly_its_quote(clock: VirtualClock, size: tuple[int, int], rounds: int) -> None:
    says = [calls(number, 3) for number in range(rounds)]
    here = stubborn(clock, size, says, tool_rounds=rounds, calls_per_reply=2)
    response, _, came_to = await spent(clock, here, chat_request("Hi"))
    most = quote_of(here, chat_request("Hi"))
    assert response.error is not None
    assert (came_to.inferences, came_to.transitions) == (most.inferences, most.transitions)
    assert (came_to.tool_calls, came_to.tokens) == (most.tool_calls, most.tokens)
    assert most.cost is not None
    assert came_to.cost == pytest.approx(most.cost.amount)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("rounds", [None, 0, 2])
async def test_a_structured_answer_comes_to_one_transition_less_since_who_exhausts_all_is_not_validated(
    clock: VirtualClock, size: tuple[int, int], attempts: int, rounds: int | None
) -> None:
    gathered = [] if rounds is None else [*(calls(number, 2) for number in range(rounds)), "gathered"]
    says = [*gathered, *["prose"] * (attempts - 1)]
    here = stubborn(clock, size, says, attempts=attempts, tool_rounds=rounds or 0, calls_per_reply=2)
    tools = None if rounds is None else ["broken"]
    request = chat_request("Hi", mode=Mode.STRUCTURED, output={"schema": SCHEMA}, tools=tools)
    _, _, came_to = await spent(clock, here, request)
    most = quote_of(here, request)
    assert (came_to.inferences, came_to.transitions) == (most.inferences, most.transitions - 1)
    assert (came_to.tool_calls, came_to.tokens) == (most.tool_calls, most.tokens)


FITTING = '{"city": "Ulm", "size": 1}'
REFUSED = '{"valid": false, "score": 0, "issues": ["no"]}'


def judged_by(attempts: int, answer: str) -> list[str]:
    """What is said where every judge is understood only at the last attempt, and then refuses."""
    every = [answer, *["unreadable"] * (attempts - 1), REFUSED]
    return (every * attempts)[:-1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_answers_that_are_judged_can_come_to_exactly_their_quote(
    clock: VirtualClock, size: tuple[int, int], attempts: int
) -> None:
    rounds = [calls(number, 2) for number in range(2)]
    chat = chat_request("Hi", output={"semantic": True})
    structured = chat_request("Hi", mode=Mode.STRUCTURED, output={"schema": SCHEMA, "semantic": True})
    for request, says in ((chat, [*rounds, *judged_by(attempts, "Hi")]), (structured, judged_by(attempts, FITTING))):
        here = stubborn(clock, size, says, attempts=attempts, tool_rounds=2, calls_per_reply=2)
        _, _, came_to = await spent(clock, here, request)
        most = quote_of(here, request)
        assert (came_to.inferences, came_to.transitions) == (most.inferences, most.transitions)
        assert (came_to.tool_calls, came_to.tokens) == (most.tool_calls, most.tokens)


async def test_an_answer_put_together_from_fields_is_quoted_with_its_judge(clock: VirtualClock) -> None:
    redundancy = {"n": 3, "voting": "field_majority", "models": ["e0", "e0", "e0"]}
    output = {"schema": SCHEMA, "semantic": True}
    plain, fields = (
        quote_of(
            stubborn(clock, (2, 0), [], attempts=2),
            chat_request("Hi", mode=Mode.REDUNDANT, output=output, redundancy={**redundancy, "voting": voting}),
        )
        for voting in ("majority", "field_majority")
    )
    assert plain.inferences == 3 * (1 + 2)
    assert fields.inferences == plain.inferences + 2 * 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [1, 2, 5])
async def test_replicas_can_come_to_exactly_their_quote(clock: VirtualClock, size: tuple[int, int], n: int) -> None:
    here = stubborn(clock, size, [])
    request = chat_request("Hi", mode=Mode.REDUNDANT, output={"schema": SCHEMA}, redundancy={"n": n})
    _, _, came_to = await spent(clock, here, request)
    most = quote_of(here, request)
    assert (came_to.inferences, came_to.transitions) == (most.inferences, most.transitions)
    assert (came_to.tool_calls, came_to.tokens) == (0, most.tokens)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("linear", [False, True])
async def test_a_plan_comes_to_one_transition_less_since_who_exhausts_all_is_not_validated(
    clock: VirtualClock, size: tuple[int, int], *, linear: bool
) -> None:
    schema, call = {"schema": SCHEMA, "attempts": 1}, {"name": "broken", "arguments": {}}
    infer = [{}, schema, {"rules": ["not_empty"], "attempts": 1}]
    steps = [{"type": "infer", "input": "Hi", **keys} for keys in infer] + [{"type": "tool", "input": call}] * 2
    named = [{"name": f"s{number}", **step} for number, step in enumerate(steps)]
    plan = {"steps": named if linear else [{**step, "depends_on": []} for step in named]}
    here = stubborn(clock, size, [], attempts=2, tool_rounds=0)
    request = chat_request("Hi", mode=Mode.PLAN, plan=plan)
    _, _, came_to = await spent(clock, here, request)
    most = quote_of(here, request)
    if not linear:
        assert (came_to.inferences, came_to.transitions) == (most.inferences, most.transitions - 1)
        assert (came_to.tool_calls, came_to.tokens) == (most.tool_calls, most.tokens)
    assert most.inferences == 3 * size[0] * (size[1] + 1)
    assert most.tool_calls == 4


def planned(*steps: dict[str, Any], **fields: Any) -> SystemRequest:
    named = [{"name": f"s{number}", "type": "infer"} | step for number, step in enumerate(steps)]
    return chat_request("Hi", mode=Mode.PLAN, plan={"steps": named}, **fields)


async def test_a_step_after_a_text_is_quoted_as_it_stands_and_one_after_a_value_by_the_worst(
    clock: VirtualClock,
) -> None:
    here = stubborn(clock, (1, 0), [], attempts=3, tool_rounds=2, calls_per_reply=5)
    plain = quote_of(here, planned({}, {}))
    assert (plain.inferences, plain.tool_calls) == (2 * 3, 0)
    valued = quote_of(here, planned({"schema": {}, "attempts": 1}, {}))
    assert (valued.inferences, valued.tool_calls) == (1 + (3 + 3), 2 * 5 * 2)
    own = quote_of(here, planned({"schema": {}, "attempts": 1}, {"input": "What?", "tools": ["broken"]}))
    assert (own.inferences, own.tool_calls) == (1 + 3, 2 * 5 * 2)
    none = quote_of(here, planned({"schema": {}, "attempts": 1}, {}, tools=[]))
    assert (none.inferences, none.tool_calls) == (1 + 5, 0)


async def test_a_vote_in_a_plan_is_quoted_by_its_replicas_and_one_that_may_be_given_any_by_the_most(
    clock: VirtualClock,
) -> None:
    here = stubborn(clock, (1, 0), [], tool_rounds=0, replicas=7)
    vote = {"type": "redundant", "schema": SCHEMA}
    assert quote_of(here, planned(vote)).inferences == 3
    assert quote_of(here, planned({**vote, "n": 5})).inferences == 5
    asked = {"messages": [{"role": "user", "content": "Hi"}], "n": 2}
    assert quote_of(here, planned({**vote, "n": 5, "input": asked})).inferences == 2
    first = {"type": "validate", "schema": {}, "input": {"any": "value"}}
    assert quote_of(here, planned(first, {**vote, "tools": []})).inferences == 7 * 2


async def test_a_plan_that_a_model_makes_is_quoted_by_its_policy(clock: VirtualClock) -> None:
    here = stubborn(clock, (2, 0), [], attempts=3, tool_rounds=1, replicas=4, plan_steps=9)

    def most(**policy: Any) -> Any:
        return quote_of(here, chat_request("Hi", mode=Mode.PLAN, plan={"policy": policy}))

    each = 1 + 1 + 3
    assert most(allowed_step_types=["infer"]).inferences == 2 * (3 + 9 * each)
    assert most(allowed_step_types=["infer"], max_steps=2).inferences == 2 * (3 + 2 * each)
    assert most(allowed_step_types=["tool"], max_steps=2).tool_calls == 2 * 2
    assert most(max_steps=1).inferences == 2 * (3 + 4 * (1 + 1 + 1))
    assert most(allowed_step_types=["rerank", "validate"]).inferences == 2 * 3


async def test_a_plan_in_a_row_has_one_inference_on_its_way_and_one_with_branches_all(clock: VirtualClock) -> None:
    here = stubborn(clock, (1, 0), [], tool_rounds=0, tokens=10)
    window = 128_000
    assert quote_of(here, planned({}, {}, {})).tokens == 10 + window
    assert quote_of(here, planned({}, {}, {"depends_on": []})).tokens == 3 * window
    wide = chat_request("Hi", mode=Mode.PLAN, plan={"policy": {"max_steps": 5, "allowed_step_types": ["infer"]}})
    assert quote_of(here, wide).tokens == 10 + 5 * window


async def test_a_plan_that_cannot_run_is_quoted_for_nothing_and_comes_to_nothing(clock: VirtualClock) -> None:
    here = stubborn(clock, (2, 1), [])
    for request in (
        planned({"type": "nobody"}),
        planned({"type": "tool"}),
        planned({}, {"depends_on": ["s2"]}),
        planned({"depends_on": ["s0"]}),
        planned({"name": "twice"}, {"name": "twice"}),
    ):
        _, _, came_to = await spent(clock, here, request)
        most = quote_of(here, request)
        assert came_to.beyond(most) == []
        assert (most.inferences, most.tool_calls, most.tokens) == (0, 0, 0)


async def test_each_replica_is_quoted_by_its_own_model(clock: VirtualClock) -> None:
    here = stubborn(clock, (3, 1), [])
    request = chat_request(
        "Hi", mode=Mode.REDUNDANT, output={"schema": SCHEMA}, redundancy={"n": 2, "models": ["default", "e1"]}
    )
    _, _, came_to = await spent(clock, here, request)
    most = quote_of(here, request)
    assert came_to.inferences == most.inferences == 3 * 2 + 1 * 2
    assert came_to.transitions == most.transitions


async def test_a_running_execution_ends_within_the_quoted_seconds(clock: VirtualClock) -> None:
    here = stubborn(clock, (1, 0), [], timeout=30)
    assert quote_of(here, chat_request("Hi")).seconds == 35


async def test_without_tools_no_call_is_quoted_though_a_model_may_ask_in_vain(clock: VirtualClock) -> None:
    here = stubborn(clock, (1, 0), [calls(0, 2)], tool_rounds=1)
    request = chat_request("Hi", tools=[])
    _, _, came_to = await spent(clock, here, request)
    most = quote_of(here, request)
    assert came_to.tool_calls == most.tool_calls == 0
    assert came_to.inferences == most.inferences == 2


async def test_a_tool_that_is_not_idempotent_is_quoted_once(clock: VirtualClock) -> None:
    @tool(side_effects=SideEffects.NONE, idempotent=False)
    async def once() -> str:
        """Works."""
        return "ok"

    engine = ReluctantEngine(clock, profile("e"), AnswerScript(1, []))
    here = make_harness(clock, engine, tools=[once, broken], tool_rounds=2, calls_per_reply=3)
    assert quote_of(here, chat_request("Hi", tools=["once"])).tool_calls == 6
    assert quote_of(here, chat_request("Hi", tools=["once", "broken"])).tool_calls == 12


async def test_one_engine_without_a_price_leaves_the_cost_open(clock: VirtualClock) -> None:
    engines = [
        ReluctantEngine(clock, profile(name, price=price), AnswerScript(1, []))
        for name, price in (("a", PRICE), ("b", None))
    ]
    here = make_harness(clock, *engines)
    assert quote_of(here, chat_request("Hi")).cost is None
    assert quote_of(here, chat_request("Hi", model="a")).cost is not None


async def test_a_limit_lowers_what_it_limits_and_leaves_the_rest(clock: VirtualClock) -> None:
    open_ended = quote_of(stubborn(clock, (2, 1), []), chat_request("Hi"))
    by_tokens = quote_of(stubborn(clock, (2, 1), [], tokens=1_000), chat_request("Hi"))
    by_cost = quote_of(stubborn(clock, (2, 1), [], cost=0.01), chat_request("Hi"))
    window = 128_000
    assert by_tokens.tokens == 1_000 + window
    assert by_tokens.cost is not None
    assert by_tokens.cost.amount == pytest.approx((1_000 + window) * 4 / 1_000_000)
    assert by_cost.cost is not None
    assert by_cost.cost.amount == pytest.approx(0.01 + window * 4 / 1_000_000)
    assert by_tokens.inferences == by_cost.inferences == open_ended.inferences


async def test_a_limit_beyond_what_can_be_used_changes_no_figure(clock: VirtualClock) -> None:
    wide = quote_of(stubborn(clock, (2, 1), [], tokens=10**12, cost=1e9), chat_request("Hi"))
    assert wide == quote_of(stubborn(clock, (2, 1), []), chat_request("Hi"))
