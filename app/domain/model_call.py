"""Call of a model and its reply, independent of the provider's dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.domain.contract.messages import Message, ModelMessage, ToolCall
from app.domain.contract.request import ExecutionHints
from app.domain.contract.response import TokenUsage
from app.domain.tools import ToolDefinition


class AttemptFailureReason(StrEnum):
    """Reason why an attempt on a provider failed. Every provider error is translated into one of these."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    BROKEN = "broken"
    MALFORMED = "malformed"
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    CREDENTIALS = "credentials"
    QUOTA = "quota"
    MODEL_MISSING = "model_missing"
    BREAKER_OPEN = "breaker_open"
    CONTEXT_EXCEEDED = "context_exceeded"
    REFUSED = "refused"
    CONTENT_FILTERED = "content_filtered"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True)
class ResponseFormat:
    """Required format of an answer: a JSON Schema 2020-12, a GBNF grammar, or both."""

    schema: Mapping[str, Any] | None = None
    grammar: str | None = None


NO_RESPONSE_FORMAT = ResponseFormat()


@dataclass(frozen=True)
class Reply:
    """Complete answer of a model, independent of the provider's dialect.

    `finish_reason` is stop, tool or length; `raw_finish` is the provider's own word if it is none of these. `kept`
    holds blocks that only this provider can read and that it needs back, such as signed thoughts. `withheld` names, by
    dotted name, the parts of the call that were not sent because the provider or its model would have refused them.
    `flags` are the reply's warnings in `metadata.flags`.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    raw_finish: str
    usage: TokenUsage
    model: str
    reasoning: str = ""
    kept: tuple[dict[str, Any], ...] = ()
    withheld: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def message(self, provider: str) -> Message:
        """Return the answer as a message for the next inference."""
        fields = {"role": "assistant", "content": self.text, "tool_calls": list(self.tool_calls) or None}
        return ModelMessage(**fields, provider=provider, kept=list(self.kept)) if self.kept else Message(**fields)


@dataclass(frozen=True)
class EngineCall:
    """Input of an engine: a whole conversation, the offered tools, and the hints.

    At most one of `schema` (JSON Schema) and `grammar` (GBNF) is set, and only for an engine that enforces it itself.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    hints: ExecutionHints
    schema: Mapping[str, Any] | None = None
    grammar: str | None = None
