"""Redundant mode: several answers at once and a vote, which ends as soon as no answer can change it."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from anyio import get_cancelled_exc_class

from portico.adapters.tools.builtin import BUILTIN_TOOLS
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import (
    Event,
    InferenceEnd,
    InferenceStart,
    LifecycleTransition,
    ValidationEnd,
    VoteCast,
    VoteDecided,
)
from portico.domain.journal.outcomes import AttemptCancelled, RaceDecided
from portico.domain.lifecycle import Mode, State
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.patterns.redundant_loop import redundant_loop
from portico.ports.journal import ExecutionHistory
from portico.ports.model import EngineCapabilities, Progress
from tests.support.harness import Harness, chat_request, make_harness, replay_offline, scripted_engine
from tests.support.seeds import seeds
from tests.support.virtual_time import VirtualClock

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["city", "size"],
}
NATIVE = EngineCapabilities(schema=True, grammar=True)
A, B, C = {"city": "Köln", "size": 1}, {"city": "Ulm", "size": 2}, {"city": "Bonn", "size": 3}
PROSE = "no JSON at all"


def reply(answer: Any, delay: float = 0.0) -> dict[str, Any]:
    if isinstance(answer, dict) and "fault" in answer:
        return {**answer, "delay": delay}
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    return {"text": text, "delay": delay, "usage": usage}


def here(clock: VirtualClock, *answers: Any, delays: Sequence[float] | None = None, **bounds: Any) -> Harness:
    """Return a harness in which replica i gets answer i after delay i, from an engine of its own."""
    after = delays or range(1, len(answers) + 1)
    engines = [
        scripted_engine(clock, f"e{number}", reply(answer, delay), capabilities=NATIVE)
        for number, (answer, delay) in enumerate(zip(answers, after, strict=True))
    ]
    return make_harness(clock, *engines, max_retries=0, **bounds)


def asking(n: int, output: Mapping[str, Any] | None = None, **redundancy: Any) -> SystemRequest:
    options = {"n": n, "models": [f"e{number}" for number in range(n)]} | redundancy
    return chat_request("Which city?", mode=Mode.REDUNDANT, output=output or {"schema": SCHEMA}, redundancy=options)


async def run(world: Harness, request: SystemRequest) -> tuple[SystemResponse, ExecutionHistory]:
    """Return the response and the history, which replays identically."""
    response, record = await world.run(request, redundant_loop)
    assert replay_offline(record, redundant_loop) == len(record.steps)
    return response, record


def events(record: ExecutionHistory, kind: type[Event]) -> list[Any]:
    return [item.event for item in record.events if isinstance(item.event, kind)]


async def test_the_answer_most_replicas_gave_wins(clock: VirtualClock) -> None:
    response, record = await run(here(clock, A, B, A), asking(3))
    assert response.state is State.COMPLETE
    assert response.structured_output == A
    assert json.loads(response.content or "") == A
    assert (response.confidence, response.confidence_source) == (2 / 3, "voting")
    assert response.vote is not None
    assert [candidate["status"] for candidate in response.vote.candidates] == ["voted"] * 3
    assert response.vote.tally == [
        {"value": A, "votes": 2, "replicas": [0, 2]},
        {"value": B, "votes": 1, "replicas": [1]},
    ]
    assert not response.vote.stopped_early
    assert response.validation_result is not None
    assert response.validation_result.valid
    assert [event.replica for event in events(record, InferenceStart)] == [0, 1, 2]
    assert {event.temperature for event in events(record, InferenceStart)} == {0.3}
    assert [event.provider for event in events(record, InferenceStart)] == ["e0", "e1", "e2"]


async def test_events_have_this_order(clock: VirtualClock) -> None:
    _, record = await run(here(clock, A, A, B), asking(3))
    types = [
        (item.event.type, item.anchor)
        for item in record.events
        if not item.event.type.startswith(("fallback", "stage"))
    ]
    assert types == [
        ("lifecycle.transition", "init"),
        ("lifecycle.transition", "init"),
        ("lifecycle.transition", "prepare"),
        ("inference.start", "0/0/0/0"),
        ("inference.start", "0/1/0/0"),
        ("inference.start", "0/2/0/0"),
        ("inference.end", "0/0/0/0"),
        ("validation.end", "0/0/0/0"),
        ("vote.cast", "0/0/0/0"),
        ("inference.end", "0/1/0/0"),
        ("validation.end", "0/1/0/0"),
        ("vote.cast", "0/1/0/0"),
        ("inference.end", "0/2/0/0"),
        ("lifecycle.transition", "0"),
        ("vote.decided", "0"),
        ("lifecycle.transition", "end"),
        ("execution.completed", "end"),
    ]
    assert [event.to_state for event in events(record, LifecycleTransition)] == [
        *(State.INIT, State.PREPARE, State.EXECUTE, State.VALIDATE, State.COMPLETE)
    ]
    assert events(record, VoteCast) == [VoteCast(0, "voted", None), VoteCast(1, "voted", None)]
    assert events(record, VoteDecided) == [VoteDecided(3, 2, 0, True, 2, 2 / 3, 0, None)]


async def test_the_decision_is_recorded_before_the_others_are_cut_off(clock: VirtualClock) -> None:
    began = clock.monotonic()
    response, record = await run(here(clock, A, B, A, A, C, delays=[9, 1, 2, 3, 50]), asking(5))
    assert clock.monotonic() - began == pytest.approx(9)
    assert response.structured_output == A
    assert response.vote is not None
    assert response.vote.stopped_early
    assert response.vote.candidates[4] == {"replica": 4, "status": "cancelled"}
    assert response.confidence == 3 / 5
    keys = list(record.steps)
    assert keys.index("0") < keys.index("0/4/0/0")
    assert record.steps["0"].outcome == RaceDecided((0, 1, 2, 3))
    assert isinstance(record.steps["0/4/0/0"].outcome, AttemptCancelled)
    assert events(record, InferenceEnd)[-1].finish_reason == "cancelled"


class Slow:
    """An engine whose call never ends by itself and that remembers when it was cancelled."""

    def __init__(self, clock: VirtualClock, name: str) -> None:
        self.profile = scripted_engine(clock, name, capabilities=NATIVE).profile
        self._clock = clock
        self.cancelled_at: float | None = None

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        progress.text('{"city": ')
        try:
            await self._clock.sleep(1_000)
        except get_cancelled_exc_class():
            self.cancelled_at = self._clock.monotonic()
            raise
        raise AssertionError("no test waits that long")

    async def ping(self) -> str:
        return "here"


async def test_an_early_stop_cancels_the_call_upstream_and_counts_what_it_used(clock: VirtualClock) -> None:
    slow = Slow(clock, "e2")
    quick = [scripted_engine(clock, name, reply(A, 1), capabilities=NATIVE) for name in ("e0", "e1")]
    began = clock.monotonic()
    response, record = await run(make_harness(clock, *quick, slow), asking(3))
    assert slow.cancelled_at == pytest.approx(began + 1)
    assert response.structured_output == A
    cut = record.steps["0/2/0/0"].outcome
    assert isinstance(cut, AttemptCancelled)
    assert cut.usage.estimated
    assert cut.usage.output_tokens > 0
    assert response.token_usage.total_tokens == 24 + cut.usage.total_tokens
    assert response.token_usage.estimated
    assert response.metadata.provider in {"e0", "e1"}
    assert response.metadata.finish_reason == "stop"


async def test_without_early_stop_all_are_heard(clock: VirtualClock) -> None:
    response, record = await run(here(clock, A, A, A, B), asking(4, early_stop=False))
    assert response.vote is not None
    assert not response.vote.stopped_early
    assert len(events(record, VoteCast)) == 4
    assert response.confidence == 0.75


async def test_replicas_that_fail_have_no_vote_and_harm_no_other(clock: VirtualClock) -> None:
    world = here(clock, {"fault": "refused"}, PROSE, {"city": "Ulm"}, B, B)
    response, record = await run(world, asking(5, early_stop=False))
    assert response.state is State.COMPLETE
    assert response.structured_output == B
    assert response.confidence == 2 / 5
    assert [event.status for event in events(record, VoteCast)] == ["failed"] * 3 + ["voted"] * 2
    assert [event.error_code for event in events(record, VoteCast)][:3] == [
        *(Code.INFERENCE_ENGINE_ERROR, Code.CONSTRAINT_JSON_INVALID, Code.CONSTRAINT_SCHEMA_INVALID)
    ]


async def test_a_replica_has_one_attempt(clock: VirtualClock) -> None:
    response, record = await run(here(clock, PROSE, A, A, attempts=3), asking(3, early_stop=False))
    assert response.structured_output == A
    assert len(events(record, InferenceStart)) == 3
    assert [event.attempt for event in events(record, ValidationEnd)] == [1, 1, 1]


async def test_when_all_replicas_fail_their_shared_failure_is_raised(clock: VirtualClock) -> None:
    response, record = await run(here(clock, PROSE, PROSE), asking(2))
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is Code.CONSTRAINT_JSON_INVALID
    assert response.vote is not None
    assert [candidate["status"] for candidate in response.vote.candidates] == ["failed"] * 2
    assert events(record, VoteDecided)[0].error_code is Code.CONSTRAINT_JSON_INVALID


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        ({"voting": "unanimity"}, [A, A, B]),
        ({"voting": "unanimity"}, [A, A, PROSE]),
        ({"quorum": 3}, [A, A, B]),
        ({"min_confidence": 0.7}, [A, A, B]),
        ({"voting": "field_majority", "quorum": 2}, [A, B, C]),
    ],
)
async def test_too_little_agreement_is_no_consensus(
    options: dict[str, Any], answers: list[Any], clock: VirtualClock
) -> None:
    response, record = await run(here(clock, *answers), asking(3, **options))
    assert response.state is State.ERROR
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_NO_CONSENSUS
    assert response.vote is not None
    assert response.structured_output is None
    assert events(record, VoteDecided)[0].confidence is None


async def test_agreement_that_is_out_of_reach_stops_early_too(clock: VirtualClock) -> None:
    response, record = await run(here(clock, A, B, A, A), asking(4, voting="unanimity"))
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_NO_CONSENSUS
    assert record.steps["0"].outcome == RaceDecided((0, 1))


async def test_unanimity_is_all_of_them(clock: VirtualClock) -> None:
    response, _ = await run(here(clock, A, A, A), asking(3, voting="unanimity"))
    assert (response.structured_output, response.confidence) == (A, 1.0)


async def test_a_field_majority_may_be_an_answer_that_no_replica_gave(clock: VirtualClock) -> None:
    answers = [{"city": "Köln", "size": 1}, {"city": "Köln", "size": 2}, {"city": "Ulm", "size": 2}]
    response, record = await run(here(clock, *answers, delays=[1, 3, 2]), asking(3, voting="field_majority"))
    assert response.structured_output == {"city": "Köln", "size": 2}
    assert response.vote is not None
    assert response.vote.fields is not None
    assert response.confidence == 2 / 3
    assert json.loads(response.content or "") == {"city": "Köln", "size": 2}
    assert response.validation_result is not None
    assert response.validation_result.valid
    assert events(record, VoteDecided)[0].replica == 1
    patched = [A, {"city": "Ulm", "size": 1}, {"city": "Köln", "size": 2}, {"city": "Köln", "size": 3}]
    patched[0] = {"city": "Ulm", "size": 2}
    response, record = await run(here(clock, *patched), asking(4, voting="field_majority", early_stop=False))
    assert response.structured_output == {"city": "Ulm", "size": 2}


async def test_fields_that_won_but_make_no_valid_answer_say_why_not(clock: VirtualClock) -> None:
    schema = {"type": "object", "properties": {name: {"type": "boolean"} for name in "abc"}, "minProperties": 2}
    schema |= {"not": {"properties": {name: {"const": True} for name in "abc"}, "required": ["a", "b", "c"]}}
    answers = [
        {"a": True, "b": True, "c": False},
        {"a": True, "b": False, "c": True},
        {"a": False, "b": True, "c": True},
    ]
    response, record = await run(here(clock, *answers), asking(3, {"schema": schema}, voting="field_majority"))
    assert response.error is not None
    assert response.error.code is Code.CONSTRAINT_SCHEMA_INVALID
    assert response.error.details["violations"]
    assert response.vote is not None
    assert events(record, VoteDecided)[0].error_code is Code.CONSTRAINT_SCHEMA_INVALID


async def test_without_options_three_replicas_ask_the_requests_own_model(clock: VirtualClock) -> None:
    engine = scripted_engine(clock, "only", *(reply(A) for _ in range(3)), capabilities=NATIVE)
    request = chat_request("Which city?", mode=Mode.REDUNDANT, output={"schema": SCHEMA}, model="only")
    response, record = await run(make_harness(clock, engine), request)
    assert response.structured_output == A
    assert [event.replica for event in events(record, InferenceStart)] == [0, 1, 2]


async def test_one_replica_is_a_vote_too(clock: VirtualClock) -> None:
    response, _ = await run(here(clock, A), asking(1))
    assert (response.structured_output, response.confidence) == (A, 1.0)


async def test_the_deadline_ends_all_replicas(clock: VirtualClock) -> None:
    response, record = await run(here(clock, A, B, C, delays=[1, 100, 100], timeout=5), asking(3))
    assert response.state is State.CANCELLED
    assert response.error is not None
    assert response.error.code is Code.CANCELLED_TIMEOUT
    assert sum(isinstance(row.outcome, AttemptCancelled) for row in record.steps.values()) == 2
    assert "0" not in record.steps


@pytest.mark.parametrize("seed", seeds(60))
async def test_an_early_stop_never_changes_how_the_vote_ends(clock: VirtualClock, seed: int) -> None:
    dice = Random(seed)
    n = dice.randrange(1, 7)
    answers = [dice.choice([A, A, B, {**A, "size": 2}, PROSE, {"fault": "refused"}]) for _ in range(n)]
    delays = [dice.random() * 5 for _ in range(n)]
    options = {
        "voting": dice.choice(["majority", "unanimity", "field_majority"]),
        "quorum": dice.choice([None, dice.randrange(1, n + 1)]),
        "min_confidence": dice.choice([None, dice.random()]),
    }
    early, _ = await run(here(clock, *answers, delays=delays), asking(n, **options))
    patient, _ = await run(here(clock, *answers, delays=delays), asking(n, early_stop=False, **options))
    assert early.structured_output == patient.structured_output
    assert (early.error and early.error.code) == (patient.error and patient.error.code)
    assert (early.confidence or 0) <= (patient.confidence or 0)


@pytest.mark.parametrize("seed", seeds(30))
async def test_a_vote_replays_identically_for_all_orders(clock: VirtualClock, seed: int) -> None:
    dice = Random(seed)
    engines = [
        scripted_engine(
            clock,
            f"e{number}",
            {**reply(dice.choice([A, B, PROSE]), dice.random()), "usage": {"input_tokens": dice.randrange(99)}},
            capabilities=NATIVE,
            price=(dice.random(), dice.random()),
        )
        for number in range(5)
    ]
    response, _ = await run(make_harness(clock, *engines), asking(5, early_stop=dice.random() < 0.5))
    assert response.cost is not None


async def test_replicas_gather_with_tools_each_on_its_own(clock: VirtualClock) -> None:
    calls = {"tool_calls": [{"name": "calculate", "arguments": {"expression": "1+1"}}]}
    engines = [
        scripted_engine(clock, f"e{number}", calls, {"text": "Two."}, reply(answer), capabilities=NATIVE)
        for number, answer in enumerate([A, B, A])
    ]
    request = asking(3, early_stop=False).model_copy(update={"tools": ["calculate"]})
    response, record = await run(make_harness(clock, *engines, tools=BUILTIN_TOOLS), request)
    assert response.structured_output == A
    assert [call.result for call in response.tool_calls_made] == ["2"] * 3
    assert sorted(event.replica for event in events(record, InferenceStart)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


async def test_a_replicas_model_may_be_a_route_and_fails_over_within_it(clock: VirtualClock) -> None:
    engines = [
        scripted_engine(clock, "e0", {"fault": "unreachable"}, capabilities=NATIVE),
        scripted_engine(clock, "e1", reply(A), reply(A), capabilities=NATIVE),
    ]
    request = asking(2, models=["default", "e1"], early_stop=False)
    response, record = await run(make_harness(clock, *engines), request)
    assert (response.structured_output, response.confidence) == (A, 1.0)
    assert sorted((event.replica, event.provider) for event in events(record, InferenceStart)) == [
        *((0, "e0"), (0, "e1"), (1, "e1"))
    ]
