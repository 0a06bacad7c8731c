"""Call of a model, its reply, and the meaning of a failed attempt, independent of the provider's dialect."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from portico.domain.contract.messages import Message, ModelMessage, ToolCall
from portico.domain.contract.request import ExecutionHints
from portico.domain.contract.response import TokenUsage
from portico.domain.failures import Code
from portico.domain.tools import ToolDefinition
from portico.domain.value import value


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
    OVER_LIMIT = "over_limit"
    LIMIT_UNKNOWN = "limit_unknown"
    LIMITED = "limited"
    KEPT_REFUSED = "kept_refused"


class FailureAction(StrEnum):
    """The consequence of a failed attempt."""

    RETRY = "retry"
    RETRY_IMMEDIATELY = "retry_at_once"
    NEXT_PROVIDER = "leave"
    FATAL = "fatal"


@value
class FailureRule:
    """The meaning of one reason: `counts_as_failure` for the breaker, `opens_breaker` at once."""

    action: FailureAction
    code: Code
    condition: str | None = None
    counts_as_failure: bool = True
    opens_breaker: bool = False


_H, _C, _R = FailureAction, Code, AttemptFailureReason
# fmt: off
RULES: Mapping[AttemptFailureReason, FailureRule] = MappingProxyType({
    _R.RATE_LIMITED:     FailureRule(_H.RETRY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.OVERLOADED:       FailureRule(_H.RETRY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.SERVER_ERROR:     FailureRule(_H.RETRY, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.BROKEN:           FailureRule(_H.RETRY, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.MALFORMED:        FailureRule(_H.RETRY, _C.INFERENCE_MALFORMED_RESPONSE),
    _R.TIMED_OUT:        FailureRule(_H.RETRY_IMMEDIATELY, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.UNREACHABLE:      FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.TLS:              FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_ENGINE_ERROR, "transport"),
    _R.CREDENTIALS:      FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_ENGINE_ERROR, "refused"),
    _R.QUOTA:            FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE, opens_breaker=True),
    _R.MODEL_MISSING:    FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE),
    _R.BREAKER_OPEN:     FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE, counts_as_failure=False),
    _R.CONTEXT_EXCEEDED: FailureRule(_H.FATAL, _C.INFERENCE_CONTEXT_EXCEEDED, counts_as_failure=False),
    _R.REFUSED:          FailureRule(_H.FATAL, _C.INFERENCE_ENGINE_ERROR, "refused", counts_as_failure=False),
    _R.CONTENT_FILTERED: FailureRule(_H.FATAL, _C.INFERENCE_CONTENT_FILTERED, counts_as_failure=False),
    _R.OVER_BUDGET:      FailureRule(_H.FATAL, _C.ORCHESTRATION_BUDGET_EXCEEDED, counts_as_failure=False),
    _R.OVER_LIMIT:       FailureRule(_H.FATAL, _C.REQUEST_RATE_LIMITED, counts_as_failure=False),
    _R.LIMIT_UNKNOWN:    FailureRule(_H.FATAL, _C.STORAGE_UNAVAILABLE, counts_as_failure=False),
    _R.LIMITED:          FailureRule(_H.NEXT_PROVIDER, _C.INFERENCE_MODEL_UNAVAILABLE, counts_as_failure=False),
    _R.KEPT_REFUSED:     FailureRule(_H.RETRY_IMMEDIATELY, _C.INFERENCE_ENGINE_ERROR, "refused", False),
})
# fmt: on
CAUSES = (_R.CONTEXT_EXCEEDED, _R.CONTENT_FILTERED)
"""Reasons for which a route may name other engines: those of a request that another model may answer."""
UNSENT = frozenset({_R.BREAKER_OPEN, _R.OVER_BUDGET, _R.OVER_LIMIT, _R.LIMIT_UNKNOWN, _R.LIMITED})
"""Reasons of attempts that ended before anything was sent."""


@value(slots=False)
class ResponseFormat:
    """Required format of an answer: a JSON Schema 2020-12, a GBNF grammar, or both."""

    schema: Mapping[str, Any] | None = None
    grammar: str | None = None


NO_RESPONSE_FORMAT = ResponseFormat()


@value(slots=False)
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

    def message(self, provider: str, account: str | None = None) -> Message:
        """Return the answer as a message for the next inference; an `account` alone can read what is kept."""
        fields = {"role": "assistant", "content": self.text, "tool_calls": list(self.tool_calls) or None}
        if not self.kept:
            return Message(**fields)
        return ModelMessage(**fields, provider=provider, account=account, kept=list(self.kept))


@value(slots=False)
class EngineCall:
    """Input of an engine: a whole conversation, the offered tools, and the hints.

    At most one of `schema` (JSON Schema) and `grammar` (GBNF) is set, and only for an engine that enforces it itself.
    `traceparent` is the trace context of the attempt, for an engine whose provider is given it [W3C Trace Context].
    `cache_key` names the prefix of the conversation that the provider is asked to cache; None if it is to cache none.
    With `shows_reasoning` the reasoning is shown, so the provider is asked for it where it only answers with
    it then. With `is_limited` the `max_tokens` of the hints are a limit of everything that is written, thoughts too.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolDefinition]
    hints: ExecutionHints
    schema: Mapping[str, Any] | None = None
    grammar: str | None = None
    traceparent: str | None = None
    cache_key: str | None = None
    shows_reasoning: bool = False
    is_limited: bool = False
