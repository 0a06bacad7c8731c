"""Tool port: tools, their context and errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from app.domain.ids import IdempotencyKey, ToolCallId
from app.domain.tools import Availability, ToolDefinition, ToolInfo
from app.ports.runtime import Clock, Entropy


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool may know. `seconds_left` is the time it has; `entropy` and `clock` are the only ones.

    `idempotency_key` is the same for every attempt at this call, whichever process makes it, and for no other call.
    """

    tool_call_id: ToolCallId
    seconds_left: float
    clock: Clock
    entropy: Entropy
    idempotency_key: IdempotencyKey


class ToolError(Exception):
    """A tool says that it failed; the text is for the model."""

    @staticmethod
    def suspend(value: JsonValue) -> "ToolSuspended":
        """What a tool raises to ask somebody outside; the answer will be its result, and it is not run again."""
        return ToolSuspended(value)


class ToolSuspended(ToolError):  # noqa: N818 - a question is no error; the executor tells it apart
    """A tool asks somebody outside before it has a result."""

    def __init__(self, value: JsonValue) -> None:
        super().__init__("it waits for an answer")
        self.value = value


class Tool(Protocol):
    """The four methods of the tool seed."""

    def info(self) -> ToolInfo: ...

    def definition(self) -> ToolDefinition: ...

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """Runs with arguments that fit the definition. Raises: ToolError for the model to read."""
        ...

    def available(self) -> Availability: ...
