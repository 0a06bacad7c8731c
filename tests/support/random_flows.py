"""Flows whose nodes act on the world, so that a test sees what ran twice, and the requests that run them."""

from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from pydantic import BaseModel

from portico.domain.contract.request import SystemRequest
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.flow import AgentConfig, Context, FlowGraph, flow
from portico.orchestration.flow.flow_loop import flow_pattern
from portico.orchestration.flow.served_flow import ServedFlow
from tests.support import example_flows as examples
from tests.support.chaos import TOOLS, ToolActions

ROUNDS = 2


class Begin(BaseModel):
    round: int = 1


class Letter(BaseModel):
    round: int


class Question(BaseModel):
    round: int


class Sent(BaseModel):
    round: int


class Size(BaseModel):
    size: Literal["small", "large"]


class Met(BaseModel):
    round: int
    size: str


class Again(BaseModel):
    round: int


class Task(BaseModel):
    size: str


class Final(BaseModel):
    size: Literal["small", "large"]


def divide(begin: Begin, context: Context) -> tuple[Letter, Question]:
    return Letter(round=begin.round), Question(round=begin.round)


async def send(letter: Letter, context: Context) -> Sent:
    context.require(ToolActions).performed.append(("write", f"letter-{letter.round}"))
    return Sent(round=letter.round)


def meet(sent: Sent, size: Size, context: Context) -> Met:
    return Met(round=sent.round, size=size.size)


def judge(met: Met, context: Context) -> Again | Task:
    return Again(round=met.round) if met.round < ROUNDS else Task(size=met.size)


async def begin_again(again: Again, context: Context) -> Begin:
    context.require(ToolActions).performed.append(("look", f"round-{again.round}"))
    return Begin(round=again.round + 1)


@flow("busy")
def busy() -> FlowGraph[Begin, Final]:
    """Return a flow with all kinds of nodes: branches that act and ask a model at once, twice, then an agent."""
    return (
        FlowGraph.builder(Begin, Final)
        .fork(divide)
        .work(send, idempotent=False)
        .agent(Question, Size, AgentConfig("Small or large?", "default"))
        .join(meet)
        .either(judge)
        .work(begin_again)
        .agent(Task, Final, AgentConfig("Do it.", "default").with_tools(TOOLS))
        .build()
    )


INPUTS: Mapping[Any, Any] = {
    busy: {},
    examples.linear: {"text": "a b"},
    examples.split_and_merge: {"text": "a bb"},
    examples.approval: {"number": "7", "amount": 500},
    examples.nested: {"text": "7", "amount": 50},
    examples.debate: {"claim": "c"},
    examples.summarise: {"topic": "sea"},
}
"""The flows and their inputs."""


def acting_pattern(actions: ToolActions) -> Pattern:
    """Return the pattern of the flows, whose nodes add to these actions."""
    context = Context(dependencies=(actions,))
    return flow_pattern({each.name: ServedFlow(each(), context) for each in INPUTS})


def acting_flow_request(dice: Random) -> SystemRequest:
    """Return a request for one of the flows, half of the time for the busy one."""
    chosen = dice.choice([*INPUTS, *[busy] * (len(INPUTS) - 2)])
    return SystemRequest.model_validate({"mode": "flow", "flow": {"name": chosen.name, "input": INPUTS[chosen]}})
