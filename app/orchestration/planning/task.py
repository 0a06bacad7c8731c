"""Task: what is to be planned and assessed, as the prompts of planning are given it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.capabilities.prompting.prompts.planning import HistoryMessage, PlannableTool, ToolSummary
from app.domain.contract.messages import Message
from app.domain.contract.request import PlanStep
from app.domain.journal.outcomes import Outcome, Plan, PlanningInputs
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.environment import Environment
from app.orchestration.planning.plan_check import plannable_tools_of


@dataclass(frozen=True, slots=True)
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
    context: RunContext, messages: Sequence[Message] = (), static_plan: Sequence[PlanStep] | None = None
) -> Outcome:
    """Return the tools that a plan may call and these messages, recorded; or the static plan."""

    async def find(environment: Environment) -> Outcome:
        if static_plan is not None:
            return Plan(tuple(static_plan), "static", "")
        tools = environment.tool_registry.definitions(plannable_tools_of(context, environment))
        described = (
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in tools
        )
        return PlanningInputs(tuple(described), tuple(messages))

    return (await context.record_value(find))[0]
