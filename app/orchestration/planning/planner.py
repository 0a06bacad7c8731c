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

from app.capabilities.answer_contract import LARGE_CONTRACT_CHARACTERS, AnswerContract
from app.capabilities.prompting.definition import PromptId
from app.capabilities.prompting.prompt_call import PromptCall
from app.capabilities.prompting.prompts.planning import (
    STEP_TYPE_DESCRIPTIONS,
    HistoryMessage,
    PlanGenerationInput,
    PlanGenerationOutput,
    PlannableTool,
)
from app.domain.contract.messages import Message
from app.domain.contract.request import OutputContract, PlanStep, SystemRequest
from app.domain.failures import Code, ConfigurationFailure, OrchestrationFailure, RequestFailure
from app.domain.journal.events import PlanCreated
from app.domain.journal.outcomes import Outcome, Plan, PlanningInputs, Refused
from app.domain.journal.step_key import PLAN_KEY
from app.domain.pattern_result import PatternResult
from app.domain.plan.plan import EffectivePlanPolicy, output_contract_of, plan_refused, predecessors, validate_plan
from app.domain.plan.steps import STEP_SPECS, StepType, step_options
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.environment import Environment
from app.orchestration.patterns.plan_executor import initial_report

MAX_SCHEMA_BYTES: Final = 131_072
"""Of the schemas and rules of all steps; so those that are large stay in the cache of schemas while the plan runs."""
_LARGE_BYTES: Final = 65_536
_REFUSALS = frozenset({Code.ORCHESTRATION_PLAN_REFUSED, Code.ORCHESTRATION_STEP_MISMATCH})


async def make_plan(run: RunContext, static: Sequence[PlanStep] | None = None) -> None:
    """Gives the run its plan: the request's, else the `static` one, else a model's.

    Raises: OrchestrationFailure (ORCHESTRATION_PLAN_REFUSED, ORCHESTRATION_STEP_MISMATCH) with
    `details.violations`; InferenceFailure; ConstraintFailure for an answer of the model that is no plan.
    """
    authored = None if run.request.plan is None else run.request.plan.steps
    made = await _made(run, static) if authored is None else Plan(tuple(authored), "authored", "")
    known = made.steps if isinstance(made, Plan) else (made.code,)
    settled = await run.record_value(partial(_settled, run, made), *known, key=PLAN_KEY, is_instant=False)
    if isinstance(settled, Refused):
        raise settled.failure()
    assert isinstance(settled, Plan)  # noqa: S101 - what a plan can come to
    run.plan, run.planned_at = settled, run.now
    run.set_partial_result(PatternResult(None, plan=initial_report(run)))
    run.emit(_told(settled.steps, settled.planner_id))


def refusal_of(steps: Sequence[PlanStep], policy: EffectivePlanPolicy) -> OrchestrationFailure | None:
    """Why such a plan cannot run, with `details.violations`; None for one that can. It may take a while."""
    return validate_plan(steps, policy) or _unkeepable(steps)


async def _made(run: RunContext, static: Sequence[PlanStep] | None) -> Plan | Refused:
    """The configured plan, or a model's; what was held against the last that a model made where none would do."""
    found = await run.record_value(partial(_found, run.request, static, run.messages))
    if isinstance(found, Plan):
        return found
    assert isinstance(found, PlanningInputs)  # noqa: S101 - what there is to plan with
    policy = _policy(run, [tool["name"] for tool in found.tools])
    types = {
        name: STEP_TYPE_DESCRIPTIONS[name]
        for name in STEP_SPECS
        if name in policy.allowed_step_types and (name != StepType.TOOL or found.tools)
    }
    if not types:
        return Refused.by(plan_refused([("policy.allowed_step_types", "leave nothing that could be planned")]))
    conversation = found.history or run.request.messages
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
            PromptCall(PromptId.PLAN_GENERATION_USER, told, PlanGenerationOutput, partial(_check, policy))
        )
    except OrchestrationFailure as refusal:
        if refusal.code not in _REFUSALS:
            raise
        return Refused.by(refusal)
    return Plan(made.steps, "model", made.rationale)


