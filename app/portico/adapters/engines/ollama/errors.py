"""Errors of Ollama, which are English sentences without codes."""

from typing import Any, Final

import orjson

from portico.adapters.engines.wire.faults import reason_by_status, reported_error
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BY_WORDING: Final = (
    ("context length", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("context size", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("usage limit", AttemptFailureReason.QUOTA),
    ("requires a subscription", AttemptFailureReason.QUOTA),
    ("try pulling it", AttemptFailureReason.MODEL_MISSING),
    ("unauthorized", AttemptFailureReason.CREDENTIALS),
    ("maximum pending requests", AttemptFailureReason.OVERLOADED),
    ("overloaded", AttemptFailureReason.OVERLOADED),
    ("system memory", AttemptFailureReason.OVERLOADED),
    ("out of memory", AttemptFailureReason.OVERLOADED),
)
UNKNOWN_STATUS: Final = 500


def error_of(body: bytes) -> Any:
    """Return the error in a reply's body; None without one."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return reply.get("error") if isinstance(reply, dict) else None


def reported_fault(error: Any, status: int = UNKNOWN_STATUS) -> EngineError:
    """Return the fault of an error that was reported in place of a reply or within one."""
    return reported_error(reason_of(status, error))


def reason_of(status: int, error: Any) -> AttemptFailureReason:
    """Return the reason of a failure."""
    message = error.get("message") if isinstance(error, dict) else error
    wording = message.lower() if isinstance(message, str) else ""
    return next((reason for words, reason in BY_WORDING if words in wording), reason_by_status(status))
