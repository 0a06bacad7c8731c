"""The table `[planner]` of the configuration: the source of plans."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, field_validator

from portico.domain.contract.request import PlanStep
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.plan import validate_plan
from portico.domain.plan.policy import EffectivePlanPolicy
from portico.settings.values import Table


def _is_json(value: Any) -> bool:
    """Return True for a value that JSON can express; TOML has numbers that it cannot."""
    try:
        return bool(orjson.loads(orjson.dumps(value)) == value)
    except orjson.JSONEncodeError:
        return False


class PlannerSettings(Table):
    """Source of a plan if the request has none: a model, always the same `steps`, or a planner of a module."""

    kind: Literal["model", "static", "module"] = Field(
        "model",
        description="`model` asks a model for a plan, `static` always takes `steps`, `module` calls the planner `name`",
    )
    name: str | None = Field(None, description="Planner of a module of `plan.modules`")
    steps: Annotated[tuple[PlanStep, ...], Field(strict=False)] = Field((), description="Steps of the static plan")

    @field_validator("steps")
    @classmethod
    def _require_json(cls, steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
        for index, step in enumerate(steps):
            if not _is_json(step.model_dump()):
                raise ValueError(f"must be JSON; steps.{index} is not")
        return steps


def planner_errors(planner: PlannerSettings, policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    """Yield the keys at fault, each with a message; `policy` is that of the static plan."""
    if (planner.kind == "module") != (planner.name is not None):
        yield "planner.name", 'must name a planner if planner.kind is "module", and only then'
    if planner.kind == "static":
        failure = validate_plan(parse_plan(planner.steps), policy)
        violations = () if failure is None else failure.details["violations"]
        yield from ((f"planner.{each['path']}", each["message"]) for each in violations)
    elif planner.steps:
        yield "planner.steps", f'has no meaning while planner.kind is "{planner.kind}"'
