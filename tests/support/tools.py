"""A tool whose behaviour a test defines."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from portico.domain.contract.messages import ToolCall
from portico.domain.tools import Availability, SideEffects, ToolDefinition, ToolInfo
from portico.ports.tool import ToolContext

ToolBody = Callable[[Mapping[str, Any], ToolContext], Awaitable[str]]
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


async def _return_done(_arguments: Mapping[str, Any], _context: ToolContext) -> str:
    return "done"


class FakeTool:
    """Implementation of `Tool` that runs `body` and counts its runs; it is unavailable if there is a reason."""

    def __init__(
        self,
        name: str = "act",
        body: ToolBody = _return_done,
        *,
        idempotent: bool = True,
        timeout: float | None = None,
        parameters: Mapping[str, Any] = ANY_OBJECT,
        side_effects: SideEffects = SideEffects.READ,
    ) -> None:
        self._info = ToolInfo(name, "python", "Acts.", side_effects, idempotent, (), timeout)
        self._definition = ToolDefinition(name, "Acts.", parameters)
        self._body = body
        self.unavailable_reason = ""
        self.run_count = 0

    def set_identity(self, identity: str) -> None:
        self._info = replace(self._info, identity=identity)

    def info(self) -> ToolInfo:
        return self._info

    def definition(self) -> ToolDefinition:
        return self._definition

    def available(self) -> Availability:
        return Availability(not self.unavailable_reason, self.unavailable_reason)

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.run_count += 1
        return await self._body(arguments, context)


def tool_call(name: str = "act", **arguments: Any) -> ToolCall:
    return ToolCall(id="call_1", name=name, arguments=arguments)
