"""Plans: the input of each step, and everything that can be wrong with a plan.

The input of a step is its `input`. If that is missing or null, the input is the output of its only predecessor, or an
object with the outputs of its predecessors by name, or, without predecessors, the last user message.

A plan without policy violations and type mismatches can run. An output may still turn out not to match the step that
receives it; that fails when the output is there.
"""

from collections.abc import Mapping, Sequence

import orjson
from pydantic import JsonValue, ValidationError

from portico.domain.contract.request import OutputContract, PlanStep
from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.plan.graph import predecessors, topological_order
from portico.domain.plan.policy import EffectivePlanPolicy, policy_violations
from portico.domain.plan.steps import (
    InferInput,
    InputType,
    StepInput,
    StepOptions,
    StepSpec,
    StepType,
    shared_options,
    spec_of,
)
from portico.domain.tools import ArgumentViolation


def parse_options(step: PlanStep) -> StepOptions:
    """Return the options of a valid step: everything but its name, type, input and `depends_on`, and but
    what only its type of a module has.
    """
    return StepOptions.model_validate(shared_options(step))


def output_contract_of(step: PlanStep, step_input: StepInput = None) -> OutputContract | None:
    """Return the output contract of a valid step; None if it has none.

    The schema of its input (`step_input`, or its own input if that is not known yet) takes precedence over its options.
    """
    own = parse_options(step)
    inner = step.input.get("schema") if isinstance(step.input, dict) and spec_of(step.type).calls_model else None
    known = step_input.schema_ if isinstance(step_input, InferInput) else inner
    schema = own.schema_ if known is None else known
    if schema is None and not own.rules:
        return None
    return OutputContract.model_validate({"schema": schema, "rules": own.rules})


def resolve_input(
    step: PlanStep, outputs: Mapping[str, JsonValue], request: str, query: str | None = None
) -> StepInput:
    """Return the step's input, parsed by its type; `outputs` are those of its predecessors, in their order.

    Chunks that a search found are ranked by its `query`. Raises: OrchestrationFailure (ORCHESTRATION_STEP_MISMATCH).
    """
    spec, given = spec_of(step.type), list[JsonValue]()
    if step.input is not None:
        given += [step.input]
    elif not outputs:
        given += [request]
    elif len(outputs) == 1:
        [output] = outputs.values()
        is_found = query is not None and step.type == StepType.RERANK
        given += [{"query": query, "candidates": output} if is_found else output]
    else:
        given += [dict(outputs), *([orjson.dumps(dict(outputs)).decode()] if spec.calls_model else ())]
    for each in given:
        try:
            return spec.input_adapter.validate_python(each)
        except ValidationError:
            continue
    raise step_mismatch(step)


def step_mismatch(step: PlanStep, violations: Sequence[Mapping[str, str]] = ()) -> OrchestrationFailure:
    """Return the failure of a step whose input has the wrong type."""
    expected = spec_of(step.type).expected
    details = {"step": step.name, "expected": expected, **({"violations": list(violations)} if violations else {})}
    return OrchestrationFailure(
        Code.ORCHESTRATION_STEP_MISMATCH,
        f"step {step.name!a} works on {expected}, and is given something else",
        details,
    )


def arguments_refused(step: PlanStep, tool: str, violations: Sequence[ArgumentViolation]) -> OrchestrationFailure:
    """Return the failure of a tool step whose arguments can never fit its tool."""
    shown = "; ".join(f"{path}: {message}" for path, message in violations[:3])
    return OrchestrationFailure(
        Code.ORCHESTRATION_STEP_MISMATCH,
        f"step {step.name!a} cannot call {tool}: {shown}",
        {"step": step.name, "tool": tool, **_details([(f"$.{path}", message) for path, message in violations])},
    )


def validate_plan(steps: Sequence[PlanStep], policy: EffectivePlanPolicy) -> OrchestrationFailure | None:
    """Return the reason why the plan cannot run, with `details.violations`; None if it can."""
    violations = policy_violations(steps, policy)
    if violations:
        return plan_refused(violations)
    mismatches = type_mismatches(steps)
    if mismatches:
        violations = [
            (f"steps.{index}.input", f"must be {spec_of(steps[index].type).expected}") for index in mismatches
        ]
        return step_mismatch(steps[mismatches[0]], _details(violations)["violations"])
    return None


def plan_refused(violations: Sequence[tuple[str, str]]) -> OrchestrationFailure:
    """Return the failure of a plan with these violations, as pairs of path and message."""
    shown = "; ".join(f"{path}: {message}" for path, message in violations[:3])
    return OrchestrationFailure(Code.ORCHESTRATION_PLAN_REFUSED, f"the plan is refused: {shown}", _details(violations))


def _details(violations: Sequence[tuple[str, str]]) -> dict[str, list[dict[str, str]]]:
    return {"violations": [{"path": path, "message": message} for path, message in violations]}


def type_mismatches(steps: Sequence[PlanStep]) -> list[int]:
    """Return the indexes of the steps, in a plan without violations, whose input will have the wrong type."""
    mismatches = []
    for index, given in infer_input_types(steps).items():
        step, spec = steps[index], spec_of(steps[index].type)
        if not (spec.accepts(given) if step.input is None else _matches(spec, step.input)):
            mismatches.append(index)
    return sorted(mismatches)


def infer_input_types(steps: Sequence[PlanStep]) -> dict[int, InputType]:
    """Return the known type of each step's input, by index, in a plan without violations."""
    before, given, gives = predecessors(steps), dict[int, InputType](), dict[int, InputType]()
    for index in topological_order(steps):
        step = steps[index]
        given[index] = _input_type(step, {steps[each].name: gives[each] for each in before[index]})
        gives[index] = spec_of(step.type).output_type(step, given[index])
    return given


def _input_type(step: PlanStep, outputs: Mapping[str, InputType]) -> InputType:
    if step.input is not None or not outputs:
        return "value" if not isinstance(step.input, str | None) else "text"
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _matches(spec: StepSpec, given: JsonValue) -> bool:
    try:
        spec.input_adapter.validate_python(given)
    except ValidationError:
        return False
    return True
