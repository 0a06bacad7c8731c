"""Checks of a plan that changes: what was accepted is not checked again as long as the rules stay the same."""

from dataclasses import replace
from typing import Any

import pytest

from portico.domain.contract.request import PlanStep
from portico.domain.failures import OrchestrationFailure
from portico.domain.plan.parsed_plan import ParsedPlan, parse_plan
from portico.domain.plan.policy import TOOL_NOT_OFFERED, EffectivePlanPolicy
from portico.domain.plan.steps import STEP_SPECS
from portico.orchestration.planning.plan_check import AcceptedSteps, PlanRules

POLICY = EffectivePlanPolicy(3, frozenset(STEP_SPECS), False, None, tools=frozenset({"look", "roll"}))
RULES = PlanRules(POLICY, ())
NOT_A_SCHEMA = {"type": "no type"}


def plan(*steps: dict[str, Any], earlier: ParsedPlan | None = None) -> ParsedPlan:
    known = {} if earlier is None else {each.name: each.plan_step for each in earlier.steps}
    made = [known.get(each["name"]) or PlanStep.model_validate({"depends_on": [], **each}) for each in steps]
    return parse_plan(made, earlier)


def call(name: str, tool: str = "look") -> dict[str, Any]:
    return {"name": name, "type": "tool", "input": {"name": tool, "arguments": {}}}


def question(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "infer", "input": "Why?", **more}


def violations(rules: PlanRules, checked: ParsedPlan) -> list[tuple[str, str]]:
    with pytest.raises(OrchestrationFailure) as refused:
        rules.check(checked)
    return [(each["path"], each["message"]) for each in refused.value.details["violations"]]


def test_only_the_steps_that_a_policy_has_not_accepted_are_missing() -> None:
    accepted, first = AcceptedSteps(), plan(call("a"), question("b"))
    assert accepted.missing(first, POLICY) == [0, 1]
    accepted.add(first)
    second = plan(call("a"), question("c"), question("b"), earlier=first)
    assert accepted.missing(second, POLICY) == [1]
    assert accepted.missing(second, replace(POLICY, max_steps=9, require_linear=True)) == [1]


def test_another_policy_has_accepted_no_step() -> None:
    accepted, checked = AcceptedSteps(), plan(call("a"), question("b"))
    accepted.missing(checked, POLICY)
    accepted.add(checked)
    assert accepted.missing(checked, replace(POLICY, tools=frozenset({"roll"}))) == [0, 1]
    assert accepted.missing(checked, POLICY) == [0, 1]


def test_a_step_that_was_not_accepted_is_refused_wherever_it_stands_in_a_changed_plan() -> None:
    first = plan(call("a"))
    RULES.check(first)
    second = plan(question("b"), call("a"), call("c", "send"), earlier=first)
    assert violations(RULES, second) == [("steps.2.input.name", TOOL_NOT_OFFERED)]
    assert violations(RULES, plan(question("b", schema=NOT_A_SCHEMA), call("a"), earlier=first))[0][0] == (
        "steps.0.schema"
    )


def test_a_plan_is_bounded_as_a_whole_although_its_steps_were_accepted() -> None:
    first = plan(call("a"), question("b"))
    RULES.check(first)
    assert violations(RULES.within(1), first) == [("steps", "must be at most 1")]
    linear = replace(RULES, policy=replace(POLICY, require_linear=True))
    assert [path for path, _ in violations(linear, first)] == ["steps.1.depends_on"]


def test_a_refused_plan_has_no_accepted_step() -> None:
    rules = replace(RULES, checked_steps=AcceptedSteps())
    refused = plan(call("a", "send"))
    assert violations(rules, refused) == violations(rules, refused) == [("steps.0.input.name", TOOL_NOT_OFFERED)]
