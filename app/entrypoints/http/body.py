"""Reading a request's body: what is accepted as bytes, as JSON, and as one of the boundary's models.

The body is read twice: by the strict JSON reader, which rejects what pydantic lets pass (duplicate keys, NaN, numbers
beyond 64 bits), and by pydantic, which validates it. Rejected alternative: to validate the value of the first reading,
since strict validation of Python objects knows no enums written as strings. A body above `OFF_LOOP_BYTES` is read on a
worker thread. `MAX_VALUES` bounds the errors, since pydantic holds the interpreter lock for microseconds each.
"""

import re
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from anyio import to_thread
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from starlette.types import Receive

from app.domain.contract.constrained_types import RequestIdText
from app.domain.failures import Code, RequestFailure
from app.domain.strict_json import StrictJsonError, loads

M = TypeVar("M", bound=BaseModel)
OFF_LOOP_BYTES = 65_536
MAX_VALUES = 50_000
MAX_LISTED_ERRORS = 1_000
SHOWN_ERRORS = 20
SHOWN_FIELD = 200
_OTHER_WORDS = MappingProxyType({"union_tag_invalid": "Input should have a {discriminator} of {expected_tags}"})
"""Pydantic's messages that would echo input, in words of ours."""


class _Claim(BaseModel):
    request_id: RequestIdText


_CLAIM = TypeAdapter(_Claim)


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int) -> bytes | None:
    """The whole body; None when the client left before it was whole. Stops reading at the limit.

    Raises: RequestFailure (REQUEST_UNSUPPORTED_MEDIA, REQUEST_TOO_LARGE).
    """
    _refuse_other_media(headers)
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > max_bytes):
        _refuse_size(max_bytes)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > max_bytes:
            _refuse_size(max_bytes)
        if not message.get("more_body", False):
            return bytes(body)


async def parse_body(body: bytes, max_depth: int, model: type[M]) -> M:
    """What the body holds, as that model.

    Raises: RequestFailure (REQUEST_INVALID), as 400 when it is no acceptable JSON and 422 when it is no such model.
    """
    if len(body) > OFF_LOOP_BYTES:
        return await to_thread.run_sync(parse_body_sync, body, max_depth, model)
    return parse_body_sync(body, max_depth, model)


def parse_body_sync(body: bytes, max_depth: int, model: type[M]) -> M:
    """As `parse`, on the calling thread."""
    _refuse_many(body)
    try:
        value = loads(body, max_depth=max_depth)
    except StrictJsonError as fault:
        raise _syntax(f"the body is not acceptable JSON: {fault}") from None
    _refuse_many_values(body, value)
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as invalid:
        if invalid.error_count() > MAX_LISTED_ERRORS:
            raise _too_wrong(invalid.error_count()) from None
        errors = invalid.errors(include_url=False, include_context=True, include_input=False)
    if errors[0]["type"] == "json_invalid":
        raise _syntax("the body is not acceptable JSON")
    raise invalid_fields_failure(value, errors)


def claimed_request_id(body: bytes) -> str | None:
    """The request_id of a body that is no request, if it is acceptable JSON and the id could be one.

    None as well where there may be too many values to look for it.
    """
    if body.count(b",") >= MAX_VALUES:
        return None
    try:
        return _CLAIM.validate_json(body).request_id
    except ValidationError:
        return None


_STRINGS_AND_COMMAS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|,', re.DOTALL)


def _refuse_many(body: bytes) -> None:
    """Counts the commas that are not in strings, where there are many: the reader would hold the interpreter's lock
    from the first value to the last.
    """
    if body.count(b",") >= MAX_VALUES:
        commas = (found for found in _STRINGS_AND_COMMAS.finditer(body) if found[0] == b",")
        if next(islice(commas, MAX_VALUES - 1, None), None) is not None:
            raise _too_many()


def _too_many() -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, f"the body holds more than {MAX_VALUES} values")


def _refuse_many_values(body: bytes, value: Any) -> None:
    """Raise a failure for more than `MAX_VALUES` values. A body with few commas and brackets needs no count."""
    if body.count(b",") + body.count(b"{") + body.count(b"[") < MAX_VALUES:
        return
    level, values = _containers([value]), 0
    while level:
        values += sum(map(len, level))
        if values > MAX_VALUES:
            raise _too_many()
        level = [child for parent in level for child in _containers(parent)]


def _containers(parent: Any) -> list[Any]:
    children = parent.values() if isinstance(parent, dict) else parent
    return [child for child in children if isinstance(child, dict | list)]


def _refuse_other_media(headers: Mapping[bytes, bytes]) -> None:
    media = headers.get(b"content-type", b"")
    if media != b"application/json" and not _is_json(media):
        raise RequestFailure(Code.REQUEST_UNSUPPORTED_MEDIA, "Content-Type must be application/json")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise RequestFailure(Code.REQUEST_UNSUPPORTED_MEDIA, "a Content-Encoding is not supported")


def _is_json(media: bytes) -> bool:
    kind, *parameters = (part.strip().lower() for part in media.split(b";"))
    return kind == b"application/json" and all(
        part in {b"", b"charset=utf-8", b'charset="utf-8"'} for part in parameters
    )


def _refuse_size(max_bytes: int) -> NoReturn:
    raise RequestFailure(
        Code.REQUEST_TOO_LARGE, f"the body is larger than {max_bytes} bytes", {"limit_bytes": max_bytes}
    )


def _syntax(message: str) -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, message, condition="syntax")


def _too_wrong(count: int) -> RequestFailure:
    return RequestFailure(Code.REQUEST_INVALID, f"{count} values of the request are not valid", {"left_out": count})


def invalid_fields_failure(value: Any, errors: list[ErrorDetails]) -> RequestFailure:
    """The refusal of that value; the first fault is told in words, as many as are shown in details."""
    shown = {(_field(value, error), _message(error)): None for error in errors[:SHOWN_ERRORS]}
    details = {
        "errors": [{"field": where, "message": what} for where, what in shown],
        "left_out": max(len(errors) - SHOWN_ERRORS, 0),
    }
    first, what = next(iter(shown))
    return RequestFailure(Code.REQUEST_INVALID, f"{first}: {what}" if first else what, details)


def _field(value: Any, error: ErrorDetails) -> str:
    """The path as the client wrote it: pydantic's own names for branches of a union are no part of it."""
    path: list[str] = []
    for place in error["loc"]:
        try:
            value = value[place]
        except (KeyError, IndexError, TypeError):
            continue
        path.append(str(place))
    if error["type"] == "missing":
        path.append(str(error["loc"][-1]))
    return ".".join(path)[:SHOWN_FIELD]


def _message(error: ErrorDetails) -> str:
    words = _OTHER_WORDS.get(error["type"])
    if words is not None:
        return words.format(**error["ctx"])
    return error["msg"].removeprefix("Value error, ")