async def _found(
    request: SystemRequest, static: Sequence[PlanStep] | None, told: Sequence[Message], world: Environment
) -> Outcome:
    if static is not None:
        return Plan(tuple(static), "static", "")
    tools = world.tool_registry.definitions(_offered(request, world))
    described = (
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools
    )
    return PlanningInputs(tuple(described), tuple(told))


async def _settled(run: RunContext, made: Plan | Refused, world: Environment) -> Outcome:
    if isinstance(made, Refused):
        return made
    look = partial(refusal_of, made.steps, _policy(run, _offered(run.request, world)))
    against = await world.thread_pool.run(look) if _is_large(made.steps) else look()
    return made if against is None else Refused.by(against)


def _check(policy: EffectivePlanPolicy, made: PlanGenerationOutput) -> None:
    """Raises: OrchestrationFailure. Schemas and rules that are large are looked at where nobody waits for it."""
    against = validate_plan(made.steps, policy)
    if against is None and _demands(made.steps) <= LARGE_CONTRACT_CHARACTERS:
        against = _unkeepable(made.steps)
    if against is not None:
        raise against


def _policy(run: RunContext, tools: Iterable[str]) -> EffectivePlanPolicy:
    asked = None if run.request.plan is None else run.request.plan.policy
    return EffectivePlanPolicy.from_request(asked, run.limits, frozenset(tools))


def _offered(request: SystemRequest, world: Environment) -> list[str]:
    return [name for name in world.tool_registry.names() if request.tools is None or name in request.tools]


def _asking(messages: Sequence[Message]) -> Message:
    """The last message of a user; where there is none, the last."""
    return next((message for message in reversed(messages) if message.role == "user"), messages[-1])


def _beside(asking: Message, messages: Sequence[Message]) -> tuple[HistoryMessage, ...]:
    others = (message for message in messages if message is not asking)
    return tuple(HistoryMessage(role=other.role, text=other.text) for other in others if other.text)


def _is_large(steps: Sequence[PlanStep]) -> bool:
    """Whether to look at it on a thread."""
    whole = len(orjson.dumps([(step.input, step.depends_on, step.model_extra) for step in steps]))
    return whole > _LARGE_BYTES or _demands(steps) > LARGE_CONTRACT_CHARACTERS


def _demands(steps: Sequence[PlanStep]) -> int:
    """Bytes of all schemas and rules, in whatever form they are."""
    inner = [step.input.get("schema") for step in steps if isinstance(step.input, dict)]
    own = [(step_options(step).get("schema"), step_options(step).get("rules")) for step in steps]
    return len(orjson.dumps([each for each in (*inner, *chain.from_iterable(own)) if each is not None]))


def _unkeepable(steps: Sequence[PlanStep]) -> OrchestrationFailure | None:
    """What is held against the schemas and rules of steps without objections."""
    if _demands(steps) > MAX_SCHEMA_BYTES:
        return plan_refused([("steps", f"must have schemas and rules of at most {MAX_SCHEMA_BYTES} bytes together")])
    found = []
    for index, step in enumerate(steps):
        kept = output_contract_of(step)
        try:
            AnswerContract.compile(kept or OutputContract())
        except ConfigurationFailure as failure:
            found.append((f"steps.{index}.schema", failure.message))
        except RequestFailure as failure:
            found.append((f"steps.{index}.rules", failure.message.removeprefix("output.")))
    return plan_refused(found) if found else None


def _told(steps: Sequence[PlanStep], planner_id: str) -> PlanCreated:
    before = predecessors(steps)
    return PlanCreated(
        planner_id,
        tuple(
            {"name": step.name, "type": step.type, "depends_on": [steps[each].name for each in before[index]]}
            for index, step in enumerate(steps)
        ),
    )
