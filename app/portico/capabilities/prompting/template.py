"""Templates of system prompts: texts of the configuration with places for facts of the start of an execution.

A place is `{date}`, `{user}`, `{metadata.NAME}` and so on; `{{` and `}}` are braces. What fills a place is never read
as a place, and texts of clients are no templates.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from portico.domain.time_zones import time_zone
from portico.domain.tools import Caller

MAX_VALUE: Final = 256
"""Characters of the longest value; a longer one ends there."""
_METADATA: Final = "metadata."
_TOKEN: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TIMES: Final[Mapping[str, Callable[[datetime], str]]] = MappingProxyType(
    {
        "date": lambda now: f"{now:%Y-%m-%d}",
        "time": lambda now: f"{now:%H:%M}",
        "weekday": lambda now: _WEEKDAYS[now.weekday()],
    }
)
_FACTS: Final = ("user", "tenant", "channel", "agent", "session_id")


def check_template(text: str) -> None:
    """Raise ValueError for a brace that is alone, and for a place with an unknown name."""
    for token in _TOKEN.finditer(text):
        name = token[1]
        if name is None and token[0] in {"{", "}"}:
            raise ValueError("has a single brace; write {{ or }} for one, or set template = false")
        is_metadata = name is not None and name.startswith(_METADATA) and name != _METADATA
        if name is not None and not is_metadata and name not in {*_TIMES, *_FACTS, "timezone"}:
            known = ", ".join(f"{{{each}}}" for each in (*_TIMES, "timezone", *_FACTS))
            raise ValueError(f"has the place {{{name:.40}}}; there is {known} and {{metadata.NAME}}")


def fill_template(text: str, timezone: str, at: float, caller: Caller) -> str:
    """Return the text of a valid template with the facts of the caller, and of a time in Unix seconds."""
    now = datetime.fromtimestamp(at, time_zone(timezone))

    def filled(token: re.Match[str]) -> str:
        name = token[1]
        if name is None:
            return token[0][0]
        if name == "timezone":
            return timezone
        return _TIMES[name](now) if name in _TIMES else _value(name, caller)

    return _TOKEN.sub(filled, text)


def _value(name: str, caller: Caller) -> str:
    """Return a fact on one line, which is empty if it is absent."""
    if name.startswith(_METADATA):
        value = caller.metadata.get(name.removeprefix(_METADATA), "")
    else:
        value = getattr(caller, name) or ""
    return _CONTROL.sub("", value)[:MAX_VALUE]
