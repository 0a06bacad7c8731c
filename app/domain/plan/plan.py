"""Plans: the order that their steps come in, what each step is given, and all that can speak against a plan.

Theory of operation

1. A step comes after those it names in `depends_on`; without that key after the one before it; with none named after
   none, so it runs at once.
2. What it is given is its `input`. Where that is missing, or null, it is the output of the one step that it comes
   after, or an object with the output of each by name; a step that comes after none is given the last user message.
3. `faults` is what a policy has against a plan, `misfits` where the types of its steps can never meet. A plan with
   neither can run; that an output does not fit after all is found when it is there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import orjson
from pydantic import JsonValue, ValidationError

from app.domain.contract.request import OutputContract, PlanPolicy, PlanStep, RedundancyOptions
from app.domain.failures import Code, OrchestrationFailure
from app.domain.journal.header import EffectiveLimits
from app.domain.plan.steps import (
    STEP_SPECS,
    InferInput,
    InputType,
    StepInput,
    StepOptions,
    StepSpec,
    StepType,
    has_schema,
    step_options,
)

__all__ = [
    "EffectivePlanPolicy",
    "StepType",
    "infer_input_types",
    "named_tools",
    "non_linear_steps",
    "output_contract_of",
    "parse_options",
    "plan_refused",
    "policy_violations",
    "predecessors",
    "resolve_input",
    "step_mismatch",
    "topological_order",
    "type_mismatches",
    "validate_plan",
]

MAX_VIOLATIONS: Final = 64
"""Of one plan that are told; whoever made so many reads no more."""


@dataclass(frozen=True, slots=True)
class EffectivePlanPolicy:
    """What a plan may look like; None stands for no bound. `timeout_per_step` is in seconds.

    `attempts`, `replicas` and `timeout` (seconds) are the most that one step may have, `tools` the names of those that
    may be called.
    """

    max_steps: int
    allowed_step_types: frozenset[str]
    require_linear: bool
    timeout_per_step: float | None
    attempts: int | None = None
    replicas: int | None = None
    timeout: float | None = None
    tools: frozenset[str] | None = None

    @classmethod
    def from_request(
        cls, asked: PlanPolicy | None, bounds: EffectiveLimits, tools: frozenset[str] | None = None
    ) -> "EffectivePlanPolicy":
        """What a request asks of a plan, within the bounds in force."""
        asked = asked or PlanPolicy()
        return cls(
            max_steps=min(asked.max_steps or bounds.plan_steps, bounds.plan_steps),
            allowed_step_types=frozenset(STEP_SPECS if asked.allowed_step_types is None else asked.allowed_step_types),
            require_linear=asked.require_linear,
            timeout_per_step=asked.timeout_per_step,
            attempts=bounds.attempts,
            replicas=bounds.replicas,
            timeout=bounds.timeout,
            tools=tools,
        )


def parse_options(step: PlanStep) -> StepOptions:
    """What the step says beside its name, type, input and `depends_on`; of a plan without faults."""
    return StepOptions.model_validate(step_options(step))


def output_contract_of(step: PlanStep, work: StepInput = None) -> OutputContract | None:
    """What the answer of a step without faults has to keep; None for nothing.

    What it works on goes before its keys: its own input, or `work` where that is known.
    """
    own = parse_options(step)
    inner = step.input.get("schema") if isinstance(step.input, dict) and STEP_SPECS[step.type].calls_model else None
    known = work.schema_ if isinstance(work, InferInput) else inner
    schema = own.schema_ if known is None else known
    if schema is None and not own.rules:
        return None
    return OutputContract.model_validate({"schema": schema, "rules": own.rules})


def named_tools(step: PlanStep) -> Iterator[tuple[str, str]]:
    """The names of tools in a step whose type runs here, each with its path in the step."""
    inner = step.input if isinstance(step.input, dict) else {}
    named = [(".tools", step_options(step).get("tools"))]
    named += [(".input.tools", inner.get("tools"))] if STEP_SPECS[step.type].calls_model else []
    named += [(".input.name", [inner.get("name")])] if step.type == StepType.TOOL else []
    for path, names in named:
        if isinstance(names, list):
            yield from ((path, name) for name in names if isinstance(name, str))


def predecessors(steps: Sequence[PlanStep]) -> tuple[tuple[int, ...], ...]:
    """For each step the indexes of those it comes after, as it names them; names of no step are passed over."""
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        places.setdefault(step.name, index)
    return tuple(
        ((index - 1,) if index else ())
        if step.depends_on is None
        else tuple(places[name] for name in dict.fromkeys(step.depends_on) if name in places)
        for index, step in enumerate(steps)
    )


def topological_order(steps: Sequence[PlanStep]) -> tuple[int, ...]:
    """Indexes such that each comes after its predecessors, the smallest first.

    Those of a circle, and those that come after them, are left out.
    """
    before = predecessors(steps)
    following: list[list[int]] = [[] for _ in steps]
    for index, earlier in enumerate(before):
        for each in earlier:
            following[each].append(index)
    waits_for = [len(earlier) for earlier in before]
    ready = [index for index, count in enumerate(waits_for) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(index := heappop(ready))
        for each in following[index]:
            waits_for[each] -= 1
            if not waits_for[each]:
                heappush(ready, each)
    return tuple(order)


def non_linear_steps(steps: Sequence[PlanStep]) -> list[int]:
    """Indexes of the steps, of a plan without circles, that do not come after the step before them and no other."""
    before, order = predecessors(steps), topological_order(steps)
    return [index for place, index in enumerate(order) if before[index] != order[max(place - 1, 0) : place]]


def resolve_input(step: PlanStep, outputs: Mapping[str, JsonValue], request: str) -> StepInput:
    """What the step works on, read by its type: `outputs` are those of the steps it comes after, in their order.

    Raises: OrchestrationFailure (ORCHESTRATION_STEP_MISMATCH).
    """
    row, given = STEP_SPECS[step.type], list[JsonValue]()
    if step.input is not None:
        given += [step.input]
    elif not outputs:
        given += [request]
    elif len(outputs) == 1:
        given += outputs.values()
    else:
        given += [dict(outputs), *([orjson.dumps(dict(outputs)).decode()] if row.calls_model else ())]
    for each in given:
        try:
            return row.input_adapter.validate_python(each)
        except ValidationError:
            continue
    raise step_mismatch(step)


def step_mismatch(step: PlanStep, violations: Sequence[Mapping[str, str]] = ()) -> OrchestrationFailure:
    """The failure of a step that cannot work on what it is given."""
    expected = STEP_SPECS[step.type].expected
    details = {"step": step.name, "expected": expected, **({"violations": list(violations)} if violations else {})}
    return OrchestrationFailure(
        Code.ORCHESTRATION_STEP_MISMATCH,
        f"step {step.name!a} works on {expected}, and is given something else",
        details,
    )


def validate_plan(steps: Sequence[PlanStep], policy: EffectivePlanPolicy) -> OrchestrationFailure | None:
    """Why the plan is not begun, with `details.violations`; None for one that can run."""
    found = policy_violations(steps, policy)
    if found:
        return plan_refused(found)
    unfit = type_mismatches(steps)
    if unfit:
        found = [(f"steps.{index}.input", f"must be {STEP_SPECS[steps[index].type].expected}") for index in unfit]
        return step_mismatch(steps[unfit[0]], _violations(found)["violations"])
    return None


def plan_refused(found: Sequence[tuple[str, str]]) -> OrchestrationFailure:
    """The failure of a plan of which that is found, as pairs of path and message."""
    told = "; ".join(f"{path}: {message}" for path, message in found[:3])
    return OrchestrationFailure(Code.ORCHESTRATION_PLAN_REFUSED, f"the plan is refused: {told}", _violations(found))


def _violations(found: Sequence[tuple[str, str]]) -> dict[str, list[dict[str, str]]]:
    return {"violations": [{"path": path, "message": message} for path, message in found]}


def type_mismatches(steps: Sequence[PlanStep]) -> list[int]:
    """Indexes of the steps, of a plan without faults, that cannot work on what they will be given."""
    unfit = []
    for index, given in infer_input_types(steps).items():
        step, row = steps[index], STEP_SPECS[steps[index].type]
        if not (row.accepts(given) if step.input is None else _fits(row, step.input)):
            unfit.append(index)
    return sorted(unfit)


def infer_input_types(steps: Sequence[PlanStep]) -> dict[int, InputType]:
    """What is known beforehand of what each step, of a plan without faults, is given; by index."""
    before, given, gives = predecessors(steps), dict[int, InputType](), dict[int, InputType]()
    for index in topological_order(steps):
        step = steps[index]
        given[index] = _given(step, {steps[each].name: gives[each] for each in before[index]})
        gives[index] = STEP_SPECS[step.type].output_type(step, given[index])
    return given


def _given(step: PlanStep, outputs: Mapping[str, InputType]) -> InputType:
    if step.input is not None or not outputs:
        return "value" if not isinstance(step.input, str | None) else "text"
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _fits(row: StepSpec, given: JsonValue) -> bool:
    try:
        row.input_adapter.validate_python(given)
    except ValidationError:
        return False
    return True


def policy_violations(steps: Sequence[PlanStep], policy: EffectivePlanPolicy) -> list[tuple[str, str]]:
    """Everything that the policy has against the plan, as pairs of path and message.

    Of what stands in the plan only names of steps, keys and types are told.
    """
    if len(steps) > policy.max_steps:
        return [("steps", f"must be at most {policy.max_steps}")]
    return list(islice(_faults(steps, policy), MAX_VIOLATIONS))


def _faults(steps: Sequence[PlanStep], policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    if not steps:
        yield "steps", "must be at least 1"
    yield from _of_names(steps)
    for index, step in enumerate(steps):
        of_type = _of_type(step.type, policy)
        if of_type is not None:
            yield f"steps.{index}.type", of_type
        else:
            yield from ((f"steps.{index}{path}", message) for path, message in _of_keys(step, policy))
    yield from _of_order(steps, policy)


def _of_names(steps: Sequence[PlanStep]) -> Iterator[tuple[str, str]]:
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


def _of_type(name: str, policy: EffectivePlanPolicy) -> str | None:
    if name not in STEP_SPECS:
        known = name in set(StepType)
        return f"{name} is not in this version" if known else f"must be one of {', '.join(STEP_SPECS)}"
    return None if name in policy.allowed_step_types else f"{name} is not allowed"


def _of_keys(step: PlanStep, policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    row, given = STEP_SPECS[step.type], step_options(step)
    unknown = sorted(given.keys() - row.options)
    yield from (("", f"{key[:64]!a} is no key of a step of type {step.type}") for key in unknown)
    for key in sorted(_unfit({key: given[key] for key in given.keys() & row.options})):
        field = "schema_" if key == "schema" else key
        yield f".{key}", f"must be {StepOptions.model_fields[field].description}"
    if row.required_options and row.required_options.isdisjoint(given) and not (row.calls_model and has_schema(step)):
        yield "", f"needs {' or '.join(sorted(row.required_options))}"
    yield from _beyond("", given, policy)
    inner = step.input if row.calls_model and isinstance(step.input, dict) else {}
    yield from _beyond(".input", inner, policy)
    if step.type == StepType.REDUNDANT:
        yield from _quorum({**given, **inner}, ".input" if "quorum" in inner else "")
    for path, name in named_tools(step):
        if policy.tools is not None and name not in policy.tools:
            yield path, "must name a tool that is offered"


def _unfit(given: Mapping[str, JsonValue]) -> set[str]:
    try:
        StepOptions.model_validate(given)
    except ValidationError as error:
        return {str(each["loc"][0]) for each in error.errors()}
    return set()


def _beyond(path: str, given: Mapping[str, JsonValue], policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    for key, most in (("attempts", policy.attempts), ("n", policy.replicas), ("timeout", policy.timeout)):
        number = given.get(key)
        if most is not None and isinstance(number, int | float) and number > most:
            yield f"{path}.{key}", f"must be at most {most:g}"


def _quorum(vote: Mapping[str, JsonValue], path: str) -> Iterator[tuple[str, str]]:
    replicas, quorum = vote.get("n") or RedundancyOptions().n, vote.get("quorum")
    if isinstance(replicas, int) and isinstance(quorum, int) and quorum > replicas:
        yield f"{path}.quorum", f"must be at most the {replicas} replicas"


def _of_order(steps: Sequence[PlanStep], policy: EffectivePlanPolicy) -> Iterator[tuple[str, str]]:
    before, order = predecessors(steps), topological_order(steps)
    if len(order) < len(steps):
        index, *others = _circle(before, frozenset(range(len(steps))) - frozenset(order))
        names = " and ".join(f"{steps[each].name!a}" for each in others)
        yield f"steps.{index}.depends_on", f"waits for itself{' by way of ' if names else ''}{names}"
    elif policy.require_linear:
        for index in non_linear_steps(steps):
            yield f"steps.{index}.depends_on", "must be the one step before it: branches are not allowed"


def _circle(before: Sequence[Sequence[int]], waiting: frozenset[int]) -> list[int]:
    """Steps that wait for each other, each for the next of them and the last for the first."""
    path = [min(waiting)]
    while (index := next(each for each in before[path[-1]] if each in waiting)) not in path:
        path.append(index)
    return path[path.index(index) :]
