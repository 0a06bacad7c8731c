"""Typed access to the fields of a provider's JSON, whose shape is never certain. A wrong type is a malformed reply."""

from collections.abc import Mapping
from typing import Any, Final

from portico.adapters.engines.wire.faults import malformed_reply
from portico.domain.strict_json import MAX_WRITABLE_DEPTH, loads

MAX_NESTING: Final = 64
"""The deepest value that we store or send."""


def parse_json(data: bytes) -> Any:
    """Parse a reply or one event of it. Raises: EngineError."""
    try:
        return loads(data, max_depth=MAX_WRITABLE_DEPTH)
    except ValueError as cause:
        raise malformed_reply("the reply is not JSON") from cause


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a reply or one event of it, which has to be an object. Raises: EngineError."""
    try:
        value = loads(data, max_depth=MAX_WRITABLE_DEPTH)
    except ValueError as cause:
        raise malformed_reply("the reply is not JSON") from cause
    if not isinstance(value, dict):
        raise malformed_reply("the reply is not a JSON object")
    return value


def as_text(value: Any) -> str:
    """Return a text, empty where it is missing. Raises: EngineError."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed_reply("the reply has another value where a text is expected")
    return value


def as_object(value: Any) -> dict[str, Any]:
    """Return an object. Raises: EngineError."""
    if not isinstance(value, dict):
        raise malformed_reply("the reply has another value where an object is expected")
    return value


def as_list(value: Any) -> list[Any]:
    """Return a list, empty where it is missing. Raises: EngineError."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed_reply("the reply has another value where a list is expected")
    return value


def as_objects(value: Any) -> list[dict[str, Any]]:
    """Return a list of objects, empty where it is missing. Raises: EngineError."""
    return [as_object(item) for item in as_list(value)]


def detail(holder: Mapping[str, Any], details: str, name: str) -> Any:
    """Return a member of an object of details, 0 where there is none."""
    found = holder.get(details)
    return (found.get(name) or 0) if isinstance(found, dict) else 0


def check_nesting(value: Any, levels: int = MAX_NESTING) -> Any:
    """Return a value that has to be sent back, unchanged. Raises: EngineError when it is too deep to be written."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if children and levels == 0:
        raise malformed_reply("the reply has a value that is nested too deeply")
    for child in children:
        check_nesting(child, levels - 1)
    return value
