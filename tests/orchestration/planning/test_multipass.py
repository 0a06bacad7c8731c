"""Multi-pass reasoning: phases, passes, verdicts, refinements, and the ends they lead to."""

import json
from typing import Any

import pytest

from portico.domain.contract.response import SystemResponse, TokenUsage
from portico.domain.failures import Code
from portico.domain.journal.events import LifecycleTransition, PlanCreated, StepEnd, StepStart
from portico.domain.lifecycle import State
from portico.domain.model_call import EngineCall, Reply
from portico.orchestration.planning.plan_mode import make_plan, run_plan
from portico.ports.journal import ExecutionHistory
from portico.ports.model import Progress
from tests.support.harness import make_harness, replay_offline
from tests.support.passes import (
    ANSWER,
    DONE,
    FIRST,
    NOT_DONE,
    PROFILE,
    SOUND,
    PhasesEngine,
    add,
    pass_ends,
    reasoning,
    refinements,
    run_passes,
)
from tests.support.plans import SCHEMA, events_of
from tests.support.recovery import run_and_cancel
from tests.support.virtual_time import VirtualClock

FAULT = {"fault": "server_error"}
GRAVE = {
    "issues": [{"type": "specificity", "severity": "CRITICAL", "description": "vague", "location": "first"}],
    "overall_severity": "LOW",
}
BETTER = refinements({"action": "MODIFY", "target_step": "first", "new_step": FIRST | {"input": "better question"}})


async def run(
    clock: VirtualClock, request: Any = None, **scripts: Any
) -> tuple[SystemResponse, ExecutionHistory, PhasesEngine]:
    engine = PhasesEngine(clock, **scripts)
    response, record = await run_passes(make_harness(clock, engine, attempts=1), request or reasoning())
    return response, record, engine


def metadata_of(response: SystemResponse) -> dict[str, Any]:
    assert response.final_answer is not None
    return response.final_answer.metadata


def outputs_of(response: SystemResponse) -> dict[str, Any]:
    assert response.plan is not None
    return {step.name: step.output for step in response.plan.steps}


async def test_a_plan_converges_in_its_second_pass(clock: VirtualClock) -> None:
    response, record, engine = await run(clock, assess=[NOT_DONE, DONE], refine=refinements(add("second")))
    first, second = ["step", "assess", "refine", "profile"], ["step", "assess", "answer"]
    assert engine.asked == ["profile", "plan", "check", *first, *second]
    assert (response.state, response.content) == (State.COMPLETE, ANSWER["answer_text"])
    assert response.structured_output == "re: question of second"
    assert metadata_of(response) == {"degraded": False}
    assert [(end.pass_number, end.converged, end.ttl_remaining) for end in pass_ends(record)] == [
        (1, False, 3),
        (2, True, 3),
    ]
    assert pass_ends(record)[0].reasons == ("incomplete", "not_converged", "missing_part")
    steps = [
        (item.correlation.step_name, item.event.pass_number)
        for item in record.events
        if isinstance(item.event, StepStart | StepEnd)
    ]
    assert steps == [("first", 1), ("first", 1), ("second", 2), ("second", 2)]
    assert [len(plan.steps) for plan in events_of(record, PlanCreated)] == [1, 2]


async def test_the_lifecycle_goes_through_validate_for_every_pass(clock: VirtualClock) -> None:
    _, record, _ = await run(clock, assess=[NOT_DONE, DONE], refine=refinements(add("second")))
    states = [(event.to_state, event.attempt) for event in events_of(record, LifecycleTransition)]
    assert states == [
        ("INIT", 1),
        ("PLAN", 1),
        ("PREPARE", 1),
        ("EXECUTE", 1),
        ("VALIDATE", 1),
        ("EXECUTE", 2),
        ("VALIDATE", 2),
        ("COMPLETE", 2),
    ]


