"""Errors of Anthropic's API, as a status and within a reply."""

import json
from typing import Any

import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError


def error(kind: str, message: str = "", code: str | None = None) -> dict[str, Any]:
    details = {"details": {"error_code": code}} if code else {}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (301, AttemptFailureReason.UNREACHABLE),
        (400, AttemptFailureReason.REFUSED),
        (401, AttemptFailureReason.CREDENTIALS),
        (402, AttemptFailureReason.QUOTA),
        (403, AttemptFailureReason.CREDENTIALS),
        (404, AttemptFailureReason.MODEL_MISSING),
        (409, AttemptFailureReason.REFUSED),
        (413, AttemptFailureReason.CONTEXT_EXCEEDED),
        (429, AttemptFailureReason.RATE_LIMITED),
        (500, AttemptFailureReason.SERVER_ERROR),
        (502, AttemptFailureReason.SERVER_ERROR),
        (504, AttemptFailureReason.SERVER_ERROR),
        (529, AttemptFailureReason.OVERLOADED),
        (799, AttemptFailureReason.MALFORMED),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>CDN</html>",
        b"{}",
        b"[]",
        b"\xff",
        b"3",
        b'{"error": "x"}',
        b'{"error": []}',
        b'{"error": {}}',
        b'{"error": {"type": ["x"], "message": 3, "details": "x"}}',
        b'{"error": {"type": "unheard_of_error", "details": {"error_code": {"a": 1}}}}',
    ],
)
def test_a_status_alone_says_why(status: int, reason: AttemptFailureReason, body: bytes):
    assert AnthropicDialect().failure_reason(status, body) is reason


REPORTED = [
    (
        400,
        error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        AttemptFailureReason.CONTEXT_EXCEEDED,
    ),
    (
        400,
        error("invalid_request_error", "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000"),
        AttemptFailureReason.CONTEXT_EXCEEDED,
    ),
    (413, error("request_too_large", "Request exceeds the maximum size"), AttemptFailureReason.CONTEXT_EXCEEDED),
    (
        400,
        error("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
        AttemptFailureReason.QUOTA,
    ),
    (
        400,
        error("invalid_request_error", "You have reached your specified API usage limits."),
        AttemptFailureReason.QUOTA,
    ),
    (
        400,
        error("invalid_request_error", "You have reached your specified workspace API usage limits."),
        AttemptFailureReason.QUOTA,
    ),
    (429, error("rate_limit_error", "x", "enforced_spend_limit_reached"), AttemptFailureReason.QUOTA),
    (429, error("rate_limit_error", "x", "contract_spend_limit_reached"), AttemptFailureReason.QUOTA),
    (
        429,
        error("rate_limit_error", "This organization has reached its monthly spend limit."),
        AttemptFailureReason.QUOTA,
    ),
    (402, error("billing_error", "There is an issue with your billing"), AttemptFailureReason.QUOTA),
    (429, error("rate_limit_error", "This request would exceed your rate limit"), AttemptFailureReason.RATE_LIMITED),
    (429, error("rate_limit_error", "x", "ramp_limit_exceeded"), AttemptFailureReason.RATE_LIMITED),
    (529, error("overloaded_error", "Overloaded"), AttemptFailureReason.OVERLOADED),
    (503, error("overloaded_error", "Overloaded"), AttemptFailureReason.OVERLOADED),
    (401, error("authentication_error", "invalid x-api-key"), AttemptFailureReason.CREDENTIALS),
    (403, error("permission_error", "Your API key does not have permission"), AttemptFailureReason.CREDENTIALS),
    (400, error("invalid_request_error", "This organization has been disabled."), AttemptFailureReason.CREDENTIALS),
    (400, error("invalid_request_error", "x", "organization_on_hold"), AttemptFailureReason.CREDENTIALS),
    (404, error("not_found_error", "model: claude-none"), AttemptFailureReason.MODEL_MISSING),
    (
        400,
        error("invalid_request_error", "Output blocked by content filtering policy"),
        AttemptFailureReason.CONTENT_FILTERED,
    ),
    (400, error("invalid_request_error", "max_tokens: Field required"), AttemptFailureReason.REFUSED),
    (504, error("timeout_error", "The request timed out"), AttemptFailureReason.TIMED_OUT),
    (500, error("api_error", "Internal server error"), AttemptFailureReason.SERVER_ERROR),
]


@pytest.mark.parametrize(("status", "body", "reason"), REPORTED)
def test_a_code_the_wording_or_the_type_says_it_better(status: int, body: Any, reason: AttemptFailureReason):
    assert AnthropicDialect().failure_reason(status, json.dumps(body).encode()) is reason


@pytest.mark.parametrize(("status", "body", "reason"), REPORTED)
def test_an_error_within_a_reply_or_a_stream_says_the_same_in_our_words(
    status: int, body: Any, reason: AttemptFailureReason
):
    for read in (AnthropicDialect().decode, AnthropicDialect().decode_chunk):
        with pytest.raises(EngineError) as caught:
            read(json.dumps(body).encode())
        assert caught.value.reason is reason
        assert body["error"]["message"] not in caught.value.message or body["error"]["message"] == "x"


@pytest.mark.parametrize(
    "body", [b'{"type": "error"}', b'{"type": "error", "error": null}', b'{"error": "overloaded"}']
)
def test_an_error_within_a_reply_that_says_nothing_is_the_servers(body: bytes):
    with pytest.raises(EngineError) as caught:
        AnthropicDialect().decode_chunk(body)
    assert caught.value.reason is AttemptFailureReason.SERVER_ERROR
