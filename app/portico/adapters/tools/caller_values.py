"""Facts of a caller as tools pass them on: in places of URLs, headers and commands, in variables, and over MCP."""

import re
from collections.abc import Mapping
from typing import Any, Final

from portico.domain.tools import Caller
from portico.ports.tool import ToolError

CALLER_PLACE: Final = r"(?:caller|metadata)\.[^{}]+"
"""Pattern of the name in a place for a fact of the caller, or for an entry of the request's metadata."""
_PLACE: Final = re.compile(rf"\{{({CALLER_PLACE})\}}")
_METADATA: Final = "metadata."
_FIELDS: Final = ("tenant", "user", "key_id", "agent", "session_id", "request_id", "channel", "step_name")
_VARIABLES: Final = ("tenant", "user", "key_id", "agent", "session_id", "request_id", "channel")
_VISIBLE: Final = re.compile(r"[ -~]*")


def check_place(name: str) -> None:
    """Raise ValueError for a place that names no fact of a caller."""
    if not name.startswith(_METADATA) and name.removeprefix("caller.") not in _FIELDS:
        known = ", ".join(f"{{caller.{field}}}" for field in _FIELDS)
        raise ValueError(f"has the place {{{name}}}; there is {known} and {{metadata.NAME}}")


def caller_value(name: str, caller: Caller | None) -> str:
    """Return the value for a place, which is empty if it is absent."""
    if caller is None:
        return ""
    if name.startswith(_METADATA):
        return caller.metadata.get(name.removeprefix(_METADATA), "")
    return getattr(caller, name.removeprefix("caller.")) or ""


def caller_environment(caller: Caller | None) -> Mapping[str, str]:
    """Return the variables that tell a program for whom it acts; those without a value are left out."""
    values = {f"PORTICO_{field.upper()}": caller_value(f"caller.{field}", caller) for field in _VARIABLES}
    return {name: value for name, value in values.items() if value}


def caller_facts(caller: Caller | None) -> Mapping[str, Any]:
    """Return what an MCP server learns about the caller; absent facts are left out."""
    if caller is None:
        return {}
    facts: dict[str, Any] = {field: caller_value(f"caller.{field}", caller) for field in _FIELDS}
    facts["metadata"] = dict(caller.metadata)
    return {name: value for name, value in facts.items() if value}


class HeaderTemplates:
    """Request headers with places for facts of the caller. Raises: ValueError for a place that names none."""

    def __init__(self, templates: Mapping[str, str]) -> None:
        self._parts = {name: _PLACE.split(text) for name, text in templates.items()}
        for parts in self._parts.values():
            for place in parts[1::2]:
                check_place(place)

    def fill(self, caller: Caller | None) -> dict[str, str]:
        """Return the headers of a call. Raises: ToolError for a value that no header can have."""
        return {name: _header(name, parts, caller) for name, parts in self._parts.items()}


def _header(name: str, parts: list[str], caller: Caller | None) -> str:
    values = [part if place % 2 == 0 else caller_value(part, caller) for place, part in enumerate(parts)]
    text = "".join(values).strip(" ")
    if not _VISIBLE.fullmatch(text):
        raise ToolError(f"the header {name} cannot be sent: a fact of the caller has other than visible characters")
    return text
