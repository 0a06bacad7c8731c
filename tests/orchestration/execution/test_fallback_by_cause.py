"""Fallback by cause: a full context or a filter continues with the engines that the route names for it."""

from itertools import product
from random import Random

import pytest

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.capabilities.models.failover import FailoverWalk
from portico.domain.access.principal import Permissions
from portico.domain.contract.response import NO_USAGE
from portico.domain.failures import Code
from portico.domain.fallback import State, max_attempts, max_transitions
from portico.domain.journal.events import InferenceRetracted, InferenceStart
from portico.domain.journal.outcomes import AttemptFailed, AttemptSucceeded, Candidate, CauseCandidates, InferenceSetup
from portico.domain.journal.step_key import StepKey
from portico.domain.model_call import CAUSES, RULES, AttemptFailureReason, FailureAction
from portico.domain.token_prices import TokenPrices
from portico.orchestration.execution.ledger import recorded_prices
from portico.ports.journal import ExecutionHistory
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, response_of, scripted_engine
from tests.support.usage import quote_of
from tests.support.virtual_time import VirtualClock

CONTEXT, FILTER = CAUSES


def asked(record: ExecutionHistory) -> list[str]:
    """Return the providers of the attempts in order."""
    return [item.event.provider for item in record.events if isinstance(item.event, InferenceStart)]


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_failure_for_a_cause_goes_on_with_its_list_alone(
    clock: VirtualClock, cause: AttemptFailureReason
) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "small", {"fault": cause}),
        scripted_engine(clock, "never asked", {"text": "no"}),
        by_cause={
            cause: [
                scripted_engine(clock, "dead", {"fault": "unreachable"}),
                scripted_engine(clock, "large", {"text": "hi"}, price=TokenPrices.without_cache(1, 2)),
            ]
        },
    )
    response, record = await here.run(chat_request())
    assert response.content == "hi"
    assert asked(record) == ["small", "dead", "large"]
    assert response.metadata.provider == "large"
    assert response.cost is not None
    moves = [item.event for item in record.events if item.event.type == "fallback.transition"]
    assert [(move.fsm_event, move.to_state, move.reason) for move in moves[2:5]] == [
        ("RETRYABLE_ERROR", State.RETRYING, cause),
        ("TIMEOUT", State.SELECTING, "left"),
        ("PROVIDER_SUCCESS", State.ATTEMPTING, "selected"),
    ]
    assert replay_offline(record) == len(record.steps)
    answered = next(step for step in record.steps.values() if isinstance(step.outcome, AttemptSucceeded))
    assert recorded_prices(record.steps, answered) == TokenPrices.without_cache(1, 2)
    rounds, attempts_each = 21, 2
    assert quote_of(here, chat_request()).inferences == rounds * attempts_each * (2 + 2)


async def test_each_cause_is_used_once_and_then_ends_the_route(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "small", {"fault": "context_exceeded"}),
        by_cause={
            CONTEXT: [scripted_engine(clock, "large", {"fault": "content_filtered"})],
            FILTER: [scripted_engine(clock, "lenient", {"fault": "context_exceeded"})],
        },
    )
    response, record = await here.run(chat_request())
    assert asked(record) == ["small", "large", "lenient"]
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_CONTEXT_EXCEEDED
    assert replay_offline(record) == len(record.steps)


async def test_an_engine_that_failed_for_a_cause_is_not_asked_again_for_it(clock: VirtualClock) -> None:
    only = scripted_engine(clock, "only", {"fault": "content_filtered"}, {"text": "never"})
    response, record = await make_harness(clock, only, by_cause={FILTER: [only]}).run(chat_request())
    assert asked(record) == ["only"]
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_CONTENT_FILTERED


async def test_a_list_that_fails_for_other_reasons_is_unavailable_and_names_each_attempt(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "small", {"fault": "context_exceeded"}),
        by_cause={CONTEXT: [scripted_engine(clock, "large", {"fault": "unreachable"})]},
    )
    response, _ = await here.run(chat_request())
    assert response.error is not None
    assert response.error.code is Code.INFERENCE_MODEL_UNAVAILABLE
    assert [each["provider"] for each in response.error.details["attempts"]] == ["small", "large"]


async def test_text_that_a_filter_stopped_is_retracted_before_the_next_engine_streams(clock: VirtualClock) -> None:
    here = make_harness(
        clock,
        scripted_engine(clock, "strict", {"fault": "content_filtered", "after_chunks": 2}),
        by_cause={FILTER: [scripted_engine(clock, "lenient", {"chunks": ["he", "llo"]})]},
    )
    execution = here.execution(chat_request())
    reader = here.bus.subscribe(execution.header.execution_id)
    await here.drive(execution)
    seen = [item.event for item in await reader.next()]
    assert response_of(execution).content == "hello"
    assert [event.segment for event in seen if isinstance(event, InferenceRetracted)] == ["0/0"]


def wide(clock: VirtualClock, large_window: int, *replies: dict[str, object]) -> Harness:
    """Return a route of one small engine with a larger one for what exceeds it."""
    return make_harness(
        clock,
        scripted_engine(clock, "small", *replies, context_window=600, response_reserve=100),
        tools=BUILTIN_TOOLS,
        by_cause={
            CONTEXT: [
                scripted_engine(clock, "large", {"text": "long"}, context_window=large_window, response_reserve=100)
            ]
        },
    )


