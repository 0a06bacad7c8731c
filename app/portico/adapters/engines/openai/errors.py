"""Errors of OpenAI and of the servers that follow it, by code, then wording, then status."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from portico.adapters.engines.wire.faults import reason_by_status, reported_error
from portico.adapters.engines.wire.json_fields import parse_object
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

BY_CODE: Final[Mapping[str, AttemptFailureReason]] = {
    "context_length_exceeded": AttemptFailureReason.CONTEXT_EXCEEDED,
    "exceed_context_size_error": AttemptFailureReason.CONTEXT_EXCEEDED,
    "string_above_max_length": AttemptFailureReason.CONTEXT_EXCEEDED,
    "insufficient_quota": AttemptFailureReason.QUOTA,
    "billing_hard_limit_reached": AttemptFailureReason.QUOTA,
    "billing_not_active": AttemptFailureReason.QUOTA,
    "enforced_spend_limit_reached": AttemptFailureReason.QUOTA,
    "invalid_encrypted_content": AttemptFailureReason.KEPT_REFUSED,
    "model_not_found": AttemptFailureReason.MODEL_MISSING,
    "model_decommissioned": AttemptFailureReason.MODEL_MISSING,
    "invalid_model": AttemptFailureReason.MODEL_MISSING,
    "deploymentnotfound": AttemptFailureReason.MODEL_MISSING,
    "invalid_api_key": AttemptFailureReason.CREDENTIALS,
    "authentication_error": AttemptFailureReason.CREDENTIALS,
    "permission_denied": AttemptFailureReason.CREDENTIALS,
    "content_filter": AttemptFailureReason.CONTENT_FILTERED,
    "content_policy_violation": AttemptFailureReason.CONTENT_FILTERED,
    "data_inspection_failed": AttemptFailureReason.CONTENT_FILTERED,
    "moderation_blocked": AttemptFailureReason.CONTENT_FILTERED,
    "image_content_policy_violation": AttemptFailureReason.CONTENT_FILTERED,
    "misalignment_policy_violation": AttemptFailureReason.CONTENT_FILTERED,
    "bio_policy": AttemptFailureReason.CONTENT_FILTERED,
    "cyber_policy": AttemptFailureReason.CONTENT_FILTERED,
    "rate_limit_exceeded": AttemptFailureReason.RATE_LIMITED,
    "rate_limit_error": AttemptFailureReason.RATE_LIMITED,
    "overloaded_error": AttemptFailureReason.OVERLOADED,
    "server_overloaded": AttemptFailureReason.OVERLOADED,
    "server_is_overloaded": AttemptFailureReason.OVERLOADED,
    "slow_down": AttemptFailureReason.OVERLOADED,
}
BY_WORDING: Final = (
    ("context length", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("context size", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("context window", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("maximum model length", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("prompt is too long", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("input is too long", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("input token count", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("reduce the length of the messages", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("max_new_tokens` must be", AttemptFailureReason.CONTEXT_EXCEEDED),
    ("credit balance", AttemptFailureReason.QUOTA),
    ("insufficient balance", AttemptFailureReason.QUOTA),
    ("insufficient credits", AttemptFailureReason.QUOTA),
    ("spend limit", AttemptFailureReason.QUOTA),
    ("spending limit", AttemptFailureReason.QUOTA),
    ("api key", AttemptFailureReason.CREDENTIALS),
    ("content management policy", AttemptFailureReason.CONTENT_FILTERED),
    ("content exists risk", AttemptFailureReason.CONTENT_FILTERED),
    ("violating our usage policy", AttemptFailureReason.CONTENT_FILTERED),
    ("overloaded", AttemptFailureReason.OVERLOADED),
)
INVALID_REQUEST_PREFIXES: Final = ("invalid_", "unsupported_", "image_", "empty_image", "failed_to_download_image")
"""The prefixes of codes and types that blame the request; with status 200 nothing else does."""
STATUS = re.compile(r"[45][0-9][0-9]")
INVALID_REQUEST_STATUS: Final = 400
UNKNOWN_STATUS: Final = 500


def error_of(body: bytes) -> Any:
    """Return the error in a reply's body, of any shape; None without one."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if isinstance(reply, list) and reply:
        reply = reply[0]
    return reply.get("error") or reply if isinstance(reply, dict) else None


def status_of(error: Any) -> int:
    """Return the status of an error that came with status 200; 500 unless the error names another."""
    for key in ("status_code", "code", "error_code"):
        value = error.get(key) if isinstance(error, dict) else None
        if isinstance(value, int | str) and STATUS.fullmatch(str(value)):
            return int(value)
    return (
        INVALID_REQUEST_STATUS
        if any(code.startswith(INVALID_REQUEST_PREFIXES) for code in _codes(error))
        else UNKNOWN_STATUS
    )


def reason_of(status: int, error: Any) -> AttemptFailureReason:
    """Return the reason of a failure."""
    for code in _codes(error):
        if code in BY_CODE:
            return BY_CODE[code]
    wording = _wording(error)
    for words, reason in BY_WORDING:
        if words in wording:
            return reason
    return reason_by_status(status)


def _codes(error: Any) -> Iterator[str]:
    if isinstance(error, dict):
        for key in ("code", "type", "status", "error_code"):
            value = error.get(key)
            if isinstance(value, str):
                yield value.lower()


def _wording(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message.lower() if isinstance(message, str) else ""


def parse_reply(data: bytes) -> dict[str, Any]:
    """Parse the JSON object of a reply or event. Raises: EngineError, also when it reports an error."""
    reply = parse_object(data)
    if reply.get("error"):
        raise reported_fault(reply["error"])
    return reply


def reported_fault(error: Any) -> EngineError:
    """Return the fault of an error that was reported in place of a reply or within one."""
    return reported_error(reason_of(status_of(error), error))