async def test_a_model_that_is_never_satisfied_and_always_adds_steps_runs_out_of_passes(clock: VirtualClock) -> None:
    more = [refinements(add(f"more-{number}")) for number in range(9)]
    response, record, engine = await run(clock, reasoning(3), assess=NOT_DONE, refine=more)
    assert [end.ttl_remaining for end in pass_ends(record)] == [2, 1, 0]
    assert (response.state, response.error) == (State.COMPLETE, None)
    assert metadata_of(response)["reason"] == "ttl_expiration"
    assert response.final_answer is not None
    assert response.final_answer.ttl_exhausted is True
    assert engine.asked.count("refine") == engine.asked.count("profile") - 1 == 2


async def test_the_profile_bounds_the_passes_below_those_of_the_request(clock: VirtualClock) -> None:
    shallow = PROFILE | {"reasoning_depth": 1, "information_sufficiency": 1.0}
    response, record, _ = await run(clock, reasoning(20), profile=shallow, assess=NOT_DONE)
    assert [end.ttl_remaining for end in pass_ends(record)] == [0]
    assert metadata_of(response)["reason"] == "ttl_expiration"


async def test_a_refinement_that_leaves_nothing_to_run_ends_the_passes(clock: VirtualClock) -> None:
    response, record, engine = await run(clock, assess=NOT_DONE)
    assert len(pass_ends(record)) == 1
    assert (response.state, metadata_of(response)["reason"]) == (State.COMPLETE, "non_convergent")
    assert engine.asked[-2:] == ["refine", "answer"]


@pytest.mark.parametrize(
    ("assessment", "reasons"),
    [
        (DONE | {"completeness_score": 0.94}, ("incomplete",)),
        (DONE | {"coherence_score": 0.89}, ("incoherent",)),
        (DONE | {"consistency_status": DONE["consistency_status"] | {"memory": False}}, ("memory_inconsistent",)),
        (DONE | {"converged": False}, ("not_converged",)),
        (NOT_DONE | {"reason_codes": ["with spaces, too long", "fine"]}, ("incomplete", "not_converged", "fine")),
        ("Alles ist fertig.", ("assessment_unreadable",)),
        ({"converged": "yes"}, ("assessment_unreadable",)),
    ],
)
async def test_the_verdict_is_ours(clock: VirtualClock, assessment: Any, reasons: tuple[str, ...]) -> None:
    response, record, _ = await run(clock, assess=assessment)
    [end] = pass_ends(record)
    assert (end.converged, end.reasons) == (False, reasons)
    assert response.state is State.COMPLETE
    assert metadata_of(response)["degraded"] is True


async def test_exactly_the_thresholds_converge(clock: VirtualClock) -> None:
    _, record, _ = await run(clock, assess=DONE | {"completeness_score": 0.95, "coherence_score": 0.9})
    assert [end.converged for end in pass_ends(record)] == [True]


async def test_a_plan_whose_steps_all_failed_has_not_converged(clock: VirtualClock) -> None:
    response, record, _ = await run(clock, step=FAULT)
    assert pass_ends(record)[0].reasons == ("no_step_completed",)
    assert (response.state, response.structured_output) == (State.COMPLETE, None)


async def test_what_has_run_is_not_run_again_and_what_was_skipped_may_be_rewired(clock: VirtualClock) -> None:
    steps = [{"name": "a", "type": "infer", "input": "a"}, {"name": "b", "type": "infer", "input": "b"}]
    rewired = refinements(
        {"action": "MODIFY", "target_step": "b", "new_step": {"name": "b", "type": "infer", "depends_on": ["c"]}},
        add("c"),
    )
    response, record, engine = await run(
        clock, reasoning(4, steps), assess=[NOT_DONE, DONE], refine=rewired, step=[FAULT, FAULT, "for c", "for b"]
    )
    ran = [item.correlation.step_name for item in record.events if isinstance(item.event, StepStart)]
    assert ran == ["a", "c", "b"]
    assert outputs_of(response) == {"a": None, "b": "for b", "c": "for c"}
    assert engine.calls[-3].messages[-1].text == "for c"
    assert response.structured_output == "for c"


async def test_a_refinement_that_touches_what_has_run_is_refused_and_changes_nothing(clock: VirtualClock) -> None:
    wrong = refinements({"action": "REMOVE", "target_step": "first"}, add("second"))
    response, record, _ = await run(clock, assess=NOT_DONE, refine=wrong)
    assert outputs_of(response) == {"first": "re: first question"}
    assert (response.state, len(pass_ends(record))) == (State.COMPLETE, 1)


