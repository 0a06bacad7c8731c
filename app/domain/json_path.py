"""Places within a JSON value: written as `$.items[0].name`, read from that, and found.

The part of JSONPath [RFC 9535] that names members, elements, and all of them by `*`; filters and slices are no places.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

PathStep = str | int | None
"""A member's name, an element's index from 0 (negative: from the end), or None for every one of them."""
MOST_STEPS: Final = 64
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STEP = re.compile(
    r"""\.(?P<name>[^\W\d][\w-]*+)|\[(?P<index>-?\d{1,9})\]|(?P<every>\.\*|\[\*\])"""
    r"""|\['(?P<single>(?:[^'\\]|\\['\\])*+)'\]|\["(?P<double>(?:[^"\\]|\\["\\])*+)"\]"""
)
_ESCAPE = re.compile(r"\\(.)")


def format_path(steps: Iterable[PathStep], most_characters: int = 64) -> str:
    """The path as text, `$` for the whole value; names are cut at `most_characters`."""
    return "$" + "".join(_step(step, most_characters) for step in steps)


def _step(step: PathStep, most_characters: int) -> str:
    if step is None:
        return "[*]"
    if isinstance(step, int):
        return f"[{step}]"
    name = step if len(step) <= most_characters else step[:most_characters] + "…"
    if _PLAIN.match(name):
        return f".{name}"
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{quoted}']"


def parse(text: str) -> tuple[PathStep, ...]:
    """The steps of a written path. Raises: ValueError where it is none."""
    steps: list[PathStep] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None or len(steps) == MOST_STEPS:
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
"""Values, each with its place."""


def children(found: Matches, step: PathStep) -> Matches:
    """Everything that stands one step below these places; nothing where the step leads nowhere."""
    return [((*place, key), inner) for place, outer in found for key, inner in _children(outer, step)]


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
