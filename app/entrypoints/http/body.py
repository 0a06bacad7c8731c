"""Reading a request's body: what is accepted as bytes, as JSON, and as one of the boundary's models.

Python's and pydantic's readers both take what the contract refuses. So the text is read twice: once by the standard
reader with hooks for what it would let pass (duplicate keys, NaN, huge numbers), then looked at for its shape, once
by pydantic, which refuses lone surrogates and validates. Refused: validating the first reading's objects, since strict
validation of Python objects knows no enums written as strings. A body above `OFF_LOOP_BYTES` is read on a worker
thread; because pydantic holds the interpreter lock for microseconds a fault, `MAX_VALUES` bounds how many there can be.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from math import isfinite
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from anyio import to_thread
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from starlette.types import Receive

from app.domain.contract.constrained_types import RequestIdText
from app.domain.failures import Code, RequestFailure

M = TypeVar("M", bound=BaseModel)
OFF_LOOP_BYTES = 65_536
MAX_VALUES = 50_000
MAX_LISTED_ERRORS = 1_000
SHOWN_ERRORS = 20
SHOWN_FIELD = 200
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_OTHER_WORDS = MappingProxyType({"union_tag_invalid": "Input should have a {discriminator} of {expected_tags}"})
"""Pydantic's messages that would echo input, in words of ours."""


class _Claim(BaseModel):
    request_id: RequestIdText


_CLAIM = TypeAdapter(_Claim)


class _UnacceptableError(ValueError):
    """The text is not JSON as the contract means it."""


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
        value = strict_json(body)
        _refuse_shape(body, value, max_depth)
    except (ValueError, RecursionError) as fault:
        raise _syntax(str(fault) if isinstance(fault, _UnacceptableError) else "the body is not JSON") from None
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as invalid:
        if invalid.error_count() > MAX_LISTED_ERRORS:
            raise _too_wrong(invalid.error_count()) from None
        errors = invalid.errors(include_url=False, include_context=True, include_input=False)
    if errors[0]["type"] == "json_invalid":
        raise _syntax("the body holds a string that is not Unicode text")
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


def strict_json(body: bytes) -> Any:
    """The value, read by the rules of RFC 8259 and I-JSON: UTF-8, no key twice, no NaN, numbers that fit 64 bits.

    Lone surrogates still pass. Raises: ValueError, RecursionError.
    """
    return _READER.decode(body.decode())


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _UnacceptableError("an object of the body has the same key twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > 20 or not _SMALLEST <= int(digits) <= _LARGEST:
        raise _UnacceptableError("the body holds an integer beyond 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise _UnacceptableError("the body holds a number beyond 64 bits")
    return number


def _constant(name: str) -> NoReturn:
    raise _UnacceptableError(f"{name} is not JSON")


_READER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant)


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


def _refuse_shape(body: bytes, value: Any, max_depth: int) -> None:
    """Walks the value level by level, unless the text alone tells that it is flat and small enough."""
    if body.count(b"{") + body.count(b"[") <= max_depth and body.count(b",") < MAX_VALUES:
        return
    level, depth, values = _containers([value]), 0, 0
    while level:
        depth += 1
        values += sum(map(len, level))
        if depth > max_depth:
            raise _UnacceptableError(f"the body is nested deeper than {max_depth}")
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
