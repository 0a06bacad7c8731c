"""Plans: the input of each step, and everything that can be wrong with a plan.

The input of a step is its `input`. If that is missing or null, the input is the output of its only predecessor, or an
object with the outputs of its predecessors by name, or, without predecessors, the last user message.

A plan without policy violations and type mismatches can run. An output may still turn out not to match the step that
receives it; that fails when the output is there.
"""

from collections.abc import Mapping, Sequence

import orjson
from pydantic import JsonValue, ValidationError

from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.plan.parsed_plan import ParsedPlan, ParsedStep
from portico.domain.plan.policy import EffectivePlanPolicy, policy_violations
from portico.domain.plan.steps import StepInput, StepType
from portico.domain.tools import ArgumentViolation


def resolve_input(
    step: ParsedStep, outputs: Mapping[str, JsonValue], request: str, query: str | None = None
) -> StepInput:
    """Return the step's input, parsed by its type; `outputs` are those of its predecessors, in their order.

    Chunks that a search found are ranked by its `query`. Raises: OrchestrationFailure (ORCHESTRATION_STEP_MISMATCH).
    """
    spec, given = step.spec, list[JsonValue]()
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


def step_mismatch(step: ParsedStep, violations: Sequence[Mapping[str, str]] = ()) -> OrchestrationFailure:
    """Return the failure of a step whose input has the wrong type."""
    expected = step.spec.expected
    details = {"step": step.name, "expected": expected, **({"violations": list(violations)} if violations else {})}
    return OrchestrationFailure(
        Code.ORCHESTRATION_STEP_MISMATCH,
        f"step {step.name!a} works on {expected}, and is given something else",
        details,
    )


def arguments_refused(step: ParsedStep, tool: str, violations: Sequence[ArgumentViolation]) -> OrchestrationFailure:
    """Return the failure of a tool step whose arguments can never fit its tool."""
    shown = "; ".join(f"{path}: {message}" for path, message in violations[:3])
    return OrchestrationFailure(
        Code.ORCHESTRATION_STEP_MISMATCH,
        f"step {step.name!a} cannot call {tool}: {shown}",
        {"step": step.name, "tool": tool, **_details([(f"$.{path}", message) for path, message in violations])},
    )


def validate_plan(
    plan: ParsedPlan, policy: EffectivePlanPolicy, unchecked: Sequence[int] | None = None
) -> OrchestrationFailure | None:
    """Return the reason why the plan cannot run, with `details.violations`; None if it can.

    Only the steps at the indexes `unchecked`, by default all, are checked by themselves; the policy accepted the others
    before.
    """
    violations = policy_violations(plan, policy, unchecked)
    if violations:
        return plan_refused(violations)
    mismatches = [(index, step) for index, step in enumerate(plan.steps) if not plan.types[step].fits]
    if mismatches:
        violations = [(f"steps.{index}.input", f"must be {step.spec.expected}") for index, step in mismatches]
        return step_mismatch(mismatches[0][1], _details(violations)["violations"])
    return None


def plan_refused(violations: Sequence[tuple[str, str]]) -> OrchestrationFailure:
    """Return the failure of a plan with these violations, as pairs of path and message."""
    shown = "; ".join(f"{path}: {message}" for path, message in violations[:3])
    return OrchestrationFailure(Code.ORCHESTRATION_PLAN_REFUSED, f"the plan is refused: {shown}", _details(violations))


def _details(violations: Sequence[tuple[str, str]]) -> dict[str, list[dict[str, str]]]:
    return {"violations": [{"path": path, "message": message} for path, message in violations]}
