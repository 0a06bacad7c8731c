"""Passes that a limit, a cancel, a crash or a hostile model ends: within TTL and quote, with an answer that says so."""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from portico.domain.contract.final_answer import FinalAnswer
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import LifecycleTransition
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall
from portico.orchestration.planning.plan_mode import make_plan, run_plan
from portico.ports.journal import ExecutionHistory
from tests.support.harness import Harness, make_harness, replay_offline, response_of, watch_commits
from tests.support.passes import (
    DONE,
    FIRST,
    NOT_DONE,
    PHASES,
    USUAL,
    add,
    pass_ends,
    question_of,
    reasoning,
    refinements,
    run_passes,
)
from tests.support.plans import NATIVE, events_of
from tests.support.recovery import TERMINAL_TYPES, cancel_after, is_complete_log, open_starts, open_steps
from tests.support.salvage import SYNTHESIS, RespondingEngine, as_entry
from tests.support.usage import SpentTotals, quote_of
from tests.support.virtual_time import VirtualClock

Works = Callable[[EngineCall], Mapping[str, Any]]
LATE = {"text": "late", "delay": 10_000}
QUESTIONS = [phase for phase in PHASES.values() if phase != "answer"]


def phase_of(call: EngineCall) -> str:
    return PHASES.get(str((call.schema or {}).get("title")), "step")


def growing(call: EngineCall) -> Any:
    """Never be satisfied, and add a step of a new name to every plan."""
    phase, text = phase_of(call), call.messages[-1].text
    if phase == "refine":
        return refinements(add(f"more-{len(text)}"))
    return NOT_DONE if phase == "assess" else USUAL.get(phase, f"re: {question_of(call)}")


def instead(answers: Mapping[str, Any], others: Callable[[EngineCall], Any] = growing) -> Works:
    """Return a model that has other answers in some phases, which may be made from what is asked."""

    def works(call: EngineCall) -> Mapping[str, Any]:
        answer = answers.get(phase_of(call), others)
        return as_entry(answer(call) if callable(answer) else answer)

    return works


def model_of(clock: VirtualClock, works: Works, **changes: Any) -> RespondingEngine:
    room: dict[str, Any] = {"context_window": 1_000_000, "response_reserve": 500}
    return RespondingEngine(clock, works, changes.pop("writes", SYNTHESIS), capabilities=NATIVE, **room | changes)


def check_answer(response: SystemResponse, state: State = State.COMPLETE) -> FinalAnswer:
    answer = response.final_answer
    assert answer is not None
    assert (response.state, response.content) == (state, answer.answer_text)
    assert (response.error is None) == (state is State.COMPLETE)
    assert ("This answer is degraded" in answer.answer_text) == answer.is_degraded
    return answer


async def run(
    clock: VirtualClock, here: Harness, request: SystemRequest
) -> tuple[SystemResponse, ExecutionHistory, SpentTotals]:
    began = clock.monotonic()
    response, record = await run_passes(here, request)
    assert is_complete_log(record)
    assert open_starts(record.events) == open_steps(record.events) == []
    used = SpentTotals.of(response, record, clock.monotonic() - began)
    assert used.beyond(quote_of(here, request)) == []
    ttl = [end.ttl_remaining for end in pass_ends(record)]
    assert ttl == sorted(ttl, reverse=True)
    assert len(ttl) <= (request.plan.passes if request.plan else 0)
    return response, record, used


BACK_AND_FORTH = instead(
    {"assess": DONE | {"completeness_score": 0.1}, "refine": refinements({"action": "REMOVE", "target_step": "first"})}
)
HOSTILE: dict[str, tuple[Works, str]] = {
    "never converges and always adds steps": (instead({}), "ttl_expiration"),
    "contradicts itself": (BACK_AND_FORTH, "non_convergent"),
    "says that it converged and finds everything inconsistent": (
        instead({"assess": DONE | {"consistency_status": dict.fromkeys(DONE["consistency_status"], False)}}),
        "ttl_expiration",
    ),
    "assesses in another language": (instead({"assess": "Alles ist fertig und richtig."}), "ttl_expiration"),
    "does its steps in another language": (instead({"step": "猫は灰色です。"}), "ttl_expiration"),
    "profiles in another language": (instead({"profile": {"tiefe": "groß"}}), "ttl_expiration"),
    "adds the step that there is": (instead({"refine": refinements(add("first"))}), "non_convergent"),
    "adds steps that wait for each other": (
        instead({"refine": refinements(add("a", depends_on=["b"]), add("b", depends_on=["a"]))}),
        "non_convergent",
    ),
    "answers every assessment with the prompt": (
        instead({"assess": lambda call: call.messages[-1].text}),
        "ttl_expiration",
    ),
}