async def test_added_steps_count_against_the_policy(clock: VirtualClock) -> None:
    request = reasoning(4, [FIRST], plan={"policy": {"max_steps": 2}})
    two = refinements(add("second"), add("third"))
    response, _, _ = await run(clock, request, assess=NOT_DONE, refine=two)
    assert list(outputs_of(response)) == ["first"]
    response, _, _ = await run(clock, request, assess=[NOT_DONE, DONE], refine=refinements(add("second")))
    assert list(outputs_of(response)) == ["first", "second"]


async def test_a_grave_check_has_the_plan_refined_once_before_the_first_pass(clock: VirtualClock) -> None:
    response, record, engine = await run(clock, check=GRAVE, refine=BETTER)
    assert engine.asked == ["profile", "plan", "check", "refine", "step", "assess", "answer"]
    assert outputs_of(response) == {"first": "re: better question"}
    assert len(events_of(record, PlanCreated)) == 1


async def test_a_supplied_plan_is_checked_and_not_refined_before_its_first_pass(clock: VirtualClock) -> None:
    response, _, engine = await run(clock, reasoning(4, [FIRST]), check=GRAVE, refine=BETTER)
    assert engine.asked == ["profile", "check", "step", "assess", "answer"]
    assert outputs_of(response) == {"first": "re: first question"}


async def test_ready_steps_of_a_pass_run_at_once(clock: VirtualClock) -> None:
    slow = {"text": "slow", "delay": 5.0}
    began = clock.monotonic()
    more = refinements(add("x"), add("y"), add("z", depends_on=["x"]))
    await run(clock, assess=[NOT_DONE, DONE], refine=more, step=slow)
    assert clock.monotonic() - began == pytest.approx(15)


@pytest.mark.parametrize(
    ("phase", "state", "reason"),
    [
        ("profile", State.COMPLETE, None),
        ("plan", State.ERROR, "incomplete_state"),
        ("check", State.COMPLETE, "incomplete_state"),
        ("step", State.COMPLETE, "non_convergent"),
        ("assess", State.ERROR, "incomplete_state"),
        ("refine", State.ERROR, "non_convergent"),
        ("answer", State.COMPLETE, "synthesis_failed"),
    ],
)
@pytest.mark.parametrize("fault", ["timed_out", "server_error"])
async def test_a_provider_that_fails_in_one_phase_leaves_an_answer(
    clock: VirtualClock, phase: str, state: State, reason: str | None, fault: str
) -> None:
    scripts: dict[str, Any] = {"assess": NOT_DONE} if phase == "refine" else {}
    response, _, _ = await run(clock, **scripts | {phase: {"fault": fault}})
    assert response.state is state
    assert metadata_of(response).get("reason") == reason
    assert response.final_answer is not None
    assert response.content == response.final_answer.answer_text
    assert (response.error is None) == (state is State.COMPLETE)


async def test_a_provider_that_dies_while_the_profile_is_updated_does_not_end_the_passes(clock: VirtualClock) -> None:
    response, record, _ = await run(
        clock, profile=[PROFILE, FAULT], assess=[NOT_DONE, DONE], refine=refinements(add("second"))
    )
    assert [end.converged for end in pass_ends(record)] == [False, True]
    assert metadata_of(response) == {"degraded": False}


async def test_a_plan_that_may_not_run_is_refused_with_an_answer_beside(clock: VirtualClock) -> None:
    response, _, engine = await run(clock, reasoning(4, [FIRST, FIRST]))
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_PLAN_REFUSED
    assert engine.asked == ["answer"]
    assert metadata_of(response)["reason"] == "incomplete_state"


