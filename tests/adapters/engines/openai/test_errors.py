"""Errors of OpenAI and of the servers that follow it."""

import json
from typing import Any

import pytest

from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.errors import status_of
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.domain.model_call import AttemptFailureReason

CONTENT, MISSING = AttemptFailureReason.CONTENT_FILTERED, AttemptFailureReason.MODEL_MISSING


def error(message: str = "", **members: Any) -> dict[str, Any]:
    return {"error": {"message": message, **members}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (301, AttemptFailureReason.UNREACHABLE),
        (302, AttemptFailureReason.UNREACHABLE),
        (400, AttemptFailureReason.REFUSED),
        (401, AttemptFailureReason.CREDENTIALS),
        (402, AttemptFailureReason.QUOTA),
        (403, AttemptFailureReason.CREDENTIALS),
        (404, AttemptFailureReason.MODEL_MISSING),
        (408, AttemptFailureReason.TIMED_OUT),
        (409, AttemptFailureReason.REFUSED),
        (413, AttemptFailureReason.CONTEXT_EXCEEDED),
        (422, AttemptFailureReason.REFUSED),
        (429, AttemptFailureReason.RATE_LIMITED),
        (500, AttemptFailureReason.SERVER_ERROR),
        (502, AttemptFailureReason.SERVER_ERROR),
        (503, AttemptFailureReason.SERVER_ERROR),
        (504, AttemptFailureReason.SERVER_ERROR),
        (529, AttemptFailureReason.OVERLOADED),
        (799, AttemptFailureReason.MALFORMED),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>CDN</html>", b"{}", b'{"detail": "x"}', b"[]", b"[3]", b"\xff", b"3"])
def test_a_status_alone_says_why(status: int, reason: AttemptFailureReason, body: bytes):
    assert ChatCompletionsDialect().failure_reason(status, body) is reason


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, error("x", code="context_length_exceeded"), AttemptFailureReason.CONTEXT_EXCEEDED),
        (400, error("This model's maximum context length is 8192 tokens."), AttemptFailureReason.CONTEXT_EXCEEDED),
        (400, error("x", type="exceed_context_size_error", n_ctx=4096), AttemptFailureReason.CONTEXT_EXCEEDED),
        (500, error("the request exceeds the available context size"), AttemptFailureReason.CONTEXT_EXCEEDED),
        (
            400,
            {"object": "error", "message": "prompt is longer than the maximum model length of 4"},
            AttemptFailureReason.CONTEXT_EXCEEDED,
        ),
        (400, error("Please reduce the length of the messages or completion."), AttemptFailureReason.CONTEXT_EXCEEDED),
        (
            400,
            [error("The input token count (9) exceeds the maximum", status="INVALID_ARGUMENT")],
            AttemptFailureReason.CONTEXT_EXCEEDED,
        ),
        (
            413,
            error("Request too large on tokens per minute", code="rate_limit_exceeded"),
            AttemptFailureReason.RATE_LIMITED,
        ),
        (429, error("You exceeded your current quota", code="insufficient_quota"), AttemptFailureReason.QUOTA),
        (429, error("x", type="insufficient_quota", code=None), AttemptFailureReason.QUOTA),
        (429, error("x", code="enforced_spend_limit_reached"), AttemptFailureReason.QUOTA),
        (403, error("Your credit balance is too low"), AttemptFailureReason.QUOTA),
        (429, error("Too many", code="rate_limit_exceeded", type="tokens"), AttemptFailureReason.RATE_LIMITED),
        (404, error("The model does not exist", code="model_not_found"), AttemptFailureReason.MODEL_MISSING),
        (403, error("No access", code="model_not_found"), AttemptFailureReason.MODEL_MISSING),
        (
            400,
            {"object": "error", "message": "Invalid model: x", "type": "invalid_model"},
            AttemptFailureReason.MODEL_MISSING,
        ),
        (404, {"error": "model 'x' not found"}, AttemptFailureReason.MODEL_MISSING),
        (400, error("Incorrect API key provided"), AttemptFailureReason.CREDENTIALS),
        (400, error("x", code="content_filter"), AttemptFailureReason.CONTENT_FILTERED),
        (503, error("The model is overloaded", type="server_error"), AttemptFailureReason.OVERLOADED),
        (503, error("x", type="overloaded_error"), AttemptFailureReason.OVERLOADED),
        (400, error("x", code="string_above_max_length"), AttemptFailureReason.CONTEXT_EXCEEDED),
        (400, error("Your prompt was flagged as violating our usage policy", code="invalid_prompt"), CONTENT),
        (400, error("x", code="moderation_blocked", type="image_generation_user_error"), CONTENT),
        (503, error("x", code="server_is_overloaded"), AttemptFailureReason.OVERLOADED),
        (404, error("This model is only supported in v1/responses", type="invalid_request_error"), MISSING),
        (400, error(code={"odd": 1}), AttemptFailureReason.REFUSED),
        (400, {"error": {"message": ["x"]}}, AttemptFailureReason.REFUSED),
    ],
)
def test_a_code_or_the_wording_says_it_better(status: int, body: Any, reason: AttemptFailureReason):
    for dialect in (ChatCompletionsDialect(), ResponsesDialect()):
        assert dialect.failure_reason(status, json.dumps(body).encode()) is reason


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"code": 429}, 429),
        ({"code": "503"}, 503),
        ({"status_code": 400, "code": "x"}, 400),
        ({"code": "invalid_image_format"}, 400),
        ({"type": "invalid_request_error", "code": None}, 400),
        ({"code": "unsupported_parameter"}, 400),
        ({"code": "server_error"}, 500),
        ({"code": 200}, 500),
        ({"code": "9" * 5000}, 500),
        ({"code": "\uff14\uff12\uff19"}, 500),
        ({"code": [[[400]]]}, 500),
        ({"code": True}, 500),
        ("overloaded", 500),
        (None, 500),
    ],
)
def test_an_error_within_a_success_stands_for_a_status(said: Any, status: int):
    assert status_of(said) == status
