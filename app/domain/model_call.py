"""Call of a model and its reply, in no dialect of a provider."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.domain.contract.messages import Message, ModelMessage, ToolCall
from app.domain.contract.request import ExecutionHints
from app.domain.contract.response import TokenUsage
from app.domain.tools import ToolDefinition


class AttemptFailureReason(StrEnum):
    """Why an attempt on a provider failed; every foreign error is translated into one of these."""

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
    """The form that an answer must have: a JSON Schema 2020-12, a GBNF grammar, or both."""

    schema: Mapping[str, Any] | None = None
    grammar: str | None = None


NO_RESPONSE_FORMAT = ResponseFormat()


@dataclass(frozen=True)
class Reply:
    """A whole answer of a model, in no provider's dialect.

    `finish_reason` is stop, tool or length; `raw_finish` is the provider's own word where it is none of these. `kept`
    is what only this provider can read and wants to be told again. `withheld` names, by dotted name, what the call held
    and the request did not, since the provider or its model would have refused it.
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

    def message(self, provider: str) -> Message:
        """The answer of that provider as the next inference is told it."""
        said = {"role": "assistant", "content": self.text, "tool_calls": list(self.tool_calls) or None}
        return ModelMessage(**said, provider=provider, kept=list(self.kept)) if self.kept else Message(**said)


@dataclass(frozen=True)
class EngineCall:
    """What an engine is asked: a whole conversation, the tools offered, the hints.

    At most one of `schema` (JSON Schema) and `grammar` (GBNF) is set, and only for an engine that keeps it by itself.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    hints: ExecutionHints
    schema: Mapping[str, Any] | None = None
    grammar: str | None = None
