"""Token and cost limits: the grant of an attempt, its refusal, and their record."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.bootstrap.service import PATTERNS
from portico.capabilities.models.context_window import count_tokens
from portico.capabilities.models.tokens import UNCORRECTED
from portico.domain.contract.messages import Message
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code, Failure, OrchestrationFailure
from portico.domain.journal.header import EffectiveLimits
from portico.domain.journal.outcomes import AttemptFailed, AttemptSucceeded, ToolEnded, usage_of
from portico.domain.lifecycle import TERMINAL, Mode, State
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.token_prices import TokenPrices
from portico.orchestration.execution.ledger import Budget, budget_for
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.planning.planner import make_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities, EngineProfile, Progress
from portico.ports.runtime import Clock
from tests.support.harness import (
    Harness,
    chat_request,
    make_harness,
    profile,
    replay_offline,
    scripted_engine,
    watch_commits,
)
from tests.support.recovery import TERMINAL_TYPES, is_complete_log
from tests.support.seeds import seeds
from tests.support.stored_journal import CommittingJournal
from tests.support.usage import (
    SCHEMA,
    ended_by_budget,
    planning_of,
    quote_of,
    random_engines,
    random_limits,
    random_request,
    spending_harness,
)
from tests.support.virtual_time import VirtualClock

COUNTER = UNCORRECTED
CALL = EngineCall([Message(role="user", content="x" * 400)], (), ExecutionHints())
READ = count_tokens(CALL, COUNTER)
PRICE = (1_000.0, 2_000.0)
"""A thousandth for a token that is read, and twice that for one that is written."""
ENGINE = profile("e", response_reserve=50, price=PRICE)
ROLL = {"tool_calls": [{"name": "roll_dice", "arguments": {"count": 2, "sides": 6}}]}


def usage(read: int, written: int) -> TokenUsage:
    return TokenUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)


def used(read: int, written: int) -> dict[str, int]:
    return usage(read, written).model_dump(include={"input_tokens", "output_tokens", "total_tokens"})


def budget(tokens: int | None = None, cost: float | None = None) -> Budget:
    found = budget_for(EffectiveLimits(600, 20, 32, 1, tokens=tokens, cost=cost))
    assert found is not None
    return found


def granted(within: Budget, key: str = "0/0", hint: int | None = None, engine: EngineProfile = ENGINE) -> int | None:
    call = replace(CALL, hints=ExecutionHints(max_tokens=hint))
    return within.grant(key, call, engine, COUNTER).hints.max_tokens


def refusal(within: Budget, key: str = "0/1", engine: EngineProfile = ENGINE) -> OrchestrationFailure:
    with pytest.raises(OrchestrationFailure) as refused:
        within.grant(key, CALL, engine, COUNTER)
    assert refused.value.code is Code.ORCHESTRATION_BUDGET_EXCEEDED
    return refused.value


def test_without_limits_there_is_no_budget() -> None:
    assert budget_for(EffectiveLimits(600, 20, 32, 1)) is None


@pytest.mark.parametrize(
    ("tokens", "hint", "written"),
    [
        (READ + 1, None, 1),
        (READ + 49, None, 49),
        (READ + 51, None, 50),
        (READ + 51, 200, 51),
        (READ + 1_000, 200, 200),
        (10**9, None, 50),
    ],
)
def test_an_attempt_may_write_what_is_left_but_no_more_than_was_hinted_or_is_usual(
    tokens: int, hint: int | None, written: int
) -> None:
    assert granted(budget(tokens), hint=hint) == written


def test_an_engine_that_keeps_nothing_for_its_answer_may_write_all_that_is_left() -> None:
    assert granted(budget(READ + 700), engine=profile("e", response_reserve=0)) == 700


def test_an_attempt_that_could_not_write_one_token_is_refused_with_both_numbers() -> None:
    failure = refusal(budget(READ))
    assert failure.details == {"field": "limits.tokens", "limit": READ, "used": 0, "needed": READ + 1}
    assert failure.message == f"limits.tokens leaves {READ} and the next inference needs {READ + 1}"


def test_cost_is_what_reading_costs_and_what_may_be_written_costs() -> None:
    assert granted(budget(cost=(READ + 2 * 7.5) / 1_000)) == 7
    failure = refusal(budget(cost=(READ + 1.9) / 1_000))
    assert failure.details["field"] == "limits.cost"
    assert failure.details["needed"] == pytest.approx((READ + 2) / 1_000)


@pytest.mark.parametrize("price", [(1_000.0, 0.0), (0.0, 0.0)])
def test_what_costs_nothing_to_write_is_limited_by_what_it_costs_to_read(price: tuple[float, float]) -> None:
    engine = profile("e", response_reserve=50, price=price)
    assert granted(budget(cost=(READ + 0.5) / 1_000), engine=engine) == 50
    if price[0]:
        assert refusal(budget(cost=(READ - 0.5) / 1_000), engine=engine).details["field"] == "limits.cost"


def test_reading_is_granted_at_the_dearest_price_of_an_input_token() -> None:
    engine = profile("e", response_reserve=50, price=TokenPrices(400.0, 0.0, 40.0, 1_000.0))
    assert granted(budget(cost=(READ + 0.5) / 1_000), engine=engine) == 50
    assert refusal(budget(cost=(READ - 0.5) / 1_000), engine=engine).details["field"] == "limits.cost"


async def test_cached_tokens_are_charged_at_their_own_prices(clock: VirtualClock) -> None:
    spent = {"input_tokens": 1_000, "output_tokens": 10, "total_tokens": 1_010}
    reply = {"text": "hi", "usage": spent | {"cached_tokens": 600, "cache_write_tokens": 300}}
    engine = scripted_engine(clock, "a", reply, price=TokenPrices(3.0, 15.0, 0.3, 3.75))
    response, record = await make_harness(clock, engine, cost=1.0).run(chat_request())
    assert response.cost is not None
    assert response.cost.amount == pytest.approx((100 * 3 + 600 * 0.3 + 300 * 3.75 + 10 * 15) / 1_000_000)
    assert response.cost.cache_saved == pytest.approx((600 * 2.7 - 300 * 0.75) / 1_000_000)
    assert (response.token_usage.cached_tokens, response.token_usage.cache_write_tokens) == (600, 300)
    assert replay_offline(record) == len(record.steps)


async def test_a_cost_without_tokens_of_a_cache_does_not_name_what_one_saved(clock: VirtualClock) -> None:
    engine = scripted_engine(clock, "a", {"text": "hi"}, price=TokenPrices(3.0, 15.0, 0.3, 3.75))
    response, _ = await make_harness(clock, engine).run(chat_request())
    assert response.cost is not None
    assert set(response.cost.model_dump(mode="json")) == {"amount", "currency"}


def test_the_share_of_a_final_answer_is_out_of_reach_until_it_is_used() -> None:
    limits = EffectiveLimits(600, 20, 32, 1, tokens=100_000)
    found = budget_for(limits, None, [ENGINE, profile("f", response_reserve=904)])
    assert found is not None
    assert granted(found, hint=10**6) == 100_000 - READ - (4_096 + 904)
    found.charge("0/0", usage(94_999, 0), None)
    assert not found.is_exhausted
    assert refusal(found).details | {"needed": 0} == {
        "field": "limits.tokens", "limit": 100_000, "used": 94_999, "needed": 0, "reserved": 5_000
    }  # fmt: skip
    found.charge("0/1", usage(1, 0), None)
    assert found.is_exhausted
    found.use_reserve()
    assert not found.is_exhausted
    assert granted(found, "0/2", hint=10**6) == 5_000 - READ


def test_the_share_of_a_final_answer_is_at_most_a_quarter_of_each_limit() -> None:
    found = budget_for(EffectiveLimits(600, 20, 32, 1, tokens=1_000, cost=0.8), None, [ENGINE])
    assert found is not None
    assert refusal(replaced(found, 1_000 - READ)).details["reserved"] == 250
    dear = budget_for(EffectiveLimits(600, 20, 32, 1, cost=0.8), None, [ENGINE])
    assert dear is not None
    assert refusal(replaced(dear, 800)).details["reserved"] == pytest.approx(0.2)


def replaced(within: Budget, tokens: int) -> Budget:
    within.charge("0", usage(tokens, 0), ENGINE.price)
    return within


def test_the_tighter_of_two_limits_decides() -> None:
    assert granted(budget(READ + 9, (READ + 2 * 20) / 1_000)) == 9
    assert granted(budget(READ + 20, (READ + 2 * 9.5) / 1_000)) == 9
    assert refusal(budget(READ + 20, 0.001)).details["field"] == "limits.cost"
    assert refusal(budget(1, 100.0)).details["field"] == "limits.tokens"


def test_what_runs_holds_its_share_until_it_is_known_what_it_took() -> None:
    within = budget(2 * READ + 60)
    assert granted(within, "0/0/0/0") == 50
    assert granted(within, "0/1/0/0") == 10
    assert refusal(within, "0/2/0/0").details["used"] == 2 * READ + 60
    within.charge("0/0/0/0", usage(READ, 5), None)
    assert refusal(within, "0/2/0/0").details["used"] == 2 * READ + 15
    within.charge("0/1/0/0", TokenUsage(), None)
    assert granted(within, "0/2/0/0") == 50
    assert not within.is_exhausted


def test_it_is_spent_when_what_was_used_reaches_a_limit() -> None:
    within = budget(100, 0.5)
    within.charge("0/0", usage(99, 0), TokenPrices.without_cache(1.0, 1.0))
    assert not within.is_exhausted
    within.charge("0/1", usage(1, 0), TokenPrices.without_cache(1.0, 1.0))
    assert within.is_exhausted
    dear = budget(cost=0.5)
    dear.charge("0/0", usage(0, 1), TokenPrices.without_cache(0.0, 500_000.0))
    assert dear.is_exhausted


async def test_an_attempt_over_budget_is_a_recorded_outcome_and_nothing_is_sent(clock: VirtualClock) -> None:
    primary = scripted_engine(clock, "primary", {"text": "never"})
    here = make_harness(clock, primary, scripted_engine(clock, "backup", {"text": "never"}), tokens=3)
    response, record = await here.run(chat_request())
    assert (response.state, ended_by_budget(response)) == (State.ERROR, True)
    assert response.error is not None
    assert response.error.details["limit"] == 3
    assert response.error.details["reason"] == "over_budget"
    assert await primary.ping() == "scripted: 1 of 1 replies left"
    outcome = record.steps["0/0"].outcome
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.reason, outcome.wait, outcome.usage) == (AttemptFailureReason.OVER_BUDGET, None, TokenUsage())
    assert [item.event.type for item in record.events].count("inference.start") == 1
    assert response.metadata.fallback_attempts == 0
    assert replay_offline(record) == len(record.steps)


async def test_an_attempt_that_was_not_sent_counts_as_no_fallback(clock: VirtualClock) -> None:
    """The first provider fails and uses up the budget, so nothing is sent to the second one."""
    failing = scripted_engine(clock, "primary", {"fault": "server_error", "usage": used(1_000, 20)})
    here = make_harness(clock, failing, scripted_engine(clock, "backup", {"text": "never"}), tokens=1_000)
    response, record = await here.run(chat_request())
    reasons = [step.outcome.reason for step in record.steps.values() if isinstance(step.outcome, AttemptFailed)]
    assert reasons == [AttemptFailureReason.SERVER_ERROR, AttemptFailureReason.OVER_BUDGET]
    assert response.metadata.fallback_attempts == 0


async def test_a_refusal_says_nothing_against_the_provider(clock: VirtualClock) -> None:
    here = make_harness(clock, scripted_engine(clock, "a", {"text": "hi"}), tokens=3)
    for _ in range(20):
        await here.run(chat_request())
    assert here.environment.health.breakers["a"].allows_attempt


async def test_what_was_done_before_the_budget_was_spent_is_in_the_response(clock: VirtualClock) -> None:
    engine = scripted_engine(clock, "a", ROLL | {"usage": used(100, 200)}, {"text": "never"}, price=PRICE)
    response, record = await make_harness(clock, engine, tools=BUILTIN_TOOLS, tokens=600).run(chat_request())
    assert ended_by_budget(response)
    (call,) = response.tool_calls_made
    assert (call.attempts, call.is_error) == (1, False)
    assert response.token_usage.total_tokens == 300
    assert response.cost is not None
    assert response.error is not None
    assert response.error.details["used"] == 300
    assert replay_offline(record) == len(record.steps)


async def test_usage_beyond_the_limit_lets_nothing_more_begin(clock: VirtualClock) -> None:
    engine = scripted_engine(clock, "a", ROLL | {"usage": used(1_000, 20)}, {"text": "never"})
    response, record = await make_harness(clock, engine, tools=BUILTIN_TOOLS, tokens=600).run(chat_request())
    assert ended_by_budget(response)
    (call,) = response.tool_calls_made
    assert (call.attempts, call.is_error) == (0, True)
    assert call.result == "not run: the budget of the execution is spent"
    ended = record.steps["1/0/0/0"].outcome
    assert isinstance(ended, ToolEnded)
    assert (ended.code, ended.ran) == (Code.ORCHESTRATION_BUDGET_EXCEEDED, False)
    assert await engine.ping() == "scripted: 1 of 2 replies left"
    assert replay_offline(record) == len(record.steps)


async def test_the_errors_of_an_answer_that_cannot_be_asked_for_again_stand_beside_the_failure(
    clock: VirtualClock,
) -> None:
    engine = scripted_engine(
        clock, "a", {"text": '{"city": "Rome", "size": 1}', "usage": used(500, 20)}, {"text": "never"}
    )
    request = chat_request("Which city?", mode=Mode.STRUCTURED, output={"schema": SCHEMA})
    pattern = PATTERNS[Mode.STRUCTURED].run
    response, record = await make_harness(clock, engine, attempts=3, tokens=540).run(request, pattern)
    assert ended_by_budget(response)
    assert (response.content, response.structured_output) == (None, None)
    assert response.validation_result is not None
    assert not response.validation_result.valid
    assert replay_offline(record, pattern) == len(record.steps)


async def test_a_replica_that_is_refused_has_no_vote_and_the_others_go_on(clock: VirtualClock) -> None:
    answer = {"text": '{"city": "Ulm", "size": 1}', "usage": used(300, 20), "delay": 1}
    able = EngineCapabilities(schema=True)
    engine = scripted_engine(clock, "a", *[answer] * 3, response_reserve=30, capabilities=able)
    request = chat_request(
        "Which city?", mode=Mode.REDUNDANT, output={"schema": SCHEMA}, redundancy={"early_stop": False}
    )
    pattern = PATTERNS[Mode.REDUNDANT].run
    read = sum(map(COUNTER.message, request.messages))
    response, record = await make_harness(clock, engine, tokens=3 * read + 60).run(request, pattern)
    assert response.state is State.COMPLETE
    assert response.vote is not None
    assert [each["status"] for each in response.vote.candidates] == ["voted", "voted", "failed"]
    assert response.confidence == 2 / 3
    assert replay_offline(record, pattern) == len(record.steps)


async def test_when_every_replica_is_refused_it_ends_by_its_budget(clock: VirtualClock) -> None:
    request = chat_request("Which city?", mode=Mode.REDUNDANT, output={"schema": SCHEMA})
    pattern = PATTERNS[Mode.REDUNDANT].run
    response, record = await make_harness(clock, scripted_engine(clock, "a"), tokens=5).run(request, pattern)
    assert ended_by_budget(response)
    assert replay_offline(record, pattern) == len(record.steps)


async def test_a_step_that_is_refused_fails_and_those_that_do_not_depend_on_it_have_run(clock: VirtualClock) -> None:
    said = {"text": "hi", "usage": used(90, 20)}
    engine = scripted_engine(clock, "a", said, {"text": "never"}, response_reserve=30)
    steps = [
        {"name": "roll", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}},
        {"name": "first", "type": "infer", "input": "Hi", "depends_on": []},
        {"name": "second", "type": "infer", "depends_on": ["first"]},
        {"name": "third", "type": "infer", "depends_on": ["second"]},
    ]
    request = chat_request("Hi", mode=Mode.PLAN, plan={"steps": steps})
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS, tokens=113)
    response, record = await here.run(request, PATTERNS[Mode.PLAN].run, make_plan)
    assert ended_by_budget(response)
    assert response.plan is not None
    assert [step.status for step in response.plan.steps] == ["completed", "completed", "failed", "skipped"]
    assert response.plan.steps[1].output == "hi"
    assert replay_offline(record, PATTERNS[Mode.PLAN].run, make_plan) == len(record.steps)


async def test_a_tool_step_does_not_begin_when_the_budget_is_spent(clock: VirtualClock) -> None:
    engine = scripted_engine(clock, "a", {"text": "hi", "usage": used(90, 20)})
    steps = [
        {"name": "say", "type": "infer", "input": "Hi"},
        {"name": "roll", "type": "tool", "input": {"name": "roll_dice", "arguments": {"count": 1, "sides": 6}}},
    ]
    here = make_harness(clock, engine, tools=BUILTIN_TOOLS, tokens=110)
    request = chat_request("Hi", mode=Mode.PLAN, plan={"steps": steps})
    response, record = await here.run(request, PATTERNS[Mode.PLAN].run, make_plan)
    assert ended_by_budget(response)
    assert response.plan is not None
    assert [step.status for step in response.plan.steps] == ["completed", "failed"]
    assert response.tool_calls_made[0].attempts == 0
    assert replay_offline(record, PATTERNS[Mode.PLAN].run, make_plan) == len(record.steps)


class Mute:
    """An engine that remembers its calls and reports no usage."""

    def __init__(self, clock: Clock, **changes: Any) -> None:
        self.profile = profile("mute", **changes)
        self.asked: list[int | None] = []

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        """Return a long answer."""
        self.asked.append(call.hints.max_tokens)
        return Reply("word " * 400, (), "stop", "", TokenUsage(), self.profile.model)

    async def ping(self) -> str:
        """Return at once."""
        return "here"


async def test_what_a_provider_does_not_say_is_estimated_and_never_above_its_window(clock: VirtualClock) -> None:
    response, _ = await make_harness(clock, Mute(clock)).run(chat_request())
    assert (response.token_usage.estimated, response.token_usage.output_tokens) == (True, 504)
    small, _ = await make_harness(clock, Mute(clock, context_window=300, response_reserve=100)).run(chat_request())
    assert small.token_usage.total_tokens == 300


async def test_a_limit_is_sent_to_the_engine_and_no_limit_leaves_the_hints_as_they_are(clock: VirtualClock) -> None:
    free, limited = Mute(clock), Mute(clock)
    await make_harness(clock, free).run(chat_request())
    await make_harness(clock, limited, tokens=100).run(chat_request())
    assert free.asked == [None]
    assert limited.asked == [100 - count_tokens(EngineCall(chat_request().messages, (), ExecutionHints()), COUNTER)]


def committing_harness(clock: VirtualClock, seed: int) -> tuple[Harness, Any]:
    """Return a harness that remembers every commit, and a request that its limits will probably end."""
    dice = Random(seed)
    engines = random_engines(clock, dice, priced=True)
    tokens = dice.choice([dice.randrange(500, 20_000), None])
    cost = None if tokens else dice.random() * 0.05
    here = spending_harness(clock, engines, dice, **random_limits(dice), tokens=tokens, cost=cost)
    request = random_request(dice, engines)
    return watch_commits(here), request


@pytest.mark.parametrize("block", seeds(4))
async def test_after_a_crash_at_any_commit_the_budget_still_holds(clock: VirtualClock, block: int) -> None:
    ended = 0
    for seed in range(block * 20, block * 20 + 20):
        here, request = committing_harness(clock, seed)
        response, _ = await here.run(request, PATTERNS[request.mode].run, planning_of(request))
        ended += ended_by_budget(response)
        assert isinstance(here.journal, CommittingJournal)
        for record, _ in list(here.journal.commits):
            if record.events and record.events[-1].event.type not in TERMINAL_TYPES | {"execution.suspended"}:
                await check_recovery(clock, seed, record, request)
    assert ended


async def check_recovery(clock: VirtualClock, seed: int, record: ExecutionHistory, request: Any) -> None:
    there, _ = committing_harness(clock, seed)
    pattern, planning = PATTERNS[request.mode].run, planning_of(request)
    response, after = await there.recover(record, pattern, planning)
    assert replay_offline(after, pattern, planning) == len(after.steps)
    assert all(after.steps[key] == row for key, row in record.steps.items())
    if response.state in TERMINAL:
        assert is_complete_log(after)
    most = quote_of(there, request)
    assert response.token_usage.total_tokens <= most.tokens
    assert most.cost is None or (response.cost is None or response.cost.amount <= most.cost.amount * (1 + 1e-9))


def taken(record: ExecutionHistory) -> int:
    rows = record.steps.values()
    return sum(
        usage_of(row.outcome).total_tokens for row in rows if isinstance(row.outcome, AttemptSucceeded | AttemptFailed)
    )


async def test_usage_of_a_sibling_before_a_crash_counts_before_it_is_replayed(clock: VirtualClock) -> None:
    replies: Sequence[Any] = [ROLL | {"usage": used(400, 100), "delay": delay} for delay in (1, 2)]
    engine = scripted_engine(clock, "a", *replies, {"text": "later", "usage": used(1, 1), "delay": 9})

    async def two(context: Any) -> str:
        results = await context.gather([agent_loop, agent_loop])
        return " ".join(each.code if isinstance(each, Failure) else each for each in results)

    here = make_harness(clock, engine, tools=BUILTIN_TOOLS, tokens=30_000)
    watch_commits(here)
    await here.run(chat_request(), two)
    assert isinstance(here.journal, CommittingJournal)
    crashed = next(record for record, _ in here.journal.commits if taken(record) == 1_000)
    tight = replace(crashed, header=replace(crashed.header, bounds=replace(crashed.header.bounds, tokens=1_200)))
    there = make_harness(clock, scripted_engine(clock, "a", {"text": "one"}, {"text": "two"}), tools=BUILTIN_TOOLS)
    response, after = await there.recover(tight, two)
    assert response.content == "ORCHESTRATION_BUDGET_EXCEEDED ORCHESTRATION_BUDGET_EXCEEDED"
    assert replay_offline(after, two) == len(after.steps)
