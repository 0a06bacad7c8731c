"""Refinements of a plan: what has run stays as it is, and names stay unique."""

from collections.abc import Mapping
from typing import Any

import pytest

from portico.domain.contract.request import PlanStep
from portico.domain.contract.response import StepStatus
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.refinement import PlanChange, RefinementAction, refine, runnable_steps

STEPS = [
    PlanStep(name="done", type="infer"),
    PlanStep(name="broken", type="infer", depends_on=[]),
    PlanStep(name="skipped", type="infer"),
    PlanStep(name="open", type="infer", depends_on=["done", "skipped"]),
]
STATUSES = {
    "done": StepStatus.COMPLETED,
    "broken": StepStatus.FAILED,
    "skipped": StepStatus.SKIPPED,
    "open": StepStatus.PENDING,
}


def change(action: str, target: str | None = None, name: str | None = None, **fields: Any) -> PlanChange:
    new = None if name is None else PlanStep.model_validate({"name": name, "type": "infer"} | fields)
    return PlanChange(RefinementAction(action), target, new)


def links(*changes: PlanChange, statuses: Mapping[str, StepStatus] = STATUSES) -> dict[str, list[str] | None]:
    """Return what each step of the changed plan depends on, in the order of the plan."""
    return {step.name: step.depends_on for step in refine(STEPS, statuses, changes)}


BEFORE = {"done": [], "broken": [], "skipped": ["broken"], "open": ["done", "skipped"]}


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([], BEFORE),
        ([change("ADD", None, "new", depends_on=[])], BEFORE | {"new": []}),
        ([change("ADD", None, "new")], BEFORE | {"new": ["open"]}),
        ([change("ADD", "broken", "new")], {"done": [], "broken": [], "new": ["done"], **BEFORE}),
        ([change("MODIFY", "skipped", "skipped", depends_on=["done"])], BEFORE | {"skipped": ["done"]}),
        ([change("MODIFY", "skipped", "skipped", input="other")], BEFORE),
        ([change("REMOVE", "skipped")], {"done": [], "broken": [], "open": ["done", "broken"]}),
        (
            [change("REPLACE", "skipped", "again", depends_on=["done"])],
            {"done": [], "broken": [], "again": ["done"], "open": ["done", "again"]},
        ),
        ([change("REMOVE", "open"), change("ADD", None, "open", depends_on=["done"])], BEFORE | {"open": ["done"]}),
    ],
)
def test_changes_are_made_in_turn_and_rewire_what_depended_on_their_target(
    changes: list[PlanChange], after: dict[str, list[str]]
) -> None:
    assert links(*changes) == after
    assert list(links(*changes)) == list(after) or "new" in after


@pytest.mark.parametrize(
    ("wrong", "path", "message"),
    [
        (change("ADD", None, "done"), ".new_step.name", "'done' is in use"),
        (change("ADD", "open", "open"), ".new_step.name", "'open' is in use"),
        (change("ADD"), ".new_step", "must be the step to add"),
        (change("ADD", "nowhere", "new"), ".target_step", "there is no step 'nowhere'"),
        (change("ADD", None, "new", depends_on=["broken"]), ".new_step.depends_on", "'broken' failed"),
        (change("MODIFY", "done", "done"), ".target_step", "'done' has run"),
        (change("MODIFY", "broken", "broken"), ".target_step", "'broken' has run"),
        (change("MODIFY", "open", "other"), ".new_step.name", "must stay the name"),
        (change("MODIFY", None, "open"), ".target_step", "must name the step to modify"),
        (change("REPLACE", "open", "done"), ".new_step.name", "'done' is in use"),
        (change("REPLACE", "done", "other"), ".target_step", "'done' has run"),
        (change("REMOVE", "done"), ".target_step", "'done' has run"),
        (change("REMOVE", "nowhere"), ".target_step", "there is no step"),
    ],
)
def test_a_change_that_cannot_be_made_is_a_fault_of_the_plan(wrong: PlanChange, path: str, message: str) -> None:
    with pytest.raises(OrchestrationFailure) as refused:
        refine(STEPS, STATUSES, [change("ADD", None, "fine"), wrong])
    assert refused.value.code is Code.ORCHESTRATION_PLAN_REFUSED
    found = {each["path"]: each["message"] for each in refused.value.details["violations"]}
    assert message in found[f"refinements.1{path}"]


def test_steps_run_that_have_not_run_and_depend_on_nothing_that_failed() -> None:
    assert runnable_steps(parse_plan(STEPS), {}) == (0, 1, 2, 3)
    assert runnable_steps(parse_plan(STEPS), STATUSES) == ()
    rewired = refine(STEPS, STATUSES, [change("MODIFY", "skipped", "skipped", depends_on=[])])
    assert runnable_steps(parse_plan(rewired), STATUSES) == (2, 3)
