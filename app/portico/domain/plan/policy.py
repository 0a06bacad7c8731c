"""Policy of a plan, and its violations.

The messages of violations must not change: the model that makes a plan reads them, so they are part of fingerprints.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from pydantic import JsonValue

from portico.domain.contract.request import PlanPolicy, PlanStep, RedundancyOptions
from portico.domain.journal.header import EffectiveLimits
from portico.domain.plan.graph import non_linear_steps
from portico.domain.plan.parsed_plan import ParsedPlan, ParsedStep
from portico.domain.plan.steps import STEP_SPECS, StepOptions, StepType
from portico.domain.value import value

MAX_VIOLATIONS: Final = 64
"""Maximum number of reported violations."""
TOOL_NOT_OFFERED: Final = "must name a tool that is offered"
"""Violation of a step that names another tool."""


@value
class EffectivePlanPolicy:
    """Policy of a plan: the configured limits, narrowed by the request; None means no limit. Times are in seconds.

    `attempts`, `replicas` and `timeout` limit one step; `tools` are the names of the tools that it may call. Without
    `subplans` or `retrieval` the plan is written as if there were no steps of that type. `module_types` are those of
    modules that it may know.
    """

    max_steps: int
    allowed_step_types: frozenset[str]
    require_linear: bool
    timeout_per_step: float | None
    attempts: int | None = None
    replicas: int | None = None
    timeout: float | None = None
    tools: frozenset[str] | None = None
    subplans: bool = True
    retrieval: bool = True
    module_types: tuple[str, ...] = ()

    @property
    def step_types(self) -> Sequence[str]:
        """The types of steps that the plan may know, in the order of their table, then those of modules."""
        absent = {None if self.subplans else StepType.SUBPLAN, None if self.retrieval else StepType.RETRIEVE}
        built_in = [name for name in STEP_SPECS if name not in absent]
        return [*built_in, *self.module_types]

    @classmethod
    def from_request(
        cls,
        requested: PlanPolicy | None,
        limits: EffectiveLimits,
        tools: frozenset[str] | None = None,
        *,
        subplans: bool = True,
        module_types: Iterable[str] = (),
    ) -> "EffectivePlanPolicy":
        """Return the policy of a request, within the effective limits."""
        requested, others = requested or PlanPolicy(), tuple(module_types)
        return cls(
            max_steps=min(requested.max_steps or limits.plan_steps, limits.plan_steps),
            allowed_step_types=frozenset(
                (*STEP_SPECS, *others) if requested.allowed_step_types is None else requested.allowed_step_types
            ),
            require_linear=requested.require_linear,
            timeout_per_step=requested.timeout_per_step,
            attempts=limits.attempts,
            replicas=limits.replicas,
            timeout=limits.timeout,
            tools=tools,
            subplans=subplans,
            module_types=others,
        )


def policy_violations(
    plan: ParsedPlan, policy: EffectivePlanPolicy, unchecked: Sequence[int] | None = None
) -> list[tuple[str, str]]:
    """Return all violations of the policy, as pairs of path and message; at most `MAX_VIOLATIONS`.

    Only the steps at the indexes `unchecked`, by default all, are checked by themselves. Messages quote only names of
    steps, options and types from the plan.
    """
    if len(plan.steps) > policy.max_steps:
        return [("steps", f"must be at most {policy.max_steps}")]
    indexes = range(len(plan.steps)) if unchecked is None else unchecked
    return list(islice(_violations(plan, policy, indexes), MAX_VIOLATIONS))


def _violations(plan: ParsedPlan, policy: EffectivePlanPolicy, indexes: Iterable[int]) -> Iterator[tuple[str, str]]:
    if not plan.steps:
        yield "steps", "must be at least 1"
    yield from _name_violations(plan.plan_steps)
    types = policy.step_types
    for index in indexes:
        step = plan.steps[index]
        violation = _type_violation(step.type, types, policy.allowed_step_types)
        if violation is not None:
            yield f"steps.{index}.type", violation
        else:
            yield from ((f"steps.{index}{path}", message) for path, message in _option_violations(step, policy))
    yield from _order_violations(plan, policy)


def _name_violations(steps: Sequence[PlanStep]) -> Iterator[tuple[str, str]]:
    names, seen = {step.name for step in steps}, set[str]()
    for index, step in enumerate(steps):
        if not step.name.isprintable():
            yield f"steps.{index}.name", "must hold no character that hides or controls text"
        if step.name in seen:
            yield f"steps.{index}.name", "stands twice in the plan"
        seen.add(step.name)
        for name in dict.fromkeys(step.depends_on or ()):
            if name == step.name:
                yield f"steps.{index}.depends_on", "must not name the step itself"
            elif name not in names:
                yield f"steps.{index}.depends_on", f"there is no step {name!a}"


def _type_violation(name: str, types: Sequence[str], allowed: Collection[str]) -> str | None:
    if name not in types:
        # Plans that models made before there was a memory were refused with these words.
        is_absent = name == StepType.RETRIEVE
        return f"{name} is not in this version" if is_absent else f"must be one of {', '.join(types)}"
    return None if name in allowed else f"{name} is not allowed"


def _option_violations(step: ParsedStep, policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    spec, given = step.spec, step.shared_options
    unknown = sorted(given.keys() - spec.options)
    yield from (("", f"{key[:64]!a} is no key of a step of type {step.type}") for key in unknown)
    for key in sorted(step.invalid_options):
        field = "schema_" if key == "schema" else key
        yield f".{key}", f"must be {StepOptions.model_fields[field].description}"
    if spec.required_options and spec.required_options.isdisjoint(given) and not (spec.calls_model and step.has_schema):
        yield "", f"needs {' or '.join(sorted(spec.required_options))}"
    yield from _limit_violations("", given, policy)
    inner = step.input if spec.calls_model and isinstance(step.input, dict) else {}
    yield from _limit_violations(".input", inner, policy)
    if step.type == StepType.REDUNDANT:
        yield from _quorum_violations({**given, **inner}, ".input" if "quorum" in inner else "")
    for path, name in step.named_tools:
        if policy.tools is not None and name not in policy.tools:
            yield path, TOOL_NOT_OFFERED


def _limit_violations(
    path: str, given: Mapping[str, JsonValue], policy: EffectivePlanPolicy
) -> Iterator[tuple[str, str]]:
    for key, most in (("attempts", policy.attempts), ("n", policy.replicas), ("timeout", policy.timeout)):
        number = given.get(key)
        if most is not None and isinstance(number, int | float) and number > most:
            yield f"{path}.{key}", f"must be at most {most:g}"


def _quorum_violations(vote: Mapping[str, JsonValue], path: str) -> Iterator[tuple[str, str]]:
    replicas, quorum = vote.get("n") or RedundancyOptions().n, vote.get("quorum")
    if isinstance(replicas, int) and isinstance(quorum, int) and quorum > replicas:
        yield f"{path}.quorum", f"must be at most the {replicas} replicas"


def _order_violations(plan: ParsedPlan, policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    steps, before, order = plan.steps, plan.predecessors, plan.order
    if len(order) < len(steps):
        index, *others = _cycle(before, frozenset(range(len(steps))) - frozenset(order))
        names = " and ".join(f"{steps[each].name!a}" for each in others)
        yield f"steps.{index}.depends_on", f"waits for itself{' by way of ' if names else ''}{names}"
    elif policy.require_linear:
        for index in non_linear_steps(before, order):
            yield f"steps.{index}.depends_on", "must be the one step before it: branches are not allowed"


def _cycle(before: Sequence[Sequence[int]], waiting: frozenset[int]) -> list[int]:
    """Return steps that wait for each other: each for the next one, and the last for the first."""
    path = [min(waiting)]
    while (index := next(each for each in before[path[-1]] if each in waiting)) not in path:
        path.append(index)
    return path[path.index(index) :]
