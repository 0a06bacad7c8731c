"""What the errors of OpenAI and of the servers that follow it mean: by code, then wording, then status."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from app.adapters.engines.statuses import reason_by_status
from app.domain.effects import Reason

BY_CODE: Final[Mapping[str, Reason]] = {
    "context_length_exceeded": Reason.CONTEXT_EXCEEDED,
    "exceed_context_size_error": Reason.CONTEXT_EXCEEDED,
    "string_above_max_length": Reason.CONTEXT_EXCEEDED,
    "insufficient_quota": Reason.QUOTA,
    "billing_hard_limit_reached": Reason.QUOTA,
    "billing_not_active": Reason.QUOTA,
    "enforced_spend_limit_reached": Reason.QUOTA,
    "model_not_found": Reason.MODEL_MISSING,
    "model_decommissioned": Reason.MODEL_MISSING,
    "invalid_model": Reason.MODEL_MISSING,
    "deploymentnotfound": Reason.MODEL_MISSING,
    "invalid_api_key": Reason.CREDENTIALS,
    "authentication_error": Reason.CREDENTIALS,
    "permission_denied": Reason.CREDENTIALS,
    "content_filter": Reason.CONTENT_FILTERED,
    "content_policy_violation": Reason.CONTENT_FILTERED,
    "data_inspection_failed": Reason.CONTENT_FILTERED,
    "moderation_blocked": Reason.CONTENT_FILTERED,
    "image_content_policy_violation": Reason.CONTENT_FILTERED,
    "misalignment_policy_violation": Reason.CONTENT_FILTERED,
    "bio_policy": Reason.CONTENT_FILTERED,
    "cyber_policy": Reason.CONTENT_FILTERED,
    "rate_limit_exceeded": Reason.RATE_LIMITED,
    "rate_limit_error": Reason.RATE_LIMITED,
    "overloaded_error": Reason.OVERLOADED,
    "server_overloaded": Reason.OVERLOADED,
    "server_is_overloaded": Reason.OVERLOADED,
    "slow_down": Reason.OVERLOADED,
}
BY_WORDING: Final = (
    ("context length", Reason.CONTEXT_EXCEEDED),
    ("context size", Reason.CONTEXT_EXCEEDED),
    ("context window", Reason.CONTEXT_EXCEEDED),
    ("maximum model length", Reason.CONTEXT_EXCEEDED),
    ("prompt is too long", Reason.CONTEXT_EXCEEDED),
    ("input is too long", Reason.CONTEXT_EXCEEDED),
    ("input token count", Reason.CONTEXT_EXCEEDED),
    ("reduce the length of the messages", Reason.CONTEXT_EXCEEDED),
    ("max_new_tokens` must be", Reason.CONTEXT_EXCEEDED),
    ("credit balance", Reason.QUOTA),
    ("insufficient balance", Reason.QUOTA),
    ("insufficient credits", Reason.QUOTA),
    ("spend limit", Reason.QUOTA),
    ("spending limit", Reason.QUOTA),
    ("api key", Reason.CREDENTIALS),
    ("content management policy", Reason.CONTENT_FILTERED),
    ("content exists risk", Reason.CONTENT_FILTERED),
    ("violating our usage policy", Reason.CONTENT_FILTERED),
    ("overloaded", Reason.OVERLOADED),
)
REQUEST_AT_FAULT: Final = ("invalid_", "unsupported_", "image_", "empty_image", "failed_to_download_image")
"""How codes and types begin that say so; with status 200 nothing else does."""
STATUS = re.compile(r"[45][0-9][0-9]")
REFUSED: Final = 400
UNNUMBERED: Final = 500


def error_of(body: bytes) -> Any:
    """The error that a reply's body tells, in whatever shape; None where it tells none."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if isinstance(reply, list) and reply:
        reply = reply[0]
    return reply.get("error") or reply if isinstance(reply, dict) else None


def status_of(error: Any) -> int:
    """The status that an error stands for that came with one that is no error; 500 unless the error says more."""
    for key in ("status_code", "code"):
        value = error.get(key) if isinstance(error, dict) else None
        if isinstance(value, int | str) and STATUS.fullmatch(str(value)):
            return int(value)
    return REFUSED if any(code.startswith(REQUEST_AT_FAULT) for code in _codes(error)) else UNNUMBERED


def reason_of(status: int, error: Any) -> Reason:
    """Why the provider did not answer."""
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
        for key in ("code", "type", "status"):
            value = error.get(key)
            if isinstance(value, str):
                yield value.lower()


def _wording(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return message.lower() if isinstance(message, str) else ""
