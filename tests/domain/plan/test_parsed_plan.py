"""Parsed plans: a changed plan is parsed from the one before it and is no other than one parsed anew."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from portico.domain.contract.request import PlanStep
from portico.domain.plan.parsed_plan import ParsedPlan, StepTypes, parse_plan
from portico.domain.plan.plan import validate_plan
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.domain.plan.refinement import PlanChange, RefinementAction, refine, with_dependencies
from portico.domain.plan.steps import STEP_SPECS

ANY = EffectivePlanPolicy(50, frozenset(STEP_SPECS), False, None)
QUESTION = {"type": "infer", "input": "a question"}
CALL = {"type": "tool", "input": {"name": "roll", "arguments": {}}}
TOOL_WITHOUT_INPUT = {"type": "tool"}
VALUE = {"type": "infer", "input": "a question", "schema": {"type": "object"}}
KINDS: Sequence[Mapping[str, Any]] = (
    QUESTION,
    CALL,
    TOOL_WITHOUT_INPUT,
    VALUE,
    {"type": "infer"},
    {"type": "rerank"},
    {"type": "retrieve"},
    {"type": "validate", "rules": ["not_empty"]},
)


def step(name: str, kind: Mapping[str, Any], **more: Any) -> PlanStep:
    return PlanStep.model_validate({"name": name, **kind, **more})


def changed(steps: Sequence[PlanStep], action: str, target: str | None, new: PlanStep | None) -> tuple[PlanStep, ...]:
    return refine(steps, {}, [PlanChange(RefinementAction(action), target, new)])


def types(plan: ParsedPlan) -> dict[str, StepTypes]:
    return {each.name: types for each, types in plan.types.items()}


def test_a_step_that_stays_is_parsed_once() -> None:
    steps = with_dependencies([step("a", QUESTION), step("b", CALL)])
    before = parse_plan(steps)
    after = parse_plan(changed(steps, "ADD", None, step("c", QUESTION)), before)
    assert after.steps[:2] == before.steps
    assert [each.name for each in after.steps] == ["a", "b", "c"]


def test_a_step_that_names_what_it_depends_on_stays_itself() -> None:
    [first, second] = [step("a", QUESTION, depends_on=[]), step("b", CALL)]
    named = with_dependencies([first, second])
    assert named[0] is first
    assert named[1].depends_on == ["a"]
    assert with_dependencies(named) == named
    assert all(one is other for one, other in zip(with_dependencies(named), named, strict=True))


@pytest.mark.parametrize(("kind", "fits"), [(QUESTION, False), (VALUE, True)])
def test_the_input_of_a_step_that_stays_has_the_type_of_the_changed_step_before_it(
    kind: Mapping[str, Any], fits: bool
) -> None:
    steps = with_dependencies([step("a", VALUE if kind is QUESTION else QUESTION), step("b", TOOL_WITHOUT_INPUT)])
    before = parse_plan(steps)
    assert types(before)["b"].fits is not fits
    after = parse_plan(changed(steps, "MODIFY", "a", step("a", kind)), before)
    assert after.steps[1] is before.steps[1]
    assert types(after)["b"].fits is fits


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_that_is_changed_again_and_again_is_the_same_as_one_that_is_parsed_anew(seed: int) -> None:
    dice = Random(seed)
    steps: Sequence[PlanStep] = [step("s", dice.choice(KINDS))]
    parsed = parse_plan(steps)
    for number in range(12):
        action = dice.choice(["ADD", "ADD", "MODIFY", "REPLACE", "REMOVE"])
        target = dice.choice(steps).name if steps else None
        if target is None or action == "ADD":
            new = step(f"n{number}", dice.choice(KINDS))
            steps = changed(steps, "ADD", target, new)
        else:
            name = target if action == "MODIFY" else f"n{number}"
            steps = changed(steps, action, target, None if action == "REMOVE" else step(name, dice.choice(KINDS)))
        parsed, anew = parse_plan(steps, parsed), parse_plan(steps)
        assert (parsed.predecessors, parsed.order) == (anew.predecessors, anew.order)
        assert types(parsed) == types(anew)
        refusals = [validate_plan(each, ANY) for each in (parsed, anew)]
        assert len({None if each is None else (each.code, each.message, str(each.details)) for each in refusals}) == 1
