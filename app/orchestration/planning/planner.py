"""The state PLAN: where the plan comes from, and whether it may run.

The request's own plan is taken before the configured one, and where there is neither a model makes one. Whatever it
comes from, it is held to the policy of the request within the bounds in force, and to what its steps can work on. A
model is told why its plan was refused and tries again; so all that is held against that plan must be found the same
when it is told again: the tools it may call are recorded first, the rest stands in the execution's header.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Final

import orjson

from app.capabilities.contracts import LARGE_CHARACTERS, Contract
from app.capabilities.prompting.ask import Prompted
from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompts.planning import (
    STEP_TYPES,
    EarlierMessage,
    PlanGenerationInput,
    PlanGenerationOutput,
    PlannableTool,
)
from app.domain.boundary import OutputContract, PlanStep, SystemRequest
from app.domain.effects import PLAN, Outcome, Plannable, Planned, Refused
from app.domain.events import PlanCreated
from app.domain.failures import Code, ConfigurationFailure, OrchestrationFailure, RequestFailure
from app.domain.messages import Message
from app.domain.pausing import at_once
from app.domain.plan import Policy, contract, objection, predecessors, refused
from app.domain.produced import Produced
from app.domain.steps import ROWS, StepType, said
from app.orchestration.patterns.plan_executor import as_planned
from app.orchestration.run import Run
from app.orchestration.world import World

MOST_DEMANDED_BYTES: Final = 131_072
"""Of the schemas and rules of all steps; so those that are large stay in the cache of schemas while the plan runs."""
_LARGE_BYTES: Final = 65_536
_REFUSALS = frozenset({Code.ORCHESTRATION_PLAN_REFUSED, Code.ORCHESTRATION_STEP_MISMATCH})


async def plan(run: Run, static: Sequence[PlanStep] | None = None) -> None:
    """Gives the run its plan: the request's, else the `static` one, else a model's.

    Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED, ORCHESTRATION_STEP_MISMATCH) with
    `details.violations`; InferenceFailure; ConstraintFailure for an answer of the model that is no plan.
    """
    authored = None if run.request.plan is None else run.request.plan.steps
    made = await _made(run, static) if authored is None else Planned(tuple(authored), "authored", "")
    known = made.steps if isinstance(made, Planned) else (made.code,)
    settled = await run.establish(partial(_settled, run, made), *known, key=PLAN, instant=False)
    if isinstance(settled, Refused):
        raise settled.failure()
    assert isinstance(settled, Planned)  # noqa: S101 - what a plan can come to
    run.plan, run.planned_at = settled, run.now
    run.draft(Produced(None, plan=as_planned(run)))
    run.emit(_told(settled.steps, settled.planner_id))


def held_against(steps: Sequence[PlanStep], policy: Policy) -> OrchestrationFailure | None:
    """Why such a plan cannot run, with `details.violations`; None for one that can. It may take a while."""
    return objection(steps, policy) or _unkeepable(steps)


async def _made(run: Run, static: Sequence[PlanStep] | None) -> Planned | Refused:
    """The configured plan, or a model's; what was held against the last that a model made where none would do."""
    found = await run.establish(partial(_found, run.request, static, run.messages))
    if isinstance(found, Planned):
        return found
    assert isinstance(found, Plannable)  # noqa: S101 - what there is to plan with
    policy = _policy(run, [tool["name"] for tool in found.tools])
    types = {
        name: STEP_TYPES[name] for name in ROWS if name in policy.allowed and (name != StepType.TOOL or found.tools)
    }
    if not types:
        return Refused.by(refused([("policy.allowed_step_types", "leave nothing that could be planned")]))
    conversation = found.told or run.request.messages
    asking = _asking(conversation)
    told = PlanGenerationInput(
        request=asking.text,
        history=_beside(asking, conversation),
        tools=tuple(PlannableTool.model_validate(tool) for tool in found.tools),
        step_types=types,
        max_steps=policy.max_steps,
        require_linear=policy.require_linear,
    )
    try:
        made = await run.ask(
            Prompted(PromptId.PLAN_GENERATION_USER, told, PlanGenerationOutput, partial(_check, policy))
        )
    except OrchestrationFailure as refusal:
        if refusal.code not in _REFUSALS:
            raise
        return Refused.by(refusal)
    return Planned(made.steps, "model", made.rationale)


