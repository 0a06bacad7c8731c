"""Modules of a deployment whose every function says for whom it acts."""

from typing import Any

from pydantic import BaseModel

from portico import (
    AgentConfig,
    Context,
    FlowGraph,
    PlanningTask,
    SideEffects,
    ToolContext,
    current_caller,
    flow,
    planner,
    rule,
    step,
    tool,
)


def who() -> str:
    """Return for whom the code acts that calls this."""
    caller = current_caller()
    return f"{caller.user} by {caller.channel} in {caller.request_id} at {caller.step_name} as {caller.agent}"


class Text(BaseModel):
    """A text."""

    text: str


class Answer(BaseModel):
    """The text of a node."""

    text: str


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def who_on_the_loop() -> str:
    """Say for whom it acts."""
    return who()


@tool(side_effects=SideEffects.NONE, idempotent=True)
def who_on_a_thread() -> str:
    """Say for whom it acts."""
    return who()


@step(side_effects=SideEffects.NONE, idempotent=True)
def who_in_a_step(text: str) -> str:
    """Say for whom it acts."""
    return who()


@rule
def says_who(answer: Any, options: Any) -> str | None:
    """Reject every answer, and say for whom it acts."""
    return who()


@planner
def plans_who(task: PlanningTask) -> Any:
    """Plan one step, whose tool says for whom the planner acts."""
    return [{"name": "a", "type": "tool", "input": {"name": "echo_text", "arguments": {"text": who()}}}]


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def echo_text(text: str) -> str:
    """Return the text."""
    return text


async def node(text: Text, context: Context) -> Answer:
    """Say for whom it acts."""
    return Answer(text=who())


@flow("node")
def node_flow() -> FlowGraph[Text, Answer]:
    """Return a flow of one function."""
    return FlowGraph.builder(Text, Answer).work(node).build()


@tool(side_effects=SideEffects.NONE, idempotent=True)
async def commands_of_flow(context: ToolContext) -> str:
    """Return the commands that the flow may run."""
    return "none" if context.flow is None else ", ".join(sorted(context.flow.commands))


@flow("agent")
def agent_flow() -> FlowGraph[Text, Answer]:
    """Return a flow of one agent."""
    config = AgentConfig("Work.", "default", (commands_of_flow,))
    return FlowGraph.builder(Text, Answer).agent(Text, Answer, config).build()
