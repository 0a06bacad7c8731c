"""Upper bound of mode `plan` with several passes.

All steps of all passes and subplans are at most `max_steps`. What a model is asked beside them depends on the passes
alone: one question each for the profile, the plan, its check, its refinement and the final answer, one for each pass,
and two between passes. Each of them may fail on every engine, and the execution goes on without an answer.
"""

from portico.domain.contract.request import PlanOptions
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.plan import validate_plan
from portico.orchestration.execution.pattern import BoundInputs, UpperBound, in_sequence
from portico.orchestration.patterns import plan_bound
from portico.orchestration.patterns.plan_bound import bound_policy, steps_bound, supplied_steps, worst_steps


def upper_bound(inputs: BoundInputs) -> UpperBound:
    """Return the bound of a plan in as many passes as the request asks for."""
    passes = (inputs.request.plan or PlanOptions()).passes
    if passes == 1:
        return plan_bound.upper_bound(inputs)
    steps, policy = supplied_steps(inputs), bound_policy(inputs)
    plan = None if steps is None else parse_plan(steps)
    if plan is not None and validate_plan(plan, policy):
        return _questions(inputs, 1).then(inputs.transitions(passes))
    before = 2 if steps is not None else 4
    known = UpperBound() if plan is None else steps_bound(inputs, plan)
    rest = worst_steps(inputs, policy, policy.max_steps - len(steps or ()))
    asked = _questions(inputs, before + passes + 2 * (passes - 1) + 1)
    run = known.concurrent_with(rest).then(asked)
    return run.then(inputs.inferences(inputs.judgements)).then(inputs.transitions(passes))


def _questions(inputs: BoundInputs, count: int) -> UpperBound:
    return in_sequence([inputs.inferences(inputs.inferences_per_ask)] * count)