@pytest.mark.parametrize(("works", "reason"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("steps", [None, [FIRST]], ids=["planned", "supplied"])
async def test_a_hostile_model_ends_within_ttl_and_quote_with_an_answer_that_says_so(
    clock: VirtualClock, works: Works, reason: str, steps: Any
) -> None:
    here = make_harness(clock, model_of(clock, works), attempts=3)
    response, _, _ = await run(clock, here, reasoning(4, steps))
    answer = check_answer(response)
    assert answer.metadata["reason"] == reason
    assert answer.ttl_exhausted is (True if reason == "ttl_expiration" else None)


@pytest.mark.parametrize("writes", [{"text": "nonsense"}, {"fault": "refused"}, {"text": '{"answer_text": " "}'}])
async def test_a_model_that_cannot_write_the_answer_either_is_not_needed_for_it(
    clock: VirtualClock, writes: dict[str, Any]
) -> None:
    here = make_harness(clock, model_of(clock, instead({"assess": DONE}), writes=writes), attempts=2)
    response, _, _ = await run(clock, here, reasoning(4))
    answer = check_answer(response)
    assert answer.metadata["reason"] == "synthesis_failed"
    assert "re: first question" in answer.answer_text


@pytest.mark.parametrize("phase", [*QUESTIONS, "step"])
async def test_a_model_that_hangs_in_one_phase_is_cancelled_at_the_deadline_with_an_answer_of_the_service(
    clock: VirtualClock, phase: str
) -> None:
    model = model_of(clock, instead({phase: LATE}))
    here = make_harness(clock, model, timeout=100)
    response, _, used = await run(clock, here, reasoning(4))
    answer = check_answer(response, State.CANCELLED)
    assert used.seconds == pytest.approx(100)
    assert answer.notes == "No model wrote this answer: none was asked."
    assert model.questions == []


@pytest.mark.parametrize("phase", [*QUESTIONS, "step"])
async def test_with_salvage_the_time_that_is_withheld_completes_it(clock: VirtualClock, phase: str) -> None:
    here = make_harness(clock, model_of(clock, instead({phase: LATE})), timeout=100)
    response, record, used = await run(clock, here, reasoning(4, on_limit="salvage"))
    answer = check_answer(response)
    assert answer.answer_text.startswith("It is grey.")
    assert answer.metadata["limit"] == Code.CANCELLED_TIMEOUT
    assert answer.metadata["reason"] in {"incomplete_state", "non_convergent"}
    assert used.seconds == pytest.approx(90)
    assert events_of(record, LifecycleTransition)[-1].reason == "limit_reached"


async def test_a_hanging_synthesis_ends_in_time_with_salvage_too(clock: VirtualClock) -> None:
    here = make_harness(clock, model_of(clock, instead({"assess": DONE}), writes=LATE), timeout=100)
    response, _, used = await run(clock, here, reasoning(4, on_limit="salvage"))
    answer = check_answer(response)
    assert (answer.metadata["reason"], answer.metadata["limit"]) == ("limit_reached", Code.CANCELLED_TIMEOUT)
    assert used.seconds == pytest.approx(100)


@pytest.mark.parametrize("on_limit", ["fail", "salvage"])
async def test_a_spent_budget_leaves_enough_for_the_answer(clock: VirtualClock, on_limit: str) -> None:
    model = model_of(clock, instead({}))
    here = make_harness(clock, model, tokens=6_000)
    response, _, used = await run(clock, here, reasoning(40, on_limit=on_limit))
    answer = check_answer(response, State.COMPLETE if on_limit == "salvage" else State.ERROR)
    assert answer.answer_text.startswith("It is grey.")
    assert answer.metadata.get("limit") == (Code.ORCHESTRATION_BUDGET_EXCEEDED if on_limit == "salvage" else None)
    assert model.questions
    assert used.tokens <= 6_000


async def test_a_cancelled_execution_says_how_far_it_got(clock: VirtualClock) -> None:
    here = make_harness(clock, model_of(clock, instead({"step": lambda call: {"text": "slow", "delay": 30}})))
    execution = here.execution(reasoning(4))
    async with anyio.create_task_group() as group:
        group.start_soon(cancel_after, clock, 50, execution)
        await here.drive(execution, run_plan, make_plan)
    answer = check_answer(response_of(execution), State.CANCELLED)
    assert answer.metadata["execution_results"] == {"first": "slow"}
    assert replay_offline(here.record(execution), run_plan, make_plan) > 0


@pytest.mark.parametrize(
    ("works", "options", "bounds"),
    [
        (instead({"assess": lambda call: DONE if "more-" in call.messages[-1].text else NOT_DONE}), {}, {}),
        (instead({}), {}, {}),
        (instead({}), {"on_limit": "salvage"}, {"tokens": 6_000}),
        (instead({"assess": LATE}), {"on_limit": "salvage"}, {"timeout": 100}),
        (instead({"refine": {"fault": "refused"}}), {}, {}),
    ],
    ids=["converges", "out of passes", "salvaged tokens", "salvaged time", "dies"],
)
async def test_it_goes_on_after_a_crash_at_any_commit_of_any_phase(
    clock: VirtualClock, works: Works, options: dict[str, Any], bounds: dict[str, Any]
) -> None:
    def harness() -> Harness:
        return make_harness(clock, model_of(clock, works), **bounds)

    here = watch_commits(harness())
    response, _, _ = await run(clock, here, reasoning(3, **options))
    expected = check_answer(response, response.state).metadata
    for commit, _ in here.journal.commits:
        if commit.events and commit.events[-1].event.type in TERMINAL_TYPES:
            continue
        again, after = await harness().recover(commit, run_plan, make_plan)
        metadata = check_answer(again, response.state).metadata
        assert {key: metadata.get(key) for key in ("reason", "limit")} == {
            key: expected.get(key) for key in ("reason", "limit")
        }
        assert tuple(after.events[: len(commit.events)]) == tuple(commit.events)
        assert is_complete_log(after)
        assert open_starts(after.events) == open_steps(after.events) == []
        assert replay_offline(after, run_plan, make_plan) == len(after.steps)
