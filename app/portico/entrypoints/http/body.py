"""Request bodies: strict JSON, and its validation as a model of the contract.

A body is read twice: by the strict JSON reader, which refuses what pydantic accepts (duplicate keys, NaN, numbers
beyond 64 bits), and by pydantic, which validates it. Rejected: to validate the value of the first reading, because
pydantic's strict validation of Python objects accepts no enum members given as strings. A body of more than
`OFF_LOOP_BYTES` is read on a worker thread. `MAX_VALUES` bounds the number of validation errors, for each of which
pydantic holds the interpreter lock for microseconds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Annotated, Any, NoReturn, TypeVar

from anyio import to_thread
from fastapi import Depends, Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from portico.domain.contract.constrained_types import RequestIdText
from portico.domain.failures import Code, RequestFailure
from portico.domain.field_errors import InvalidField, invalid_fields, path_within
from portico.domain.ids import RequestId
from portico.domain.strict_json import StrictJsonError, loads
from portico.entrypoints.http.context import RequestContext, context_of

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
OFF_LOOP_BYTES = 65_536
MAX_VALUES = 50_000
MAX_LISTED_ERRORS = 1_000
SHOWN_ERRORS = 20
SHOWN_FIELD = 200
_STREAM = InvalidField(("stream",), "is not a known field; send the header Accept: text/event-stream")
"""No body has this field, which other APIs have."""


class _Claim(BaseModel):
    request_id: RequestIdText


_CLAIM = TypeAdapter(_Claim)


def json_body(model: type[M], *, after: Callable[..., Any] | None = None) -> Any:
    """Return the dependency that reads the body as this model.

    The body is read after the dependency `after`, so that the refusal of an unknown resource takes precedence.
    """

    async def read_json_body(request: Request) -> M:
        return await read_model(context_of(request), model)

    async def read_json_body_after(request: Request, _: Annotated[Any, Depends(after)]) -> M:
        return await read_model(context_of(request), model)

    return Depends(read_json_body if after is None else read_json_body_after)


async def read_model(context: RequestContext, model: type[M]) -> M:
    """Return the body of the request, which is read of a known caller only.

    Raises: AccessFailure; StorageFailure; ClientDisconnect; RequestFailure (REQUEST_INVALID, REQUEST_UNSUPPORTED_MEDIA,
    REQUEST_TOO_LARGE).
    """
    await context.authenticate()
    limits = context.service.settings.limits
    body = await read_body(dict(context.scope["headers"]), context.receive, limits.body_bytes)
    context.body_was_read = True
    try:
        if len(body) > OFF_LOOP_BYTES:
            parsed = await to_thread.run_sync(parse_body_sync, body, limits.json_depth, model)
        else:
            parsed = parse_body_sync(body, limits.json_depth, model)
    except RequestFailure:
        context.request_id = claimed_request_id(body)
        raise
    context.request_id = getattr(parsed, "request_id", None)
    return parsed


async def read_decoded(context: RequestContext, decode: Callable[[Mapping[str, Any]], T]) -> T:
    """Return what `decode` makes of the body, an object that no model describes as a whole.

    Raises: as `read_model`; as `decode`.
    """
    await context.authenticate()
    limits = context.service.settings.limits
    body = await read_body(dict(context.scope["headers"]), context.receive, limits.body_bytes)
    context.body_was_read = True
    if len(body) > OFF_LOOP_BYTES:
        return await to_thread.run_sync(_decode_sync, body, limits.json_depth, decode)
    return _decode_sync(body, limits.json_depth, decode)


def _decode_sync(body: bytes, max_depth: int, decode: Callable[[Mapping[str, Any]], T]) -> T:
    value = _parse_sync(body, max_depth)
    if not isinstance(value, dict):
        raise RequestFailure(Code.REQUEST_INVALID, "the body must be an object")
    return decode(value)


async def read_bytes(context: RequestContext, max_bytes: int) -> bytes:
    """Return the bytes of a body of any kind; stop reading at the limit. Raises: as `read_body`."""
    body = await read_body(dict(context.scope["headers"]), context.receive, max_bytes, is_json=False)
    context.body_was_read = True
    return body


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int, *, is_json: bool = True) -> bytes:
    """Return the whole body, which must be declared as JSON if it `is_json`; stop reading at the limit.

    Raises: ClientDisconnect; RequestFailure (REQUEST_UNSUPPORTED_MEDIA, REQUEST_TOO_LARGE).
    """
    media = headers.get(b"content-type", b"")
    if is_json and media != b"application/json" and not _is_json(media):
        raise RequestFailure(Code.REQUEST_UNSUPPORTED_MEDIA, "Content-Type must be application/json")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestFailure(Code.REQUEST_UNSUPPORTED_MEDIA, "a Content-Encoding is not supported")
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > max_bytes):
        _refuse_size(max_bytes)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > max_bytes:
            _refuse_size(max_bytes)
        if not message.get("more_body", False):
            return bytes(body)


def parse_body_sync(body: bytes, max_depth: int, model: type[M]) -> M:
    """Return the body as the model.

    Raises: RequestFailure (REQUEST_INVALID): 400 for unacceptable JSON, 422 for JSON that does not fit the model.
    """
    value = _parse_sync(body, max_depth)
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as invalid:
        if invalid.error_count() > MAX_LISTED_ERRORS:
            raise _too_many_errors(invalid.error_count()) from None
        errors = invalid.errors(include_url=False, include_context=True, include_input=False)
    if errors[0]["type"] == "json_invalid":
        raise _syntax("the body is not acceptable JSON")
    fields = invalid_fields(errors, path_of=path_within(value), schema=_schema(model))
    raise invalid_fields_failure([_STREAM if each.path == _STREAM.path else each for each in fields])


def _parse_sync(body: bytes, max_depth: int) -> Any:
    """Return the value of the body. Raises: RequestFailure (REQUEST_INVALID) for unacceptable JSON."""
    may_have_many_values = len(body) >= MAX_VALUES
    if may_have_many_values:
        _refuse_many_commas(body)
    try:
        value = loads(body, max_depth=max_depth)
    except StrictJsonError as error:
        raise _syntax(f"the body is not acceptable JSON: {error.reason}") from None
    if may_have_many_values:
        _refuse_many_values(body, value)
    return value


def claimed_request_id(body: bytes) -> RequestId | None:
    """Return the valid request_id of a body that is not a valid request.

    None if there is none, if the JSON is unacceptable, or if it may have too many values to look.
    """
    if body.count(b",") >= MAX_VALUES:
        return None
    try:
        return _CLAIM.validate_json(body).request_id
    except ValidationError:
        return None


_STRINGS_AND_COMMAS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|,', re.DOTALL)


def _refuse_many_commas(body: bytes) -> None:
    """Refuse too many values before the reader holds the interpreter lock over all of them.

    Only commas outside of strings count, and only where there are many commas at all.
    """
    if body.count(b",") >= MAX_VALUES:
        commas = (found for found in _STRINGS_AND_COMMAS.finditer(body) if found[0] == b",")
        if next(islice(commas, MAX_VALUES - 1, None), None) is not None:
            raise _too_many_values()


def _refuse_many_values(body: bytes, value: Any) -> None:
    """Refuse more than `MAX_VALUES` values. A body with few commas and brackets needs no count."""
    if body.count(b",") + body.count(b"{") + body.count(b"[") < MAX_VALUES:
        return
    level, values = _containers([value]), 0
    while level:
        values += sum(map(len, level))
        if values > MAX_VALUES:
            raise _too_many_values()
        level = [child for parent in level for child in _containers(parent)]


def _containers(parent: Any) -> list[Any]:
    children = parent.values() if isinstance(parent, dict) else parent
    return [child for child in children if isinstance(child, dict | list)]


def _is_json(media: bytes) -> bool:
    kind, *parameters = (part.strip().lower() for part in media.split(b";"))
    return kind == b"application/json" and all(
        part in {b"", b"charset=utf-8", b'charset="utf-8"'} for part in parameters
    )


def _refuse_size(max_bytes: int) -> NoReturn:
    message = f"the body is larger than {max_bytes} bytes"
    raise RequestFailure(Code.REQUEST_TOO_LARGE, message, {"limit_bytes": max_bytes})


def _too_many_values() -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, f"the body has more than {MAX_VALUES} values")


def _syntax(message: str) -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, message, condition="syntax")


def _too_many_errors(count: int) -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, f"{count} values of the request are not valid", {"left_out": count})


def invalid_fields_failure(fields: Sequence[InvalidField]) -> RequestFailure:
    """Return the refusal of invalid fields of the body, or of invalid parameters.

    The message describes the first; the details list up to `SHOWN_ERRORS`.
    """
    shown = [(".".join(each.path)[:SHOWN_FIELD], each.message) for each in fields[:SHOWN_ERRORS]]
    details = {
        "errors": [{"field": field, "message": message} for field, message in shown],
        "left_out": max(len(fields) - SHOWN_ERRORS, 0),
    }
    field, message = shown[0]
    return RequestFailure(Code.REQUEST_INVALID, f"{field}: {message}" if field else message, details)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()