async def _found(
    request: SystemRequest, static: Sequence[PlanStep] | None, told: Sequence[Message], world: World
) -> Outcome:
    if static is not None:
        return Planned(tuple(static), "static", "")
    tools = world.registry.definitions(_offered(request, world))
    described = (
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools
    )
    return Plannable(tuple(described), tuple(told))


async def _settled(run: Run, made: Planned | Refused, world: World) -> Outcome:
    if isinstance(made, Refused):
        return made
    look = partial(held_against, made.steps, _policy(run, _offered(run.request, world)))
    against = await world.workers.run(look) if _is_large(made.steps) else look()
    return made if against is None else Refused.by(against)


def _check(policy: Policy, made: PlanGenerationOutput) -> None:
    """Raises: OrchestrationFailure. Schemas and rules that are large are looked at where nobody waits for it."""
    against = objection(made.steps, policy)
    if against is None and _demands(made.steps) <= LARGE_CHARACTERS:
        against = _unkeepable(made.steps)
    if against is not None:
        raise against


def _policy(run: Run, tools: Iterable[str]) -> Policy:
    asked = None if run.request.plan is None else run.request.plan.policy
    return Policy.of(asked, run.bounds, frozenset(tools))


def _offered(request: SystemRequest, world: World) -> list[str]:
    return [name for name in world.registry.names() if request.tools is None or name in request.tools]


def _asking(messages: Sequence[Message]) -> Message:
    """The last message of a user; where there is none, the last."""
    return next((message for message in reversed(messages) if message.role == "user"), messages[-1])


def _beside(asking: Message, messages: Sequence[Message]) -> tuple[EarlierMessage, ...]:
    others = (message for message in messages if message is not asking)
    return tuple(EarlierMessage(role=other.role, text=other.text) for other in others if other.text)


def _is_large(steps: Sequence[PlanStep]) -> bool:
    """Whether to look at it on a thread."""
    whole = len(orjson.dumps([(step.input, step.depends_on, step.model_extra) for step in steps]))
    return whole > _LARGE_BYTES or _demands(steps) > LARGE_CHARACTERS


def _demands(steps: Sequence[PlanStep]) -> int:
    """Bytes of all schemas and rules, in whatever form they are."""
    inner = [step.input.get("schema") for step in steps if isinstance(step.input, dict)]
    own = [(said(step).get("schema"), said(step).get("rules")) for step in steps]
    return len(orjson.dumps([each for each in (*inner, *chain.from_iterable(own)) if each is not None]))


def _unkeepable(steps: Sequence[PlanStep]) -> OrchestrationFailure | None:
    """What is held against the schemas and rules of steps without objections."""
    if _demands(steps) > MOST_DEMANDED_BYTES:
        return refused([("steps", f"must have schemas and rules of at most {MOST_DEMANDED_BYTES} bytes together")])
    found = []
    for index, step in enumerate(steps):
        kept = contract(step)
        try:
            at_once(Contract.making(kept or OutputContract()))
        except ConfigurationFailure as failure:
            found.append((f"steps.{index}.schema", failure.message))
        except RequestFailure as failure:
            found.append((f"steps.{index}.rules", failure.message.removeprefix("output.")))
    return refused(found) if found else None


def _told(steps: Sequence[PlanStep], planner_id: str) -> PlanCreated:
    before = predecessors(steps)
    return PlanCreated(
        planner_id,
        tuple(
            {"name": step.name, "type": step.type, "depends_on": [steps[each].name for each in before[index]]}
            for index, step in enumerate(steps)
        ),
    )
