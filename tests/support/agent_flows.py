"""Flows whose nodes are agents of the configuration, or call them."""

from pydantic import BaseModel

from portico import AgentConfig, FlowGraph, flow


class Task(BaseModel):
    task: str


class Answer(BaseModel):
    answer: str


@flow("counted")
def counted() -> FlowGraph[Task, Answer]:
    """Let the configured agent `counter` do a task."""
    return FlowGraph.builder(Task, Answer).agent(Task, Answer, AgentConfig.named("counter")).build()


@flow("delegated")
def delegated() -> FlowGraph[Task, Answer]:
    """Let an agent of the flow call the configured agent `counter`."""
    config = AgentConfig("Delegate.", "default").with_tools(["agent:counter"])
    return FlowGraph.builder(Task, Answer).agent(Task, Answer, config).build()
