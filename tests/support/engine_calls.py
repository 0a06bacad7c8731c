"""Calls of an engine in a test, and the progress that it publishes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile


@dataclass
class RecordedProgress:
    """Implements `Progress` by recording everything."""

    texts: list[str] = field(default_factory=list)
    reasonings: list[str] = field(default_factory=list)
    usages: list[TokenUsage] = field(default_factory=list)

    def text(self, piece: str) -> None:
        self.texts.append(piece)

    def reasoning(self, piece: str) -> None:
        self.reasonings.append(piece)

    def usage(self, usage: TokenUsage) -> None:
        self.usages.append(usage)


def profile(scheme: str, model: str = "m-1") -> EngineProfile:
    return EngineProfile("primary", model, scheme, 128_000, 4096, frozenset())


def engine_call(
    *messages: Message | str, tools: Sequence[ToolDefinition] = (), hints: dict[str, Any] | None = None
) -> EngineCall:
    """Return a call; texts are user messages."""
    said = [Message(role="user", content=each) if isinstance(each, str) else each for each in messages]
    return EngineCall(said, tools, ExecutionHints.model_validate(hints or {}))


def tool_round(name: str, result: str, arguments: dict[str, Any] | None = None) -> tuple[Message, Message]:
    """Return a tool call and its result as messages."""
    call = ToolCall(id="call_1", name=name, arguments=arguments or {})
    return (
        Message(role="assistant", content="", tool_calls=[call]),
        Message(role="tool", content=result, tool_call_id="call_1", name=name),
    )


def definition(name: str, description: str, properties: dict[str, Any], required: Sequence[str] = ()) -> ToolDefinition:
    """Return the definition of a tool that does not exist."""
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolDefinition(name, description, parameters)
