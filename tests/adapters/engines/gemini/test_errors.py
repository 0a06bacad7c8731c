"""Errors of Gemini."""

import json
from typing import Any

import pytest

from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.domain.model_call import AttemptFailureReason

DIALECT = GeminiDialect()
EXHAUSTED = "You exceeded your current quota, please check your plan and billing details."


def error(message: str = "", status: str = "", *details: Any, **members: Any) -> dict[str, Any]:
    error = {"message": message, "status": status, **members}
    return {"error": error | ({"details": list(details)} if details else {})}


def info(reason: str, **metadata: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "metadata": metadata}


def quota(*identifiers: str, **members: Any) -> dict[str, Any]:
    violations = [{"quotaId": identifier, **members} for identifier in identifiers]
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "47s"}
HELP = {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"description": "x", "url": "y"}]}
A_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
A_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (302, AttemptFailureReason.UNREACHABLE),
        (400, AttemptFailureReason.REFUSED),
        (401, AttemptFailureReason.CREDENTIALS),
        (403, AttemptFailureReason.CREDENTIALS),
        (404, AttemptFailureReason.MODEL_MISSING),
        (413, AttemptFailureReason.CONTEXT_EXCEEDED),
        (429, AttemptFailureReason.RATE_LIMITED),
        (500, AttemptFailureReason.SERVER_ERROR),
        (502, AttemptFailureReason.SERVER_ERROR),
        (503, AttemptFailureReason.SERVER_ERROR),
        (504, AttemptFailureReason.SERVER_ERROR),
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
        b"[3]",
        b"\xff",
        b"3",
        b'{"error": null}',
        b'{"error": "x"}',
        b'{"error": [1]}',
        b'{"error": {"message": 3, "status": [], "details": {"reason": 3}}}',
        b'{"error": {"details": [3, {"reason": [], "violations": 3, "metadata": []}, {"violations": [3]}]}}',
        b'{"error": {"details": [{"violations": [{"quotaId": 3, "quotaValue": 0}], "metadata": {"quota_limit": 1}}]}}',
        b'{"error": {"message": "cut off he',
        b"[" * 100_000,
    ],
)
def test_a_status_alone_says_why(status: int, reason: AttemptFailureReason, body: bytes):
    assert DIALECT.failure_reason(status, body) is reason


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (
            400,
            error("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", "X"),
            AttemptFailureReason.CONTEXT_EXCEEDED,
        ),
        (
            400,
            error("The input token count exceeds the maximum number of tokens allowed 32768.", "INVALID_ARGUMENT"),
            AttemptFailureReason.CONTEXT_EXCEEDED,
        ),
        (500, error("Your input context is too long.", "INTERNAL"), AttemptFailureReason.CONTEXT_EXCEEDED),
        (
            400,
            error("Request payload size exceeds the limit: 20971520 bytes.", "INVALID_ARGUMENT"),
            AttemptFailureReason.CONTEXT_EXCEEDED,
        ),
        (400, error("Invalid JSON payload received.", "INVALID_ARGUMENT"), AttemptFailureReason.REFUSED),
        (
            400,
            error("API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT", info("API_KEY_INVALID")),
            AttemptFailureReason.CREDENTIALS,
        ),
        (400, error("x", "INVALID_ARGUMENT", info("API_KEY_INVALID")), AttemptFailureReason.CREDENTIALS),
        (
            400,
            error("API key expired. Please renew the API key.", "INVALID_ARGUMENT"),
            AttemptFailureReason.CREDENTIALS,
        ),
        (401, error("x", "UNAUTHENTICATED", info("ACCESS_TOKEN_TYPE_UNSUPPORTED")), AttemptFailureReason.CREDENTIALS),
        (403, error("Your API key was reported as leaked.", "PERMISSION_DENIED"), AttemptFailureReason.CREDENTIALS),
        (403, error("x", "PERMISSION_DENIED", info("SERVICE_DISABLED")), AttemptFailureReason.CREDENTIALS),
        (403, error("x", "PERMISSION_DENIED", info("BILLING_DISABLED")), AttemptFailureReason.QUOTA),
        (
            400,
            error("User location is not supported for the API use.", "FAILED_PRECONDITION"),
            AttemptFailureReason.CREDENTIALS,
        ),
        (
            400,
            error("Gemini API free tier is not available in your country. Please enable billing.", "X"),
            AttemptFailureReason.QUOTA,
        ),
        (404, error("models/x is not found for API version v1beta", "NOT_FOUND"), AttemptFailureReason.MODEL_MISSING),
        (
            503,
            error("The model is overloaded. Please try again later.", "UNAVAILABLE"),
            AttemptFailureReason.OVERLOADED,
        ),
        (503, error("x", "UNAVAILABLE"), AttemptFailureReason.OVERLOADED),
        (500, error("x", "INTERNAL"), AttemptFailureReason.SERVER_ERROR),
        (
            504,
            error("Deadline expired before operation could complete.", "DEADLINE_EXCEEDED"),
            AttemptFailureReason.TIMED_OUT,
        ),
        (499, error("The operation was cancelled.", "CANCELLED"), AttemptFailureReason.SERVER_ERROR),
        (
            429,
            error("No capacity", "RESOURCE_EXHAUSTED", info("MODEL_CAPACITY_EXHAUSTED")),
            AttemptFailureReason.OVERLOADED,
        ),
    ],
)
def test_a_code_or_the_wording_says_more_than_the_status(status: int, body: Any, reason: AttemptFailureReason):
    assert DIALECT.failure_reason(status, json.dumps(body).encode()) is reason
    assert DIALECT.failure_reason(status, json.dumps([body]).encode()) is reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            error("Resource has been exhausted (e.g. check quota).", "RESOURCE_EXHAUSTED"),
            AttemptFailureReason.RATE_LIMITED,
        ),
        (error(EXHAUSTED, "RESOURCE_EXHAUSTED", HELP), AttemptFailureReason.RATE_LIMITED),
        (
            error(EXHAUSTED, "RESOURCE_EXHAUSTED", HELP, quota(A_MINUTE, quotaValue="10"), RETRY),
            AttemptFailureReason.RATE_LIMITED,
        ),
        (error(EXHAUSTED, "RESOURCE_EXHAUSTED", HELP, quota(A_MINUTE, A_DAY), RETRY), AttemptFailureReason.QUOTA),
        (error(EXHAUSTED, "RESOURCE_EXHAUSTED", quota(A_MINUTE, quotaValue="0")), AttemptFailureReason.QUOTA),
        (
            error(
                EXHAUSTED + "\n* Quota exceeded for metric: x/generate_content_free_tier_requests, limit: 0, model: y"
            ),
            AttemptFailureReason.QUOTA,
        ),
        (
            error(EXHAUSTED + "\n* Quota exceeded for metric: x/y, limit: 20, model: z"),
            AttemptFailureReason.RATE_LIMITED,
        ),
        (
            error("x", "RESOURCE_EXHAUSTED", info("RATE_LIMIT_EXCEEDED", quota_limit="RequestsPerMinutePerProject")),
            AttemptFailureReason.RATE_LIMITED,
        ),
        (
            error("x", "X", info("RATE_LIMIT_EXCEEDED", quota_limit="Gemini25ProRequestsPerDay")),
            AttemptFailureReason.QUOTA,
        ),
        (
            error("x", "X", info("RATE_LIMIT_EXCEEDED", quota_limit="PerMinute", quota_limit_value="0")),
            AttemptFailureReason.QUOTA,
        ),
        (error("x", "RESOURCE_EXHAUSTED", info("QUOTA_EXHAUSTED")), AttemptFailureReason.QUOTA),
        (
            error("Your prepayment credits are depleted. Please go to AI Studio", "RESOURCE_EXHAUSTED"),
            AttemptFailureReason.QUOTA,
        ),
        (
            error("Your project has exceeded its monthly spending cap.", "RESOURCE_EXHAUSTED"),
            AttemptFailureReason.QUOTA,
        ),
        (
            error("Quota exceeded for quota metric 'x' and limit 'Gemini 2.5 Pro Requests per day per user'"),
            AttemptFailureReason.QUOTA,
        ),
    ],
)
def test_a_limit_of_a_minute_passes_and_a_spent_day_or_purse_does_not(body: Any, reason: AttemptFailureReason):
    assert DIALECT.failure_reason(429, json.dumps(body).encode()) is reason


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "47s"}], 47),
        ([{"reason": "X"}, {"retryDelay": "0.5s"}], 0.5),
        ([{"retryDelay": "soon"}], None),
        ([{"retryDelay": "-1s"}], None),
        ([{"retryDelay": 3}], None),
        (["47s"], None),
        ("47s", None),
        (None, None),
    ],
)
def test_a_wait_is_read_from_the_body(details: object, seconds: float | None) -> None:
    body = json.dumps({"error": {"code": 429, "details": details}}).encode()
    assert DIALECT.retry_delay(body) == seconds
