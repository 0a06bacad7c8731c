"""Modules of a deployment whose every function raises, with a text that quotes what it was given."""

from typing import Any

from pydantic import BaseModel

from portico import Context, FlowGraph, PathEscape, PlanningTask, SideEffects, flow, planner, rule, step, tool

SECRET = "sk-proj-abcdefghijklmnop123456"
"""A text that a redaction finds."""
TEXT = f"amount-canary {SECRET} " + "x" * 400


class Order(BaseModel):
    """An order of a shop."""

    number: int


class Receipt(BaseModel):
    """A receipt."""

    number: int


@tool(side_effects=SideEffects.NONE, idempotent=False)
async def look_up(order: str) -> str:
    """Look up an order."""
    if order == "path":
        raise PathEscape("amount-canary")
    raise KeyError(TEXT)


@step(side_effects=SideEffects.NONE, idempotent=False)
def find_order(order: str) -> str:
    """Find an order."""
    raise KeyError(TEXT)


@rule
def has_amount(answer: Any, options: Any) -> str | None:
    """Reject every answer."""
    raise KeyError(TEXT)


@planner
def by_amount(task: PlanningTask) -> Any:
    """Plan nothing."""
    raise KeyError(TEXT)


async def charge(order: Order, context: Context) -> Receipt:
    """Charge an order."""
    raise KeyError(TEXT)


@flow("pay")
def pay() -> FlowGraph[Order, Receipt]:
    """Return a flow of one node."""
    return FlowGraph.builder(Order, Receipt).work(charge).build()