async def test_the_last_completed_output_has_to_keep_the_required_format(clock: VirtualClock) -> None:
    output = {"output": {"schema": SCHEMA}}
    steps = [FIRST | {"schema": SCHEMA}]
    response, _, _ = await run(clock, reasoning(4, steps, **output), step='{"size": "large"}')
    assert (response.structured_output, response.content) == ({"size": "large"}, ANSWER["answer_text"])
    response, _, _ = await run(clock, reasoning(4, [FIRST], **output), step="prose")
    assert response.error is not None
    assert response.error.code is Code.CONSTRAINT_JSON_INVALID
    assert response.final_answer is not None
    assert response.validation_result is not None


class Parrot(PhasesEngine):
    """An engine that answers every prompt with itself."""

    async def attempt(self, call: EngineCall, progress: Progress, *, stream: bool) -> Reply:
        return Reply(call.messages[-1].text, (), "stop", "", TokenUsage(), self.profile.model)


@pytest.mark.parametrize(("steps", "state"), [(None, State.ERROR), ([FIRST], State.COMPLETE)])
async def test_a_model_that_answers_with_the_prompt_gets_nowhere_and_the_answer_says_so(
    clock: VirtualClock, steps: list[dict[str, Any]] | None, state: State
) -> None:
    response, _ = await run_passes(make_harness(clock, Parrot(clock), attempts=1), reasoning(4, steps))
    assert (response.state, metadata_of(response)["reason"]) == (state, "incomplete_state")


async def test_a_token_limit_is_no_matter_of_passes(clock: VirtualClock) -> None:
    more = [refinements(add(f"more-{number}")) for number in range(9)]
    engine = PhasesEngine(clock, assess=NOT_DONE, refine=more)
    here = make_harness(clock, engine, attempts=1, tokens=4_000)
    response, record = await run_passes(here, reasoning(9))
    assert response.error is not None
    assert response.error.code is Code.ORCHESTRATION_BUDGET_EXCEEDED
    assert response.final_answer is not None
    assert all(end.ttl_remaining > 0 for end in pass_ends(record))


async def test_a_sound_check_is_part_of_the_answers_state(clock: VirtualClock) -> None:
    response, _, _ = await run(clock, assess=NOT_DONE)
    metadata = metadata_of(response)
    assert metadata["semantic_validation"] == SOUND
    assert metadata["task_profile"]["reasoning_depth"] == 3
    assert metadata["execution_results"] == {"first": "re: first question"}
    assert [each["pass"] for each in metadata["execution_passes"]] == [1]
    assert metadata["missing_fields"] == []


@pytest.mark.parametrize("seconds", [0.5, 1.5, 3.5, 4.5])
async def test_a_cancel_in_any_phase_leaves_an_answer_that_no_model_is_asked_for(
    clock: VirtualClock, seconds: float
) -> None:
    slow = {"delay": 1.0, "text": ""}
    scripts = {
        "profile": slow | {"text": json.dumps(PROFILE)},
        "plan": slow | {"text": json.dumps({"steps": [FIRST]})},
        "step": slow | {"text": "found"},
        "assess": slow | {"text": json.dumps(NOT_DONE)},
        "refine": slow | {"text": json.dumps(refinements())},
    }
    engine = PhasesEngine(clock, **scripts)
    here = make_harness(clock, engine)
    response, record = await run_and_cancel(clock, here, reasoning(), seconds, run_plan, make_plan)
    assert replay_offline(record, run_plan, make_plan) == len(record.steps)
    assert response.state is State.CANCELLED
    assert "answer" not in engine.asked
    assert response.final_answer is not None
    assert metadata_of(response)["degraded"] is True
    assert metadata_of(response).get("execution_results") == (None if seconds < 3 else {"first": "found"})


async def test_a_limit_is_salvaged_with_one_answer(clock: VirtualClock) -> None:
    more = [refinements(add(f"more-{number}")) for number in range(9)]
    engine = PhasesEngine(clock, assess=NOT_DONE, refine=more)
    here = make_harness(clock, engine, attempts=1, tokens=9_000)
    response, record = await run_passes(here, reasoning(9, on_limit="salvage"))
    assert (response.state, response.error) == (State.COMPLETE, None)
    assert engine.asked.count("answer") == 1
    assert metadata_of(response)["limit"] == Code.ORCHESTRATION_BUDGET_EXCEEDED
    assert pass_ends(record)
