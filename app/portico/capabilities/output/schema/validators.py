"""The configuration of jsonschema-rs: 2020-12, formats asserted, nothing retrieved, linear-time patterns.

Its messages never contain the value that was checked.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import jsonschema_rs

MAX_PATTERN_BYTES: Final = 1_048_576
"""Memory that one compiled pattern may take: as many states as `^.{1,500}$` has."""
_AUTOMATON_BYTES: Final = 262_144
"""Memory in which a pattern caches the states it was in, which only makes it faster."""
_MASK: Final = "the value"


def compile_validator(
    document: Mapping[str, Any], *, resources: Mapping[str, Any] | None = None
) -> "jsonschema_rs.Draft202012Validator":
    """Return a compiled schema. `resources` are schemas it may refer to, by address.

    Raises: ValueError, most often jsonschema_rs.ValidationError with the place in the schema as its instance path.
    """
    import jsonschema_rs  # noqa: PLC0415 - five megabytes for a service that validates nothing

    return jsonschema_rs.Draft202012Validator(
        dict(document),
        validate_formats=True,
        formats={"regex": _is_taken},
        offline=True,
        mask=_MASK,
        pattern_options=jsonschema_rs.RegexOptions(MAX_PATTERN_BYTES, _AUTOMATON_BYTES),
        registry=None if resources is None else jsonschema_rs.Registry(list(resources.items())),
    )


def _is_taken(text: str) -> bool:
    """Accept any text as a regular expression without compiling it: one short text can take a millisecond."""
    return isinstance(text, str)


class LinearPattern:
    """A regular expression that is searched for in linear time, as the keyword `pattern` does.

    Raises: ValueError if it is invalid or too large.
    """

    __slots__ = ("_validator",)

    def __init__(self, text: str) -> None:
        self._validator = compile_validator({"pattern": text})

    def occurs_in(self, text: str) -> bool:
        return self._validator.is_valid(text)


@lru_cache(maxsize=256)
def cached_pattern(text: str) -> LinearPattern:
    """Return the pattern of that text, from a small cache. Raises: ValueError if it is invalid or too large."""
    return LinearPattern(text)


def is_linear(text: str) -> bool:
    """Return True if the text is a pattern that can be searched for in linear time, and not too large."""
    try:
        cached_pattern(text)
    except ValueError:
        return False
    return True
