"""Reads single values of what a provider replies, of which no shape is certain: what is wrong is malformed."""

from typing import Any

from app.adapters.engines.dialect import malformed
from app.adapters.engines.strict_json import loads


def loaded(data: bytes) -> Any:
    """The JSON value of a reply or of a piece of one. Raises: EngineFault."""
    try:
        return loads(data)
    except ValueError as cause:
        raise malformed("the reply is not JSON") from cause


def text_of(value: Any) -> str:
    """The text; none where it is missing. Raises: EngineFault."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed("the reply holds something else where text belongs")
    return value


def mapping_of(value: Any) -> dict[str, Any]:
    """The object. Raises: EngineFault."""
    if not isinstance(value, dict):
        raise malformed("the reply holds something else where an object belongs")
    return value


def list_of(value: Any) -> list[Any]:
    """The list; an empty one where it is missing. Raises: EngineFault."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed("the reply holds something else where a list belongs")
    return value


def count_of(value: Any) -> int:
    """A number of tokens; what is none counts nothing, since usage is no part of the answer."""
    return value if isinstance(value, int) and value >= 0 else 0
