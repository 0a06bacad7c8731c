"""The configuration of jsonschema-rs: 2020-12, formats asserted, nothing retrieved, linear-time patterns.

Its messages never contain the value that was checked.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

MAX_PATTERN_BYTES: Final = 1_048_576
"""Memory that one compiled pattern may take: as many states as `^.{1,500}$` has."""
_PATTERN_SIZES: Final = (4_096, 16_384, 65_536, 262_144, MAX_PATTERN_BYTES)
_AUTOMATON_BYTES: Final = 262_144
"""Memory in which a pattern caches the states it was in, which only makes it faster."""
_MASK: Final = "the value"


def compile_validator(
    document: Mapping[str, Any],
    *,
    pattern_bytes: int = MAX_PATTERN_BYTES,
    resources: Mapping[str, Any] | None = None,
    keywords: Mapping[str, Any] | None = None,
) -> jsonschema_rs.Draft202012Validator:
    """Return a compiled schema. `resources` are schemas it may refer to, by address; `keywords` are own validators.

    Raises: ValueError, most often jsonschema_rs.ValidationError with the place in the schema as its instance path.
    """
    return jsonschema_rs.Draft202012Validator(
        dict(document),
        validate_formats=True,
        formats={"regex": _is_taken},
        offline=True,
        mask=_MASK,
        pattern_options=jsonschema_rs.RegexOptions(pattern_bytes, _AUTOMATON_BYTES),
        registry=None if resources is None else jsonschema_rs.Registry(list(resources.items())),
        keywords=None if keywords is None else dict(keywords),
    )


def _is_taken(text: str) -> bool:
    """Accept any text as a regular expression without compiling it: one short text can take a millisecond."""
    return isinstance(text, str)


class LinearPattern:
    """A regular expression that is searched for in linear time, as the keyword `pattern` does.

    Raises: ValueError if it is invalid, or becomes larger than `most_bytes`.
    """

    __slots__ = ("_validator",)

    def __init__(self, text: str, most_bytes: int = MAX_PATTERN_BYTES) -> None:
        self._validator = compile_validator({"pattern": text}, pattern_bytes=most_bytes)

    def occurs_in(self, text: str) -> bool:
        return self._validator.is_valid(text)


@lru_cache(maxsize=256)
def cached_pattern(text: str) -> LinearPattern:
    """Return the pattern of that text, from a small cache."""
    return LinearPattern(text)


@lru_cache(maxsize=256)
def pattern_bytes(pattern: str) -> int | None:
    """Return the smallest of a few sizes in bytes that the compiled pattern fits in; None for an unusable pattern."""
    for size in _PATTERN_SIZES:
        try:
            LinearPattern(pattern, size)
        except ValueError:
            continue
        return size
    return None
