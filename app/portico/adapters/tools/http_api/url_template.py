"""URL templates: the URL of an HTTP API, with places for the arguments of a call.

A place is `{name}` in the path or in a value of the query; `{caller.FIELD}` and `{metadata.NAME}` stand for facts of
the caller. What fills it is percent-encoded as a whole, so it cannot end its segment, and the host and the names of the
query are always the configured ones.
"""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

import orjson

from portico.adapters.tools.caller_values import CALLER_PLACE, caller_value, check_place
from portico.capabilities.tools.definition import ToolArgumentError
from portico.domain.tools import Caller
from portico.ports.tool import ToolError

_PLACE: Final = re.compile(rf"\{{({CALLER_PLACE}|[A-Za-z_][A-Za-z0-9_]*)\}}")


class UrlTemplate:
    """The URL of an API.

    Raises: ValueError for anything but an http or https URL with a host, for a place outside the path and the values
    of the query, and for a place that is no required property with a single value.
    """

    def __init__(self, url: str, parameters: Mapping[str, Any]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
            raise ValueError("must be an http or https URL with a host and without a user")
        if _PLACE.search(parts.netloc) or parts.fragment:
            raise ValueError("may have places for arguments in its path and its query only")
        self._parts = _PLACE.split(url)
        places = self._parts[1::2]
        self.names = frozenset(name for name in places if "." not in name)
        """Names of the properties that have a place."""
        self.query_names = frozenset(name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
        """Names of the pairs that the configured query has."""
        if any(map(_PLACE.search, self.query_names)):
            raise ValueError("must not have a place for an argument in a name of its query")
        for name in places:
            if name not in self.names:
                check_place(name)
        properties, required = parameters.get("properties", {}), parameters.get("required", ())
        for name in sorted(self.names):
            if name not in properties or name not in required:
                raise ValueError(f"has the place {{{name}}}, which is no required property of the parameters")
            if _types(properties[name]) & {"object", "array", "null"}:
                raise ValueError(f"has the place {{{name}}}, which must be a text, a number or a truth value")

    def fill(self, arguments: Mapping[str, Any], caller: Caller | None = None) -> str:
        """Return the URL of a call.

        Raises: ToolArgumentError for an argument, and ToolError for a fact of the caller, that cannot be a segment of a
        path.
        """
        return "".join(
            part if place % 2 == 0 else self._filled(part, arguments, caller) for place, part in enumerate(self._parts)
        )

    def _filled(self, name: str, arguments: Mapping[str, Any], caller: Caller | None) -> str:
        if name in self.names:
            return _segment(name, arguments[name])
        value = caller_value(name, caller)
        if value in {"", ".", ".."}:
            raise ToolError(f"{name} is needed in the URL, and must not be absent, empty, `.` or `..`")
        return quote(value, safe="")


def query_pairs(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return arguments as the pairs of a query; an array is repeated, and an absent value is left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in arguments.items():
        values = value if isinstance(value, list) else [value]
        pairs += [(name, argument_text(name, each)) for each in values if each is not None]
    return pairs


def argument_text(name: str, value: Any) -> str:
    """Return a single value as text. Raises: ToolArgumentError for an object or an array."""
    if isinstance(value, dict | list):
        raise ToolArgumentError(((f"arguments.{name}", "must be a text, a number or a truth value"),))
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _segment(name: str, value: Any) -> str:
    text = argument_text(name, value)
    if text in {"", ".", ".."}:
        raise ToolArgumentError(((f"arguments.{name}", "must not be empty, `.` or `..`"),))
    return quote(text, safe="")


def _types(schema: Any) -> set[str]:
    types = schema.get("type") if isinstance(schema, Mapping) else None
    return {types} if isinstance(types, str) else set(types or ())
