"""Errors of client APIs: the status and the words of each kind of failure, as the clients of both APIs read them."""

import pytest

from portico.domain.contract.response import SystemError
from portico.domain.failures import (
    AccessFailure,
    Code,
    Failure,
    InferenceFailure,
    RequestFailure,
    StorageFailure,
    ToolFailure,
)
from portico.entrypoints.http.client_apis.errors import ErrorShape, client_error, client_status, error_body, not_found

INVALID, NOT_FOUND = "invalid_request_error", "not_found_error"


@pytest.mark.parametrize(
    ("failure", "openai", "code", "anthropic"),
    [
        (RequestFailure(Code.REQUEST_INVALID, "x"), (400, INVALID), "REQUEST_INVALID", (400, INVALID)),
        (ToolFailure(Code.TOOL_NOT_FOUND, "x"), (400, INVALID), "TOOL_NOT_FOUND", (400, INVALID)),
        (
            InferenceFailure(Code.INFERENCE_CONTEXT_EXCEEDED, "x"),
            *((400, INVALID), "context_length_exceeded", (400, INVALID)),
        ),
        (InferenceFailure(Code.INFERENCE_CONTENT_FILTERED, "x"), (400, INVALID), "content_filter", (400, INVALID)),
        (
            AccessFailure(Code.ACCESS_UNAUTHENTICATED, "x"),
            *((401, "authentication_error"), "invalid_api_key", (401, "authentication_error")),
        ),
        (AccessFailure(Code.ACCESS_DENIED, "x"), (403, "permission_error"), "ACCESS_DENIED", (403, "permission_error")),
        (not_found("model", "x", "model_not_found"), (404, INVALID), "model_not_found", (404, NOT_FOUND)),
        (
            RequestFailure(Code.REQUEST_RATE_LIMITED, "x"),
            *((429, "too_many_requests"), "rate_limit_exceeded", (429, "rate_limit_error")),
        ),
        (
            InferenceFailure(Code.INFERENCE_ENGINE_ERROR, "x"),
            *((502, "model_error"), "INFERENCE_ENGINE_ERROR", (502, "api_error")),
        ),
        (
            StorageFailure(Code.STORAGE_UNAVAILABLE, "x"),
            *((503, "server_error"), "STORAGE_UNAVAILABLE", (503, "overloaded_error")),
        ),
        (
            RequestFailure(Code.REQUEST_RESUME_REQUIRED, "x"),
            *((400, INVALID), "REQUEST_RESUME_REQUIRED", (409, INVALID)),
        ),
    ],
    ids=lambda value: value.code if isinstance(value, Failure) else "",
)
def test_a_failure_has_the_status_and_the_words_of_each_api(
    failure: Failure, openai: tuple[int, str], code: str, anthropic: tuple[int, str]
) -> None:
    failed = client_error(SystemError.of(failure), "r")
    of_openai, of_anthropic = (error_body(failed, shape)["error"] for shape in ErrorShape)
    assert (client_status(failed, ErrorShape.OPENAI), of_openai["type"], of_openai["code"]) == (*openai, code)
    assert (client_status(failed, ErrorShape.ANTHROPIC), of_anthropic["type"]) == anthropic


def test_what_must_not_be_repeated_has_a_status_that_no_client_of_openai_repeats() -> None:
    failed = client_error(SystemError.of(InferenceFailure(Code.INFERENCE_ENGINE_ERROR, "x")), "r", has_acted=True)
    assert [client_status(failed, shape) for shape in ErrorShape] == [400, 502]
