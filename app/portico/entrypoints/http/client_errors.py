"""Errors as HTTP responses of client APIs: the error object of the API beside the members of a problem document."""

import orjson

from portico.domain.contract.response import SystemError
from portico.domain.failures import Failure
from portico.entrypoints.http.client_apis.errors import (
    ClientError,
    ErrorShape,
    client_error,
    client_status,
    error_body,
)
from portico.entrypoints.http.correlation import Correlation, Header
from portico.entrypoints.http.errors import JSON, WholeResponse, problem_document, problem_response, retry_headers

NO_RETRY: Header = (b"x-should-retry", b"false")


def refusal_response(
    shape: ErrorShape | None, failure: Failure, correlation: Correlation, *extra: Header
) -> WholeResponse:
    """Return the response to a request that was refused, in the shape that its client reads: `shape`, else ours."""
    if shape is None:
        return problem_response(failure, correlation, *extra)
    failed = client_error(SystemError.of(failure), correlation.request_id)
    return error_response(failed, shape, correlation, *extra)


def error_response(failed: ClientError, shape: ErrorShape, correlation: Correlation, *extra: Header) -> WholeResponse:
    """Return the response to a request of a client API that failed."""
    status, error = client_status(failed, shape), failed.error
    document = problem_document(error, status, correlation.request_id)
    retry = retry_headers(error) if failed.may_repeat else (NO_RETRY,)
    body = orjson.dumps({**document, **error_body(failed, shape)})
    return WholeResponse(status, body, (JSON, *correlation.headers(), *retry, *extra))
