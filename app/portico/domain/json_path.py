"""JSON paths such as `$.items[0].name`: formatting, parsing and evaluation.

This is the part of JSONPath [RFC 9535] that names members, elements, and all of them by `*`, without filters and
slices.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

PathStep = str | int | None
"""Name of a member, index of an element (from 0; a negative one from the end), or None for all of them."""
MAX_STEPS: Final = 64
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*+)|\[(?P<index>-?\d{1,9})\]|(?P<every>\.\*|\[\*\])"""
    r"""|\['(?P<single>(?:[^'\\]|\\['\\])*+)'\]|\["(?P<double>(?:[^"\\]|\\["\\])*+)"\]"""
)
_ESCAPE = re.compile(r"\\(.)")


def format_path(steps: Iterable[PathStep], max_characters: int = 64) -> str:
    """Return the path as text, `$` for the whole value; names are cut at `max_characters`."""
    return "$" + "".join(_step(step, max_characters) for step in steps)


def _step(step: PathStep, max_characters: int) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    name = step if len(step) <= max_characters else step[:max_characters] + "…"
    if _PLAIN.match(name):
        return f".{name}"
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{quoted}']"


def parse(text: str) -> tuple[PathStep, ...]:
    """Return the steps of a path. Raises: ValueError if the text is not a path."""
    steps: list[PathStep] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(steps) == MAX_STEPS:
            break
        steps.append(_read(found))
        at = found.end()
    if not text.startswith("$") or at < len(text):
        raise ValueError("must be a path such as $.items[0].name or $.items[*].price")
    return tuple(steps)


def _read(found: re.Match[str]) -> PathStep:
    if found["every"]:
        return None
    if found["index"]:
        return int(found["index"])
    if found["name"]:
        return found["name"]
    return _ESCAPE.sub(r"\1", found["single"] if found["single"] is not None else found["double"])


Matches = list[tuple[tuple[PathStep, ...], Any]]
"""Values, each with its path."""


def children(matches: Matches, step: PathStep) -> Matches:
    """Return all values one step below these; none where the step leads nowhere."""
    return [((*place, key), inner) for place, outer in matches for key, inner in _children(outer, step)]


def _children(outer: Any, step: PathStep) -> Iterable[tuple[PathStep, Any]]:
    if isinstance(outer, dict):
        if step is None:
            return outer.items()
        return ((step, outer[step]),) if step in outer else ()
    if isinstance(outer, list):
        if step is None:
            return enumerate(outer)
        if isinstance(step, int) and -len(outer) <= step < len(outer):
            return ((step % len(outer), outer[step]),)
    return ()
