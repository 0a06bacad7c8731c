"""A tool with side effects that is not idempotent."""

from typing import Any

from portico.capabilities.tools.definition import tool
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolError
from tests.support.virtual_time import VirtualClock

SEND = {"tool_calls": [{"name": "send", "arguments": {"to": "bob"}}]}


def sending(acts: list[str], *, fails: bool = False, seconds: float = 0, clock: VirtualClock | None = None) -> Any:
    @tool(side_effects=SideEffects.EXTERNAL, idempotent=False, timeout=5)
    async def send(to: str) -> str:
        """Sends a message."""
        acts.append(to)
        if clock is not None:
            await clock.sleep(seconds)
        if fails:
            raise ToolError("no line")
        return f"sent to {to}"

    return send
