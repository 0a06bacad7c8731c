"""Task: what is to be planned and assessed, as the prompts of planning are given it."""

from collections.abc import Mapping, Sequence
from typing import Any

from portico.capabilities.prompting.prompts.planning import HistoryMessage, PlannableTool, ToolSummary
from portico.capabilities.tools.arguments import plan_violations
from portico.capabilities.tools.planner_function import PlannerFunction, PlanningTask
from portico.capabilities.tools.step_function import StepFunction
from portico.domain.contract.messages import Message
from portico.domain.contract.request import PlanStep
from portico.domain.failures import OrchestrationFailure
from portico.domain.journal.outcomes import Outcome, Plan, PlanningInputs, Refused
from portico.domain.plan.parsed_plan import parse_plan
from portico.domain.plan.plan import plan_refused
from portico.domain.plan.steps import StepType
from portico.domain.raised_exception import CodeKind, RaisedException, RecordedException
from portico.domain.value import replace, value
from portico.orchestration.execution.context import RunContext, caller_of, report_exception
from portico.orchestration.execution.environment import Environment
from portico.orchestration.planning.plan_check import PlanRules, module_types_of, plannable_tools_of
from portico.ports.current_caller import acting_for


@value
class Task:
    """The last user message, or the last message if there is none, what was said before it, and the tools."""

    request: str
    history: tuple[HistoryMessage, ...]
    tools: tuple[PlannableTool, ...]

    @classmethod
    def of(cls, conversation: Sequence[Message], inputs: PlanningInputs) -> "Task":
        """Return the task of a conversation with at least one message."""
        asked = next((message for message in reversed(conversation) if message.role == "user"), conversation[-1])
        others = (message for message in conversation if message is not asked and message.text)
        return cls(
            asked.text,
            tuple(HistoryMessage(role=other.role, text=other.text) for other in others),
            tuple(PlannableTool.model_validate(tool) for tool in inputs.tools),
        )

    @property
    def tool_summaries(self) -> tuple[ToolSummary, ...]:
        """The tools without their parameters."""
        return tuple(ToolSummary(name=tool.name, description=tool.description) for tool in self.tools)

    @property
    def planning_fields(self) -> Mapping[str, Any]:
        """The fields that the inputs of all prompts for plans share."""
        return {"request": self.request, "history": self.history, "tools": self.tools}


async def planning_inputs(
    context: RunContext,
    messages: Sequence[Message] = (),
    static_plan: Sequence[PlanStep] | None = None,
    planner: PlannerFunction | None = None,
) -> Outcome:
    """Return the tools that a plan may call, the step types of modules, and these messages, with the plan of the
    planner, if there is one, all recorded; or the static plan. A planner that fails is refused.
    """

    async def find(environment: Environment) -> Outcome:
        if static_plan is not None:
            return Plan(tuple(static_plan), "static", "")
        tools = environment.tool_registry.definitions(plannable_tools_of(context, environment))
        described = (
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools
        )
        functions = environment.tool_registry.step_functions
        types = [_described(functions[name]) for name in module_types_of(context, environment)]
        retrieval = environment.memory is not None and _names_retrieval(context)
        inputs = PlanningInputs(tuple(described), tuple(messages), tuple(types), retrieval=retrieval)
        return inputs if planner is None else await _planned(context, environment, inputs, planner)

    return (await context.record_value(find, is_instant=planner is None))[0]


def _described(function: StepFunction) -> Mapping[str, Any]:
    """Return a step type of a module as it is recorded, with what a planner reads about it."""
    parameters = dict(function.definition().parameters)
    return {"name": function.step_type, "description": function.planner_text, "parameters": parameters}


async def _planned(
    context: RunContext, environment: Environment, inputs: PlanningInputs, planner: PlannerFunction
) -> PlanningInputs | Refused:
    """Return the inputs with the plan that the planner makes of them, or its refusal."""
    rules, messages = PlanRules.of(context, inputs), inputs.history or tuple(context.request.messages)
    task = PlanningTask(
        request=Task.of(messages, inputs).request,
        messages=messages,
        tools=inputs.tools,
        step_types=rules.step_types,
        max_steps=rules.policy.max_steps,
        require_linear=rules.policy.require_linear,
    )
    raised: list[RecordedException] = []

    def on_exception(error: BaseException | RaisedException) -> None:
        raised.append(RecordedException.of(error))
        report_exception(context, CodeKind.PLANNER, planner.name, error)

    try:
        with acting_for(caller_of(context)):
            steps = await planner.plan(task, environment.tool_registry.threads, on_exception)
    except OrchestrationFailure as refusal:
        return replace(Refused.by(refusal), exception=raised[0] if raised else None)
    violations = list(plan_violations(parse_plan(steps), environment.tool_registry))
    if violations:
        return Refused.by(plan_refused(violations))
    return replace(inputs, plan=Plan(tuple(steps), planner.name, ""))


def _names_retrieval(context: RunContext) -> bool:
    """Return True if the policy names the type `retrieve`; a model plans such steps only on demand."""
    policy = None if context.request.plan is None else context.request.plan.policy
    return policy is not None and StepType.RETRIEVE in (policy.allowed_step_types or ())
