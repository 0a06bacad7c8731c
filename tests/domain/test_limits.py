"""Table of limits, and the limits of an execution that are made from it."""

from dataclasses import fields
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from portico.domain.contract.request import Limits, SystemRequest
from portico.domain.journal.header import EffectiveLimits
from portico.domain.limits import CAPS, ConfiguredLimits
from portico.settings import LimitSettings

DEFAULTS = ConfiguredLimits()
LOWER = {
    "tool_rounds": 1,
    "calls_per_reply": 2,
    "attempts": 1,
    "tokens": 9,
    "cost": 0.5,
    "flow_steps": 3,
    "tool_calls": 4,
}


def request_with(**parts: Any) -> SystemRequest:
    return SystemRequest.model_validate({"messages": [{"role": "user", "content": "a"}]} | parts)


def model_in(annotation: Any) -> type[BaseModel]:
    """Return the model in the annotation of a field, which may be optional."""
    [found] = [
        each for each in (annotation, *get_args(annotation)) if isinstance(each, type) and issubclass(each, BaseModel)
    ]
    return found


def test_a_refusal_lists_the_fields_above_a_cap_in_this_order() -> None:
    assert [(cap.field, limit) for _, limit, cap in CAPS] == [
        ("messages", "messages"),
        ("tools", "tools"),
        ("client_tools", "tools"),
        ("hints.timeout", "timeout"),
        ("limits.tool_rounds", "tool_rounds"),
        ("limits.calls_per_reply", "calls_per_reply"),
        ("limits.tool_calls", "tool_calls"),
        ("limits.attempts", "attempts"),
        ("limits.flow_steps", "flow_steps"),
        ("plan.steps", "plan_steps"),
        ("plan.passes", "passes"),
        ("plan.policy.max_steps", "plan_steps"),
        ("plan.policy.timeout_per_step", "timeout"),
    ]


@pytest.mark.parametrize("field", [cap.field for _, _, cap in CAPS])
def test_every_cap_is_on_a_field_that_requests_have(field: str) -> None:
    *parts, last = field.split(".")
    model: type[BaseModel] = SystemRequest
    for part in parts:
        model = model_in(model.model_fields[part].annotation)
    assert last in model.model_fields


def test_an_execution_has_the_configured_limits_if_its_request_lowers_none() -> None:
    limits = EffectiveLimits.configured(DEFAULTS, max_retries=7)
    own = {"max_retries", "tokens", "cost"}
    assert (limits.max_retries, limits.tokens, limits.cost) == (7, None, None)
    assert {field.name for field in fields(limits)} - own <= ConfiguredLimits.model_fields.keys()
    assert all(
        getattr(limits, each.name) == getattr(DEFAULTS, each.name) for each in fields(limits) if each.name not in own
    )
    assert limits.lowered_by(request_with(limits={}, hints={"seed": 1})) is limits


def test_every_limit_of_a_request_is_one_of_its_execution() -> None:
    before = EffectiveLimits.configured(DEFAULTS, max_retries=7)
    lowered = before.lowered_by(request_with(limits=LOWER, hints={"timeout": 2.5}))
    assert LOWER.keys() == Limits.model_fields.keys()
    changed = {
        each.name: value
        for each in fields(before)
        if (value := getattr(lowered, each.name)) != getattr(before, each.name)
    }
    assert changed == LOWER | {"timeout": 2.5}


def test_an_agent_keeps_to_the_lower_of_its_own_limits_and_those_of_its_caller() -> None:
    caller = EffectiveLimits.configured(ConfiguredLimits(tool_rounds=5, attempts=2), max_retries=0)
    lowered = caller.lowered_to(Limits(tool_rounds=3, attempts=4, tokens=1, tool_calls=1))
    assert (lowered.tool_rounds, lowered.attempts, lowered.calls_per_reply) == (3, 2, caller.calls_per_reply)
    assert (lowered.tokens, lowered.tool_calls) == (None, caller.tool_calls)


@pytest.mark.parametrize(("name", "value"), [("tool_rounds", -1), ("tool_rounds", "20"), ("tools", 129), ("rounds", 1)])
def test_settings_refuse_a_limit_outside_its_bounds_and_one_that_is_not_known(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        LimitSettings.model_validate({name: value})
