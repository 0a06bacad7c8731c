"""Errors of an Ollama server and of its cloud."""

import json
from typing import Any

import pytest

from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

DIALECT = OllamaDialect()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (302, AttemptFailureReason.UNREACHABLE),
        (400, AttemptFailureReason.REFUSED),
        (401, AttemptFailureReason.CREDENTIALS),
        (403, AttemptFailureReason.CREDENTIALS),
        (404, AttemptFailureReason.MODEL_MISSING),
        (429, AttemptFailureReason.RATE_LIMITED),
        (500, AttemptFailureReason.SERVER_ERROR),
        (502, AttemptFailureReason.SERVER_ERROR),
        (503, AttemptFailureReason.SERVER_ERROR),
        (799, AttemptFailureReason.MALFORMED),
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b"<html>CDN</html>", b"{}", b'{"error": {"a": 1}}', b"[3]", b"\xff", b"[" * 5000]
)
def test_a_status_alone_says_why(status: int, reason: AttemptFailureReason, body: bytes):
    assert DIALECT.failure_reason(status, body) is reason


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (404, "model 'x' not found", AttemptFailureReason.MODEL_MISSING),
        (404, 'model "x" not found, try pulling it first', AttemptFailureReason.MODEL_MISSING),
        (400, "model is required", AttemptFailureReason.REFUSED),
        (400, "registry.ollama.ai/library/x does not support tools", AttemptFailureReason.REFUSED),
        (400, '"x" does not support thinking', AttemptFailureReason.REFUSED),
        (503, "server busy, please try again.  maximum pending requests exceeded", AttemptFailureReason.OVERLOADED),
        (503, "Server overloaded, please retry shortly (ref: 1)", AttemptFailureReason.OVERLOADED),
        (
            500,
            "model requires more system memory (9.1 GiB) than is available (4.2 GiB)",
            AttemptFailureReason.OVERLOADED,
        ),
        (500, "cudaMalloc failed: out of memory", AttemptFailureReason.OVERLOADED),
        (500, "an error was encountered while running the model: unexpected EOF", AttemptFailureReason.SERVER_ERROR),
        (429, "you've reached your hourly usage limit, please wait or upgrade to continue", AttemptFailureReason.QUOTA),
        (429, "too many concurrent requests", AttemptFailureReason.RATE_LIMITED),
        (
            403,
            "this model requires a subscription, upgrade for access: https://ollama.com/upgrade",
            AttemptFailureReason.QUOTA,
        ),
        (401, "unauthorized", AttemptFailureReason.CREDENTIALS),
    ],
)
def test_the_wording_says_it_better(status: int, error: str, reason: AttemptFailureReason):
    assert DIALECT.failure_reason(status, json.dumps({"error": error}).encode()) is reason


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "the input length exceeds the context length"),
        (400, "the prompt is longer than the context length currently available to the model; shorten the prompt"),
        (400, '{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (4 tokens)"}}'),
        (500, "input length (9 tokens) exceeds the model's maximum context length (4 tokens)"),
    ],
)
def test_a_context_overflow_is_distinct_from_other_refusals(status: int, error: str):
    assert (
        DIALECT.failure_reason(status, json.dumps({"error": error}).encode()) is AttemptFailureReason.CONTEXT_EXCEEDED
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": "an error was encountered while running the model"}, AttemptFailureReason.SERVER_ERROR),
        ({"error": "the input length exceeds the context length"}, AttemptFailureReason.CONTEXT_EXCEEDED),
        ({"error": "unauthorized", "signin_url": "https://ollama.com/connect"}, AttemptFailureReason.CREDENTIALS),
        (
            {"error": "slow down", "StatusCode": 429, "Status": "429 Too Many Requests"},
            AttemptFailureReason.RATE_LIMITED,
        ),
        ({"error": "odd", "StatusCode": "429"}, AttemptFailureReason.SERVER_ERROR),
        ({"error": {"message": "odd"}}, AttemptFailureReason.SERVER_ERROR),
        ({"error": True, "done": True}, AttemptFailureReason.SERVER_ERROR),
    ],
)
def test_an_error_within_a_reply_is_no_reply_and_is_not_repeated(body: Any, reason: AttemptFailureReason):
    for decode in (DIALECT.decode, DIALECT.decode_chunk):
        with pytest.raises(EngineError) as caught:
            decode(json.dumps(body).encode())
        assert caught.value.reason is reason
        assert str(body["error"]) not in caught.value.message