async def test_a_conversation_that_fits_no_engine_of_the_route_begins_with_the_larger_one(clock: VirtualClock) -> None:
    long = chat_request("word " * 2_000)
    here = wide(clock, 9_000)
    response, record = await here.run(long)
    assert (response.content, asked(record)) == ("long", ["large"])
    assert replay_offline(record) == len(record.steps)
    refused, _ = await wide(clock, 1_500).run(long)
    assert refused.error is not None
    assert refused.error.code is Code.INFERENCE_CONTEXT_EXCEEDED
    assert refused.error.details["limit"] == 1_400
    short, record = await wide(clock, 9_000, {"text": "short"}).run(chat_request())
    assert (short.content, asked(record)) == ("short", ["small"])


async def test_tool_results_that_outgrow_the_route_move_to_the_larger_engine_uncut(clock: VirtualClock) -> None:
    call = {"tool_calls": [{"name": "calculate", "arguments": {"expression": "2 ** 2000"}}]}
    here = wide(clock, 9_000, call)
    response, record = await here.run(chat_request("word " * 60, tools=["calculate"]))
    assert asked(record) == ["small", "large"]
    assert response.content == "long"
    setups = [step.outcome for step in record.steps.values() if isinstance(step.outcome, InferenceSetup)]
    assert [setup.cut for setup in setups] == [(), ()]
    assert replay_offline(record) == len(record.steps)


def test_no_order_of_outcomes_makes_more_moves_or_attempts_than_proven() -> None:
    """Walk every order of a retried, a left and two fatal outcomes over two candidates and a list for each cause."""
    names = {name: Candidate(name, "m") for name in "abcde"}
    setup = InferenceSetup(
        (),
        (names["a"], names["b"]),
        by_cause=(
            CauseCandidates(CONTEXT, (names["c"], names["a"])),
            CauseCandidates(FILTER, (names["d"], names["e"])),
        ),
    )
    reasons = (AttemptFailureReason.OVERLOADED, AttemptFailureReason.UNREACHABLE, CONTEXT, FILTER)
    lengths = set()
    for order in product(reasons, repeat=8):
        walk = FailoverWalk(StepKey("0"), setup, 1)
        moves, attempts, outcomes = len(walk.select()), 0, iter(order)
        while walk.candidate is not None and (reason := next(outcomes, None)) is not None:
            attempts += 1
            wait = 1.0 if RULES[reason].action is FailureAction.RETRY else None
            moves += len(walk.fail(AttemptFailed(reason, "", wait, None, False, "", NO_USAGE, 1.0)))
            if walk.refusal is not None:
                break
            if walk.state is State.RETRYING:
                moves += len(walk.retry())
            if walk.state is State.SELECTING:
                moves += len(walk.select())
        lengths.add((moves, attempts))
        assert moves <= max_transitions(6, 1)
        assert attempts <= 12
    assert max(lengths)[1] == 8


def test_no_order_of_outcomes_on_deployments_makes_more_moves_or_attempts_than_proven() -> None:
    """Walk random orders of all outcomes over engines with deployments, of which a cause names one, too."""
    named = {name: Candidate(name[0], "m", deployment=name[1:] or None) for name in ("a1", "a2", "a3", "b", "c1", "c2")}
    setup = InferenceSetup(
        (),
        tuple(named[name] for name in ("a1", "a2", "a3", "b")),
        by_cause=(
            CauseCandidates(CONTEXT, (named["c1"], named["c2"])),
            CauseCandidates(FILTER, (named["a2"], named["b"])),
        ),
    )
    candidates, draw = len(setup.all_candidates), Random(32)
    for retries in (0, 1, 2):
        for _ in range(2_000):
            walk = FailoverWalk(StepKey("0"), setup, retries)
            moves, attempts = len(walk.select()), 0
            while walk.candidate is not None:
                attempts += 1
                left = walk.candidate.provider, draw.random() < 0.2
                reason = draw.choice([*AttemptFailureReason])
                wait = (
                    draw.choice([None, 0.0, 1.0]) if RULES[reason].action is not FailureAction.NEXT_PROVIDER else None
                )
                failed = AttemptFailed(reason, "", wait, None, False, "", NO_USAGE, 1.0, leaves_engine=left[1])
                moves += len(walk.fail(failed))
                if walk.refusal is not None:
                    break
                if walk.state is State.RETRYING:
                    moves += len(walk.retry())
                if walk.state is State.SELECTING:
                    moves += len(walk.select())
                    is_same = walk.candidate is not None and walk.candidate.provider == left[0]
                    assert not (left[1] and is_same and reason not in CAUSES), "its other deployments are left, too"
            assert moves <= max_transitions(candidates, retries)
            assert attempts <= max_attempts(candidates, retries)


async def test_the_permission_for_a_route_covers_its_engines_by_cause_and_no_other(clock: VirtualClock) -> None:
    here = make_harness(
        clock, scripted_engine(clock, "small"), by_cause={CONTEXT: [scripted_engine(clock, "large", {"text": "hi"})]}
    )
    catalogue = here.environment.catalogue
    assert catalogue.is_permitted("large", Permissions.of(["model:default"]))
    assert not catalogue.is_permitted("large", Permissions.of(["model:other"]))
