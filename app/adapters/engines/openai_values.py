"""Reads what OpenAI and the servers that follow it reply, of which no shape is certain: what is wrong is malformed."""

from collections.abc import Mapping
from typing import Any

from app.adapters.engines.dialect import ARGUMENT_DEPTH, malformed
from app.adapters.engines.openai_errors import reason_of, status_of
from app.adapters.engines.values import count_of, list_of, loaded, mapping_of
from app.ports import EngineFault


def parsed(data: bytes) -> dict[str, Any]:
    """The JSON object of a reply or chunk. Raises: EngineFault, also when it reports an error."""
    reply = loaded(data)
    if not isinstance(reply, dict):
        raise malformed("the reply is not a JSON object")
    if reply.get("error"):
        raise reported(reply["error"])
    return reply


def reported(error: Any) -> EngineFault:
    """The fault of an error that came where a reply was expected."""
    return EngineFault(reason_of(status_of(error), error), "the provider reported an error in its reply")


def mappings_of(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none where it is missing."""
    return [mapping_of(item) for item in list_of(value)]


def tellable(value: Any, levels: int = ARGUMENT_DEPTH) -> Any:
    """The value as it is, which is to be told again, so that it must not be deeper than what is ever written."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if children and levels == 0:
        raise malformed("the reply holds a value that is nested too deeply")
    for child in children:
        tellable(child, levels - 1)
    return value


def first_count(usage: Mapping[str, Any], *paths: tuple[str, ...]) -> int:
    """The first count above 0 that stands at one of the paths."""
    for path in paths:
        value: Any = usage
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if count_of(value):
            return count_of(value)
    return 0
