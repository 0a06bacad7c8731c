"""Progress of an execution, sent to the client that asked for it."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from portico.domain.journal.events import (
    Event,
    ExecutionSuspended,
    InferenceStart,
    LifecycleTransition,
    StepStart,
    StoredEvent,
    ToolStart,
)
from portico.ports.events import Subscription

INTERVAL_SECONDS: Final = 0.1
"""Least time between two messages; the last of those in between wins."""
Report = Callable[[float, str], Awaitable[None]]
"""Sends one message with its number."""


def message_of(event: Event, step_name: str | None) -> str | None:
    """Return what an event tells about the progress; None if nothing."""
    match event:
        case LifecycleTransition():
            return str(event.to_state)
        case InferenceStart():
            return f"inference {event.provider}"
        case ToolStart():
            return f"tool {event.tool_name}"
        case StepStart():
            return f"step {step_name or event.step_type}"
        case ExecutionSuspended():
            return "suspended"
        case _:
            return None


async def report(subscription: Subscription, send: Report) -> None:
    """Send the progress until the events end. No message comes sooner than `INTERVAL_SECONDS` after another."""
    number, latest = 0.0, ""
    while items := await subscription.next():
        for item in items:
            if isinstance(item, StoredEvent):
                latest = message_of(item.event, item.correlation.step_name) or latest
        if latest:
            number += 1
            await send(number, latest)
            latest = ""
            await anyio.sleep(INTERVAL_SECONDS)
