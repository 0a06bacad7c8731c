"""Quotes: no execution takes more than its quote, and some take exactly as much."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from portico.bootstrap.service import PATTERNS
from portico.capabilities.models.catalogue import EngineCatalogue
from portico.capabilities.tools.definition import tool
from portico.domain.contract.messages import ToolCall
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.lifecycle import Mode, State
from portico.domain.token_prices import TokenPrices
from portico.domain.tools import SideEffects
from portico.orchestration.quote import MAX_QUERY_BYTES, QuoteCalculator
from portico.ports.journal import ExecutionHistory
from portico.ports.tool import ToolError
from tests.support.harness import Harness, chat_request, make_harness, profile, replay_offline, scripted_engine
from tests.support.random_passes import SpendingPhasesEngine, random_reasoning
from tests.support.seeds import seeds
from tests.support.usage import (
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
async def test_random_executions_never_exceed_their_quote(clock: VirtualClock, block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=dice.random() < 0.5)
        here = spending_harness(clock, engines, dice, **random_limits(dice))
        request = random_request(dice, engines)
        _, _, used = await spent(clock, here, request)
        assert used.beyond(quote_of(here, request)) == [], seed


@pytest.mark.parametrize("block", seeds(20))
async def test_random_plans_never_exceed_their_quote(clock: VirtualClock, block: int) -> None:
    ended = Counter[str]()
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True)
        tokens, cost = limits(dice) if dice.random() < 0.5 else (None, None)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        request = random_request(dice, engines, Mode.PLAN)
        response, _, used = await spent(clock, here, request)
        assert used.beyond(quote_of(here, request)) == [], seed
        ended[response.state if response.error is None else response.error.code] += 1
    assert len(ended) > 5


@pytest.mark.parametrize("block", seeds(20))
async def test_random_reasoning_in_passes_never_exceeds_its_quote(clock: VirtualClock, block: int) -> None:
    ended = Counter[str]()
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True, kind=SpendingPhasesEngine)
        tokens, cost = limits(dice) if dice.random() < 0.5 else (None, None)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        request = random_reasoning(dice)
        response, _, used = await spent(clock, here, request)
        assert used.beyond(quote_of(here, request)) == [], seed
        ended[response.state if response.error is None else response.error.code] += 1
    assert len(ended) > 3


@pytest.mark.parametrize("block", seeds(20))
async def test_executions_with_limits_use_no_more_than_the_limits_and_what_was_in_flight(
    clock: VirtualClock, block: int
) -> None:
    ended = 0
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True)
        tokens, cost = limits(dice)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        request = random_request(dice, engines)
        response, _, used = await spent(clock, here, request)
        assert used.beyond(quote_of(here, request)) == [], seed
        if tokens is not None and request.mode is not Mode.PLAN:
            running = request.redundancy.n if request.redundancy else 1
            window = max(engine.profile.context_window for engine in engines)
            assert used.tokens <= tokens + running * window, seed
        ended += ended_by_budget(response)
    assert ended > 5


@pytest.mark.parametrize("block", seeds(20))
async def test_with_engines_that_keep_to_max_tokens_no_limit_is_exceeded(clock: VirtualClock, block: int) -> None:
    ended = 0
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True, obedient=True)
        tokens, cost = limits(dice)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        response, _, used = await spent(clock, here, random_request(dice, engines))
        assert tokens is None or used.tokens <= tokens, seed
        assert cost is None or (used.cost or 0.0) <= cost * (1 + 1e-9), seed
        ended += ended_by_budget(response)
    assert ended > 5


@pytest.mark.parametrize("block", seeds(20))
async def test_salvaged_executions_keep_their_limits_and_their_quote(clock: VirtualClock, block: int) -> None:
    salvaged = Counter[object]()
    for seed in range(block * 50, block * 50 + 50):
        dice = Random(seed)
        engines = random_engines(clock, dice, priced=True, obedient=True)
        tokens, cost = limits(dice)
        here = spending_harness(clock, engines, dice, tokens=tokens, cost=cost, **random_limits(dice))
        request = random_request(dice, engines).model_copy(update={"on_limit": "salvage"})
        response, _, used = await spent(clock, here, request)
        assert used.beyond(quote_of(here, request)) == [], seed
        assert tokens is None or used.tokens <= tokens, seed
        assert cost is None or (used.cost or 0.0) <= cost * (1 + 1e-9), seed
        assert response.error is None or response.error.code not in LIMIT_CODES, seed
        if response.final_answer is not None:
            assert (response.state, response.content) == (State.COMPLETE, response.final_answer.answer_text), seed
            salvaged[response.final_answer.metadata["limit"]] += 1
    assert len(salvaged) > 1
    assert salvaged.keys() <= LIMIT_CODES


def limits(dice: Random) -> tuple[int | None, float | None]:
    """Return limits of tokens and cost from almost nothing to more than enough."""
    tokens = dice.choice([None, dice.randrange(1, 100), dice.randrange(100, 10_000), dice.randrange(10_000, 500_000)])
    cost = dice.choice([None, dice.random() * 1e-4, dice.random() * 0.01, dice.random()])
    return tokens, cost


LIMIT_CODES = {Code.ORCHESTRATION_ITERATION_LIMIT, Code.ORCHESTRATION_BUDGET_EXCEEDED, Code.CANCELLED_TIMEOUT}
SIZES = list(itertools.product([1, 2, 3], [0, 1, 2]))
PRICE = (1.0, 4.0)


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def broken() -> str:
    """Always fail."""
    raise ToolError("broken")


def calls(number: int, many: int) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(id=f"c{number}.{index}", name="broken", arguments={}) for index in range(many))


def reluctant_harness(
    clock: VirtualClock, size: tuple[int, int], script: Sequence[str | tuple[ToolCall, ...]], **limits: Any
) -> Harness:
    """Return a harness with so many engines and so many retries for each."""
    count, retries = size
    each = AnswerScript(count * (retries + 1), script)
    engines = [ReluctantEngine(clock, profile(f"e{number}", price=PRICE), each) for number in range(count)]
    return make_harness(clock, *engines, tools=[broken], policy=replace(GENEROUS, max_retries=retries), **limits)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rounds", [0, 1, 3])
async def test_a_chat_can_take_exactly_its_quote(clock: VirtualClock, size: tuple[int, int], rounds: int) -> None:
    script = [calls(number, 3) for number in range(rounds)]
    here = reluctant_harness(clock, size, script, tool_rounds=rounds, calls_per_reply=2)
    response, _, used = await spent(clock, here, chat_request("Hi"))
    quote = quote_of(here, chat_request("Hi"))
    assert response.error is not None
    assert (used.inferences, used.transitions) == (quote.inferences, quote.transitions)
    assert (used.tool_calls, used.tokens) == (quote.tool_calls, quote.tokens)
    assert quote.cost is not None
    assert used.cost == pytest.approx(quote.cost.amount)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("attempts", [1, 2, 3])
@pytest.mark.parametrize("rounds", [None, 0, 2])
async def test_a_structured_answer_takes_one_transition_less_since_an_exhausted_one_is_not_validated(
    clock: VirtualClock, size: tuple[int, int], attempts: int, rounds: int | None
) -> None:
    gathered = [] if rounds is None else [*(calls(number, 2) for number in range(rounds)), "gathered"]
    script = [*gathered, *["prose"] * (attempts - 1)]
    here = reluctant_harness(clock, size, script, attempts=attempts, tool_rounds=rounds or 0, calls_per_reply=2)
    tools = None if rounds is None else ["broken"]
    request = chat_request("Hi", mode=Mode.STRUCTURED, output={"schema": SCHEMA}, tools=tools)
    _, _, used = await spent(clock, here, request)
    quote = quote_of(here, request)
    assert (used.inferences, used.transitions) == (quote.inferences, quote.transitions - 1)
    assert (used.tool_calls, used.tokens) == (quote.tool_calls, quote.tokens)


FITTING = '{"city": "Ulm", "size": 1}'
REFUSED = '{"valid": false, "score": 0, "issues": ["no"]}'


def judged_by(attempts: int, answer: str) -> list[str]:
    """Return a script in which every judgement is readable only after its last repair, and then refuses."""
    every = [answer, *["unreadable"] * min(2, attempts - 1), REFUSED]
    return (every * attempts)[:-1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("attempts", [1, 2, 3, 4])
async def test_judged_answers_can_take_exactly_their_quote(
    clock: VirtualClock, size: tuple[int, int], attempts: int
) -> None:
    rounds = [calls(number, 2) for number in range(2)]
    chat = chat_request("Hi", output={"semantic": True})
    structured = chat_request("Hi", mode=Mode.STRUCTURED, output={"schema": SCHEMA, "semantic": True})
    for request, script in ((chat, [*rounds, *judged_by(attempts, "Hi")]), (structured, judged_by(attempts, FITTING))):
        here = reluctant_harness(clock, size, script, attempts=attempts, tool_rounds=2, calls_per_reply=2)
        _, _, used = await spent(clock, here, request)
        quote = quote_of(here, request)
        assert (used.inferences, used.transitions) == (quote.inferences, quote.transitions)
        assert (used.tool_calls, used.tokens) == (quote.tool_calls, quote.tokens)


async def test_an_answer_combined_from_fields_is_quoted_with_its_judge(clock: VirtualClock) -> None:
    redundancy = {"n": 3, "voting": "field_majority", "models": ["e0", "e0", "e0"]}
    output = {"schema": SCHEMA, "semantic": True}
    plain, fields = (
        quote_of(
            reluctant_harness(clock, (2, 0), [], attempts=2),
            chat_request("Hi", mode=Mode.REDUNDANT, output=output, redundancy={**redundancy, "voting": voting}),
        )
        for voting in ("majority", "field_majority")
    )
    assert plain.inferences == 3 * (1 + 2)
    assert fields.inferences == plain.inferences + 2 * 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [1, 2, 5])
async def test_replicas_can_take_exactly_their_quote(clock: VirtualClock, size: tuple[int, int], n: int) -> None:
    here = reluctant_harness(clock, size, [])
    request = chat_request("Hi", mode=Mode.REDUNDANT, output={"schema": SCHEMA}, redundancy={"n": n})
    _, _, used = await spent(clock, here, request)
    quote = quote_of(here, request)
    assert (used.inferences, used.transitions) == (quote.inferences, quote.transitions)
    assert (used.tool_calls, used.tokens) == (0, quote.tokens)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("linear", [False, True])
async def test_a_plan_takes_one_transition_less_since_an_exhausted_one_is_not_validated(
    clock: VirtualClock, size: tuple[int, int], *, linear: bool
) -> None:
    schema, call = {"schema": SCHEMA, "attempts": 1}, {"name": "broken", "arguments": {}}
    infer = [{}, schema, {"rules": ["not_empty"], "attempts": 1}]
    steps = [{"type": "infer", "input": "Hi", **keys} for keys in infer] + [{"type": "tool", "input": call}] * 2
    named = [{"name": f"s{number}", **step} for number, step in enumerate(steps)]
    plan = {"steps": named if linear else [{**step, "depends_on": []} for step in named]}
    here = reluctant_harness(clock, size, [], attempts=2, tool_rounds=0)
    request = chat_request("Hi", mode=Mode.PLAN, plan=plan)
    _, _, used = await spent(clock, here, request)
    quote = quote_of(here, request)
    if not linear:
        assert (used.inferences, used.transitions) == (quote.inferences, quote.transitions - 1)
        assert (used.tool_calls, used.tokens) == (quote.tool_calls, quote.tokens)
    assert quote.inferences == 3 * size[0] * (size[1] + 1)
    assert quote.tool_calls == 4


def planned(*steps: dict[str, Any], **fields: Any) -> SystemRequest:
    named = [{"name": f"s{number}", "type": "infer"} | step for number, step in enumerate(steps)]
    return chat_request("Hi", mode=Mode.PLAN, plan={"steps": named}, **fields)


async def test_a_step_after_a_text_is_quoted_exactly_and_one_after_a_value_by_the_worst_case(
    clock: VirtualClock,
) -> None:
    here = reluctant_harness(clock, (1, 0), [], attempts=3, tool_rounds=2, calls_per_reply=5)
    plain = quote_of(here, planned({}, {}))
    assert (plain.inferences, plain.tool_calls) == (2 * 3, 0)
    valued = quote_of(here, planned({"schema": {}, "attempts": 1}, {}))
    assert (valued.inferences, valued.tool_calls) == (1 + (3 + 3), 2 * 5 * 2)
    own = quote_of(here, planned({"schema": {}, "attempts": 1}, {"input": "What?", "tools": ["broken"]}))
    assert (own.inferences, own.tool_calls) == (1 + 3, 2 * 5 * 2)
    none = quote_of(here, planned({"schema": {}, "attempts": 1}, {}, tools=[]))
    assert (none.inferences, none.tool_calls) == (1 + 5, 0)


async def test_a_vote_in_a_plan_is_quoted_by_its_replicas_or_by_the_most_replicas_if_they_are_not_known(
    clock: VirtualClock,
) -> None:
    here = reluctant_harness(clock, (1, 0), [], tool_rounds=0, replicas=7)
    vote = {"type": "redundant", "schema": SCHEMA}
    assert quote_of(here, planned(vote)).inferences == 3
    assert quote_of(here, planned({**vote, "n": 5})).inferences == 5
    asked = {"messages": [{"role": "user", "content": "Hi"}], "n": 2}
    assert quote_of(here, planned({**vote, "n": 5, "input": asked})).inferences == 2
    first = {"type": "validate", "schema": {}, "input": {"any": "value"}}
    assert quote_of(here, planned(first, {**vote, "tools": []})).inferences == 7 * 2


async def test_a_generated_plan_is_quoted_by_its_policy(clock: VirtualClock) -> None:
    here = reluctant_harness(clock, (2, 0), [], attempts=3, tool_rounds=1, replicas=4, plan_steps=9)

    def quote(**policy: Any) -> Any:
        return quote_of(here, chat_request("Hi", mode=Mode.PLAN, plan={"policy": policy}))

    each = 1 + 1 + 3
    assert quote(allowed_step_types=["infer"]).inferences == 2 * (3 + 9 * each)
    assert quote(allowed_step_types=["infer"], max_steps=2).inferences == 2 * (3 + 2 * each)
    assert quote(allowed_step_types=["tool"], max_steps=2).tool_calls == 2 * 2
    assert quote(max_steps=1).inferences == 2 * (3 + 4 * (1 + 1 + 1))
    assert quote(allowed_step_types=["rerank", "validate"]).inferences == 2 * 3


async def test_a_linear_plan_has_one_inference_in_flight_and_one_with_branches_all(clock: VirtualClock) -> None:
    here = reluctant_harness(clock, (1, 0), [], tool_rounds=0, tokens=10)
    window = 128_000
    assert quote_of(here, planned({}, {}, {})).tokens == 10 + window
    assert quote_of(here, planned({}, {}, {"depends_on": []})).tokens == 3 * window
    wide = chat_request("Hi", mode=Mode.PLAN, plan={"policy": {"max_steps": 5, "allowed_step_types": ["infer"]}})
    assert quote_of(here, wide).tokens == 10 + 5 * window


async def test_a_plan_that_cannot_run_is_quoted_with_zero_and_takes_nothing(clock: VirtualClock) -> None:
    here = reluctant_harness(clock, (2, 1), [])
    for request in (
        planned({"type": "unknown"}),
        planned({"type": "tool"}),
        planned({}, {"depends_on": ["s2"]}),
        planned({"depends_on": ["s0"]}),
        planned({"name": "twice"}, {"name": "twice"}),
    ):
        _, _, used = await spent(clock, here, request)
        quote = quote_of(here, request)
        assert used.beyond(quote) == []
        assert (quote.inferences, quote.tool_calls, quote.tokens) == (0, 0, 0)


async def test_each_replica_is_quoted_by_its_own_model(clock: VirtualClock) -> None:
    here = reluctant_harness(clock, (3, 1), [])
    request = chat_request(
        "Hi", mode=Mode.REDUNDANT, output={"schema": SCHEMA}, redundancy={"n": 2, "models": ["default", "e1"]}
    )
    _, _, used = await spent(clock, here, request)
    quote = quote_of(here, request)
    assert used.inferences == quote.inferences == 3 * 2 + 1 * 2
    assert used.transitions == quote.transitions


async def test_a_running_execution_ends_within_the_quoted_seconds(clock: VirtualClock) -> None:
    here = reluctant_harness(clock, (1, 0), [], timeout=30)
    assert quote_of(here, chat_request("Hi")).seconds == 35


async def test_without_tools_no_call_is_quoted_although_a_model_may_ask_for_one(clock: VirtualClock) -> None:
    here = reluctant_harness(clock, (1, 0), [calls(0, 2)], tool_rounds=1)
    request = chat_request("Hi", tools=[])
    _, _, used = await spent(clock, here, request)
    quote = quote_of(here, request)
    assert used.tool_calls == quote.tool_calls == 0
    assert used.inferences == quote.inferences == 2


async def test_a_tool_that_is_not_idempotent_is_quoted_once(clock: VirtualClock) -> None:
    @tool(side_effects=SideEffects.NONE, idempotent=False)
    async def once() -> str:
        """Succeed."""
        return "ok"

    engine = ReluctantEngine(clock, profile("e"), AnswerScript(1, []))
    here = make_harness(clock, engine, tools=[once, broken], tool_rounds=2, calls_per_reply=3)
    assert quote_of(here, chat_request("Hi", tools=["once"])).tool_calls == 6
    assert quote_of(here, chat_request("Hi", tools=["once", "broken"])).tool_calls == 12


async def test_one_engine_without_a_price_makes_the_cost_unknown(clock: VirtualClock) -> None:
    engines = [
        ReluctantEngine(clock, profile(name, price=price), AnswerScript(1, []))
        for name, price in (("a", PRICE), ("b", None))
    ]
    here = make_harness(clock, *engines)
    assert quote_of(here, chat_request("Hi")).cost is None
    assert quote_of(here, chat_request("Hi", model="a")).cost is not None


async def test_the_cost_is_that_of_the_dearest_token_even_of_one_written_to_a_cache(
    clock: VirtualClock,
) -> None:
    engines = [
        ReluctantEngine(clock, profile(name, price=price), AnswerScript(1, []))
        for name, price in (("a", TokenPrices(1.0, 2.0, 0.1, 2.0)), ("b", TokenPrices(1.0, 2.0, 0.1, 5.0)))
    ]
    here = make_harness(clock, *engines)
    usual, dear = (quote_of(here, chat_request("Hi", model=name, tools=[])).cost for name in "ab")
    assert usual is not None
    assert dear is not None
    assert dear.amount == pytest.approx(usual.amount * 2.5)


async def test_a_limit_lowers_its_own_figure_only(clock: VirtualClock) -> None:
    open_ended = quote_of(reluctant_harness(clock, (2, 1), []), chat_request("Hi"))
    by_tokens = quote_of(reluctant_harness(clock, (2, 1), [], tokens=1_000), chat_request("Hi"))
    by_cost = quote_of(reluctant_harness(clock, (2, 1), [], cost=0.01), chat_request("Hi"))
    window = 128_000
    assert by_tokens.tokens == 1_000 + window
    assert by_tokens.cost is not None
    assert by_tokens.cost.amount == pytest.approx((1_000 + window) * 4 / 1_000_000)
    assert by_cost.cost is not None
    assert by_cost.cost.amount == pytest.approx(0.01 + window * 4 / 1_000_000)
    assert by_tokens.inferences == by_cost.inferences == open_ended.inferences


async def test_a_limit_above_the_bound_changes_no_figure(clock: VirtualClock) -> None:
    wide = quote_of(reluctant_harness(clock, (2, 1), [], tokens=10**12, cost=1e9), chat_request("Hi"))
    assert wide == quote_of(reluctant_harness(clock, (2, 1), []), chat_request("Hi"))


FIND = {"name": "find", "type": "retrieve", "input": "lamp"}


@pytest.mark.parametrize(
    ("fields", "searches"),
    [
        ({"context": {"retrieve": True}}, 1),
        ({}, 0),
        ({"mode": "plan", "plan": {"steps": [FIND, FIND | {"name": "again"}]}}, 2),
        ({"mode": "plan", "plan": {"policy": {"allowed_step_types": ["retrieve", "infer"], "max_steps": 4}}}, 4),
        ({"mode": "plan"}, 0),
    ],
)
def test_each_search_that_an_engine_embeds_counts_its_longest_query(
    clock: VirtualClock, fields: dict[str, Any], searches: int
) -> None:
    engines = scripted_engine(clock, "a", price=(1.0, 2.0)), scripted_engine(clock, "embedder", price=(3.0, 0.0))
    here = make_harness(clock, *engines)
    environment = here.environment
    catalogue = EngineCatalogue({each.profile.name: each for each in engines}, {"default": ["a"]})
    plain = QuoteCalculator(catalogue, environment.tool_registry, "USD", PATTERNS)
    request = chat_request(**fields)
    limits = replace(here.limits, tokens=100_000)
    without, quote = (each.quote(request, limits) for each in (plain, replace(plain, embedder="embedder")))
    assert quote.tokens - without.tokens == searches * MAX_QUERY_BYTES
    assert quote.inferences == without.inferences
    assert quote.cost is not None
    assert without.cost is not None
    assert (quote.cost.amount > without.cost.amount) == (searches > 0)
