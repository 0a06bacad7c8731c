"""Errors of Bedrock, by wording, type and status, in this order.

The wording comes first, since a full context and an unknown model are reported as invalid requests, and a model that
the account has not asked for as a refused permission. The type of an error that came with a failure status stands in a
header and follows from the status; within a stream there is only the type.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.wire.faults import reason_by_status, reported_error
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BY_WORDING: Final = (
    ("input is too long", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("prompt is too long", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("too many input tokens", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("too many tokens in", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("exceed context limit", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("maximum context length", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("maximum number of input tokens", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("tokens per day", AttemptFailureReason.QUOTA),
    ("model identifier is invalid", AttemptFailureReason.MODEL_MISSING),
    ("access to the model", AttemptFailureReason.MODEL_MISSING),
    ("on-demand throughput isn", AttemptFailureReason.MODEL_MISSING),
    ("model is not ready", AttemptFailureReason.OVERLOADED),
)
BY_TYPE: Final[Mapping[str, AttemptFailureReason]] = MappingProxyType(
    {
        "accessdenied": AttemptFailureReason.CREDENTIALS,
        "expiredtoken": AttemptFailureReason.CREDENTIALS,
        "unrecognizedclient": AttemptFailureReason.CREDENTIALS,
        "internalserver": AttemptFailureReason.SERVER_ERROR,
        "modelerror": AttemptFailureReason.SERVER_ERROR,
        "modelstreamerror": AttemptFailureReason.SERVER_ERROR,
        "modelnotready": AttemptFailureReason.OVERLOADED,
        "modeltimeout": AttemptFailureReason.TIMED_OUT,
        "resourcenotfound": AttemptFailureReason.MODEL_MISSING,
        "servicequotaexceeded": AttemptFailureReason.QUOTA,
        "serviceunavailable": AttemptFailureReason.OVERLOADED,
        "throttling": AttemptFailureReason.RATE_LIMITED,
        "validation": AttemptFailureReason.REFUSED,
    }
)
"""By the type of the error in lower case, without namespace and the ending `Exception`."""
BY_STATUS: Final[Mapping[int, AttemptFailureReason]] = MappingProxyType(
    {424: AttemptFailureReason.SERVER_ERROR, 503: AttemptFailureReason.OVERLOADED}
)
"""Statuses that Bedrock gives a meaning of its own: an error of the model, and too little capacity."""
UNKNOWN_STATUS: Final = 500


def error_of(body: bytes) -> Any:
    """Return the error that a body is; None for any other body."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def reason_of(status: int, error: Any) -> AttemptFailureReason:
    """Return the reason of a failure."""
    fields = error if isinstance(error, dict) else {}
    wording = next((str(fields[name]) for name in ("message", "Message") if fields.get(name)), "").lower()
    by_wording = next((reason for words, reason in BY_WORDING if words in wording), None)
    kind = str(fields.get("type") or fields.get("__type") or "").rpartition("#")[2].lower()
    return (
        by_wording or BY_TYPE.get(kind.removesuffix("exception")) or BY_STATUS.get(status) or reason_by_status(status)
    )


def reported_fault(error: Any) -> EngineError:
    """Return the fault of an error that was reported within a stream."""
    return reported_error(reason_of(UNKNOWN_STATUS, error))
