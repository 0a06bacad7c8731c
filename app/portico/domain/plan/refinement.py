"""Refinements: changes of a plan between its passes, which never touch a step that has run.

A step has run once it completed, failed or was cancelled; a pending or a skipped one has not. Before the first change
every step names the steps it depends on, so that no change moves another step. A name in use stands for one step only,
so the events and results of a step are found by its name in every pass.

- ADD puts a new step behind the target, or at the end. Without `depends_on` it comes after the step before it that can
  still complete or has.
- MODIFY changes the target and keeps its name. REPLACE puts another step in its place, on which those depend that
  depended on the target. Without `depends_on` both keep what the target depends on.
- REMOVE takes the target out; the steps that depended on it depend on what it depended on.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from portico.domain.contract.request import PlanStep
from portico.domain.contract.response import StepStatus
from portico.domain.plan.graph import predecessors
from portico.domain.plan.parsed_plan import ParsedPlan
from portico.domain.plan.plan import plan_refused
from portico.domain.value import value


class RefinementAction(StrEnum):
    """Kind of a change."""

    ADD = "ADD"
    MODIFY = "MODIFY"
    REMOVE = "REMOVE"
    REPLACE = "REPLACE"


@value
class PlanChange:
    """One change of a plan: the step that it concerns, by name, and the step that it brings."""

    action: RefinementAction
    target_step: str | None = None
    new_step: PlanStep | None = None


FAILED: Final = frozenset({StepStatus.FAILED, StepStatus.CANCELLED})
"""Status of a step that has run and will never complete."""
HAS_RUN: Final = FAILED | {StepStatus.COMPLETED}
"""Status of a step that no refinement touches."""
Statuses = Mapping[str, StepStatus]
"""Status of each step by name; a step that is missing is pending."""


def refine(steps: Sequence[PlanStep], statuses: Statuses, refinements: Sequence[PlanChange]) -> tuple[PlanStep, ...]:
    """Return the plan with all changes, made in turn.

    Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED) with a violation for each change that cannot be made.
    """
    plan = list(with_dependencies(steps))
    violations: list[tuple[str, str]] = []
    for index, each in enumerate(refinements):
        found = [(f"refinements.{index}{path}", message) for path, message in _violations(plan, statuses, each)]
        violations += found
        if not found:
            plan = _changed(plan, statuses, each)
    if violations:
        raise plan_refused(violations)
    return tuple(plan)


def with_dependencies(steps: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
    """Return the same plan, in which each step names the steps that it depends on; a step that does stays itself."""
    before = [[steps[each].name for each in earlier] for earlier in predecessors(steps)]
    return tuple(
        step if step.depends_on == names else step.model_copy(update={"depends_on": names})
        for step, names in zip(steps, before, strict=True)
    )


def runnable_steps(plan: ParsedPlan, statuses: Statuses) -> tuple[int, ...]:
    """Return the indexes of the steps that have not run and depend on nothing that failed, in topological order."""
    can_complete, runnable = set[int](), []
    for index in plan.order:
        status = statuses.get(plan.steps[index].name, StepStatus.PENDING)
        if status is StepStatus.COMPLETED:
            can_complete.add(index)
        elif status not in FAILED and can_complete.issuperset(plan.predecessors[index]):
            can_complete.add(index)
            runnable.append(index)
    return tuple(runnable)


def _violations(plan: Sequence[PlanStep], statuses: Statuses, change: PlanChange) -> Iterator[tuple[str, str]]:
    names = {step.name for step in plan}
    yield from ((".target_step", message) for message in _target_violations(names, statuses, change))
    if change.action is RefinementAction.REMOVE:
        return
    new = change.new_step
    if new is None:
        yield ".new_step", f"must be the step to {change.action.lower()}"
        return
    replaced = None if change.action is RefinementAction.ADD else change.target_step
    if change.action is RefinementAction.MODIFY and new.name != replaced:
        yield ".new_step.name", "must stay the name of the step that is modified"
    elif new.name in names and new.name != replaced:
        yield ".new_step.name", f"{new.name!a} is in use"
    for name in new.depends_on or ():
        if statuses.get(name) in FAILED:
            yield ".new_step.depends_on", f"{name!a} failed, so nothing can come after it"


def _target_violations(names: Collection[str], statuses: Statuses, change: PlanChange) -> Iterator[str]:
    target, is_added = change.target_step, change.action is RefinementAction.ADD
    if target is None:
        if not is_added:
            yield f"must name the step to {change.action.lower()}"
    elif target not in names:
        yield f"there is no step {target!a}"
    elif not is_added and statuses.get(target) in HAS_RUN:
        yield f"{target!a} has run and stays as it is"


def _changed(plan: Sequence[PlanStep], statuses: Statuses, change: PlanChange) -> list[PlanStep]:
    names = [step.name for step in plan]
    place = names.index(change.target_step) if change.target_step is not None else len(plan) - 1
    if change.action is RefinementAction.REMOVE:
        removed = plan[place]
        return [_rewired(step, removed.name, removed.depends_on or ()) for step in plan if step is not removed]
    new = change.new_step
    assert new is not None  # noqa: S101 - every other change brings a step
    if change.action is RefinementAction.ADD:
        before = [name for name in names[: place + 1] if statuses.get(name) not in FAILED]
        added = new if new.depends_on is not None else new.model_copy(update={"depends_on": before[-1:]})
        return [*plan[: place + 1], added, *plan[place + 1 :]]
    if new.depends_on is None:
        new = new.model_copy(update={"depends_on": plan[place].depends_on})
    return [new if index == place else _rewired(step, names[place], [new.name]) for index, step in enumerate(plan)]


def _rewired(step: PlanStep, name: str, others: Sequence[str]) -> PlanStep:
    """Return the step with the others in place of the one of that name, where it depends on it."""
    depends_on = step.depends_on or []
    if name not in depends_on:
        return step
    place = depends_on.index(name)
    rewired = list(dict.fromkeys([*depends_on[:place], *others, *depends_on[place + 1 :]]))
    return step if rewired == depends_on else step.model_copy(update={"depends_on": rewired})
