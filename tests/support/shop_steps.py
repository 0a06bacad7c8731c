"""A module of step types and planners as a deployment names it."""

from asyncio import Event
from json import loads
from threading import current_thread, main_thread
from typing import Any

from pydantic import BaseModel

from portico import PlanningTask, SideEffects, ToolContext, ToolError, planner, step


class Order(BaseModel):
    """An order of a shop."""

    number: int
    total: float


charged: list[int] = []
"""The orders that were charged, in the order of the calls."""
never = Event()


@step(side_effects=SideEffects.READ, idempotent=True)
def find_orders(customer: str) -> list[Order]:
    """Find the orders of a customer."""
    if customer == "unknown":
        raise ToolError("there is no such customer")
    return [Order(number=1, total=19.5), Order(number=2, total=300)]


@step(side_effects=SideEffects.NONE, idempotent=True)
async def keep_cheap(orders: list[Order], *, below: float = 100) -> list[Order]:
    """Keep the orders below a price."""
    return [order for order in orders if order.total < below]


@step(side_effects=SideEffects.WRITE, idempotent=False, timeout=5)
async def charge(orders: list[Order], context: ToolContext) -> dict[str, Any]:
    """Charge orders."""
    charged.extend(order.number for order in orders)
    if context.continuation is None and any(order.total < 0 for order in orders):
        await never.wait()
    return {"charged": [order.number for order in orders], "has_key": bool(context.idempotency_key)}


@step(side_effects=SideEffects.EXTERNAL, idempotent=False)
async def send_letter(text: str) -> str:
    """Send a letter."""
    return f"sent {text}"


@step(side_effects=SideEffects.NONE, idempotent=True)
async def confirm(question: str) -> str:
    """Ask a person."""
    raise ToolError.suspend({"question": question})


@step(side_effects=SideEffects.NONE, idempotent=True)
def misbehave(how: str) -> int:
    """Misbehave in one of many ways."""
    match how:
        case "exit":
            raise SystemExit(3)
        case "text":
            return loads('"no number"')  # the wrong type
        case "large":
            return 10**30
        case "thread":
            return int(current_thread() is main_thread())
        case _:
            raise ValueError("sk-canary-4711")


@planner
async def by_rules(task: PlanningTask) -> list[dict[str, Any]]:
    """Plan to keep the cheap orders of the customer that the request names."""
    return [
        {"name": "find", "type": "find_orders", "input": task.request},
        {"name": "cheap", "type": "keep_cheap", "below": 50},
    ]


@planner
def broken(task: PlanningTask) -> Any:
    """Plan what the request says, as Python."""
    plans: dict[str, Any] = {
        "no list": 7,
        "nan": [{"name": "a", "type": "keep_cheap", "below": float("nan")}],
        "no name": [{"type": "infer"}],
        "unknown type": [{"name": "a", "type": "zork"}],
        "bad option": [{"name": "a", "type": "keep_cheap", "below": "much"}],
    }
    return plans[task.request]
