"""Reads single values of what a provider replies, of which no shape is certain: what is wrong is malformed."""

from collections.abc import Mapping
from typing import Any, Final

from app.adapters.engines.wire.faults import malformed_reply
from app.adapters.engines.wire.strict_json import loads


def parse_json(data: bytes) -> Any:
    """The JSON value of a reply or of a piece of one. Raises: EngineFault."""
    try:
        return loads(data)
    except ValueError as cause:
        raise malformed_reply("the reply is not JSON") from cause


def as_text(value: Any) -> str:
    """The text; none where it is missing. Raises: EngineFault."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed_reply("the reply holds something else where text belongs")
    return value


def as_object(value: Any) -> dict[str, Any]:
    """The object. Raises: EngineFault."""
    if not isinstance(value, dict):
        raise malformed_reply("the reply holds something else where an object belongs")
    return value


def as_list(value: Any) -> list[Any]:
    """The list; an empty one where it is missing. Raises: EngineFault."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed_reply("the reply holds something else where a list belongs")
    return value


def as_token_count(value: Any) -> int:
    """A number of tokens; what is none counts nothing, since usage is no part of the answer."""
    return value if isinstance(value, int) and value >= 0 else 0


MAX_NESTING: Final = 64


def as_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is missing."""
    return [as_object(item) for item in as_list(value)]


def check_nesting(value: Any, levels: int = MAX_NESTING) -> Any:
    """The value as it is, which is to be told again, so that it must not be deeper than what is ever written."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if children and levels == 0:
        raise malformed_reply("the reply holds a value that is nested too deeply")
    for child in children:
        check_nesting(child, levels - 1)
    return value


def first_token_count(usage: Mapping[str, Any], *paths: tuple[str, ...]) -> int:
    """The first count above 0 that stands at one of the paths."""
    for path in paths:
        value: Any = usage
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if as_token_count(value):
            return as_token_count(value)
    return 0
