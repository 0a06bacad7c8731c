"""Flows whose functions have wrong signatures; every line that ends in a mark must be an error of the type checker."""

from pydantic import BaseModel

from portico.orchestration.flow import AgentConfig, Context, FlowGraph, FlowRuntime


class A(BaseModel):
    """A state."""


class B(BaseModel):
    """A state."""


class C(BaseModel):
    """A state."""


async def good(a: A, context: Context) -> B:
    return B()


async def no_model(a: A, context: Context) -> str:
    return ""


async def no_context(a: A) -> B:
    return B()


def not_async(a: A, context: Context) -> B:
    return B()


def single(a: A, context: Context) -> tuple[B]:
    return (B(),)


def pair(a: A, context: Context) -> tuple[B, C]:
    return B(), C()


def no_tuple(a: A, context: Context) -> B:
    return B()


def either(a: A, context: Context) -> B | C:
    return B()


def maybe(a: A, context: Context) -> B | None:
    return B()


def join(a: A, b: B, context: Context) -> C:
    return C()


FlowGraph.builder(A, B).work(good)
FlowGraph.builder(A, B).work(no_model)  # wrong
FlowGraph.builder(A, B).work(no_context)  # wrong
FlowGraph.builder(A, B).work(not_async)  # wrong
FlowGraph.builder(A, B).fork(pair)
FlowGraph.builder(A, B).fork(single)  # wrong
FlowGraph.builder(A, B).fork(no_tuple)  # wrong
FlowGraph.builder(A, B).either(either)
FlowGraph.builder(A, B).either(maybe)  # wrong
FlowGraph.builder(A, B).join(join)
FlowGraph.builder(A, B).join(either)  # wrong
FlowGraph.builder(A, str)  # wrong
FlowGraph.builder(A, B).agent(A, B, AgentConfig("", "model"))
FlowGraph.builder(A, B).agent(A, str, AgentConfig("", "model"))  # wrong
FlowGraph.builder(A, B).agent(A, B, AgentConfig("", 3))  # wrong
FlowGraph.builder(A, B).flow(good)  # wrong
FlowRuntime(FlowGraph.builder(A, B).build(), A())
FlowRuntime(FlowGraph.builder(A, B).build(), B())  # wrong
