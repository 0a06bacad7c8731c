"""Many patterns over one text, in linear time: RE2 as a set, which reads the text once for all of them.

The library is loaded with the first set, so that a service without guards, redaction or triggers does not pay for it.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol

MAX_PATTERN_BYTES: Final = 4096
"""Maximum length of a pattern in UTF-8."""
_MAX_MEMORY: Final = 8 * 1024 * 1024
_TOO_LARGE: Final = "the patterns are too large together"
_SENTINEL: Final = "\U0010fffd\U0010fffe"
"""Text of noncharacters, which the last pattern of every set matches."""


class PatternMatch(Protocol):
    """Match of a pattern, with its groups by number; group 0 is the whole."""

    def span(self, group: int = 0) -> tuple[int, int]:
        """Return the first place of the group and the one behind it; (-1, -1) if it took no part."""

    def group(self, group: int = 0) -> str | None:
        """Return the text of the group."""


class PatternSet:
    """Compiled patterns that are searched for together.

    A lone surrogate, which has no UTF-8, counts as a question mark. Raises: ValueError for a pattern that is invalid,
    longer than `MAX_PATTERN_BYTES` or too large when compiled, with its index and no reason from the library.
    """

    __slots__ = ("_patterns", "_set")

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(_compiled(index, pattern) for index, pattern in enumerate(patterns))
        self._set = _library().Set.SearchSet(_options())
        try:
            for pattern in (*patterns, _SENTINEL):
                self._set.Add(pattern)
            self._set.Compile()
        except _library().error:
            raise ValueError(_TOO_LARGE) from None
        # A set that its memory cannot hold finds nothing instead of failing.
        if len(patterns) not in (self._set.Match(_SENTINEL) or []):
            raise ValueError(_TOO_LARGE)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def matched(self, text: str) -> list[int]:
        """Return the indexes of the patterns that match somewhere in the text, in their order."""
        found: list[int] = self._set.Match(encodable(text)) or []
        return sorted(index for index in found if index < len(self._patterns))

    def matches(self, index: int, text: str) -> Iterator[PatternMatch]:
        """Yield the matches of one pattern, which do not overlap."""
        yield from self._patterns[index].finditer(encodable(text))


def encodable(text: str) -> str:
    """Return the text with a question mark in place of each lone surrogate, so that places in it stay the same."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def _compiled(index: int, pattern: str) -> Any:
    if len(encodable(pattern).encode()) > MAX_PATTERN_BYTES:
        raise ValueError(f"pattern {index} is longer than {MAX_PATTERN_BYTES} bytes")
    try:
        return _library().compile(encodable(pattern), _options())
    except _library().error:
        raise ValueError(
            f"pattern {index} is invalid or too large: RE2 has no look-around, no back references"
        ) from None


@cache
def _library() -> Any:
    return import_module("re2")


@cache
def _options() -> Any:
    options = _library().Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    return options
