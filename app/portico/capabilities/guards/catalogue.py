"""The configured guards, compiled: which of them watch a request, and those that look for patterns in its texts."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from portico.capabilities.guards.injection import InjectionPatterns, visible
from portico.capabilities.guards.pattern_set import PatternSet
from portico.capabilities.guards.sensitive_text import KINDS, find_sensitive, kind_of_key
from portico.domain.context.guards import ConfiguredGuard, GuardType, InputText

LONG_TEXT: Final = 65_536
"""Characters from which texts are not searched on the event loop."""

TextCheck: TypeAlias = Callable[[Iterable[InputText]], bool]
"""Returns True if a guard trips on any of these texts."""


class GuardCatalogue:
    """The guards in the order of the configuration.

    Raises: ValueError, with the guard's name, for patterns that RE2 does not take.
    """

    def __init__(self, guards: Sequence[ConfiguredGuard] = ()) -> None:
        self.is_empty = not guards
        self._guards = tuple(guards)
        self._checks = {guard.name: _compiled(guard) for guard in guards if guard.type in _COMPILERS}

    def watching(self, routes: Collection[str], agents: Collection[str]) -> list[ConfiguredGuard]:
        """Return the guards of a request that may use these routes and agents."""
        return [guard for guard in self._guards if guard.watches(routes, agents)]

    def trips(self, guard: ConfiguredGuard, texts: Iterable[InputText]) -> bool:
        """Return True if a guard of type pii or injection finds in any of the texts what it looks for."""
        return self._checks[guard.name](texts)


NO_GUARDS: Final = GuardCatalogue()


def total_length(texts: Iterable[InputText]) -> int:
    """Return the characters of the texts together."""
    return sum(len(each.text) for each in texts)


class _SensitiveTexts:
    """The check of a guard of type pii."""

    def __init__(self, guard: ConfiguredGuard) -> None:
        self._kinds = frozenset(guard.kinds or KINDS)
        self._own = PatternSet(guard.patterns)

    def __call__(self, texts: Iterable[InputText]) -> bool:
        return any(map(self._is_sensitive, texts))

    def _is_sensitive(self, text: InputText) -> bool:
        if text.key is not None and text.text and kind_of_key(text.key) in self._kinds:
            return True
        return self._occurs_in(text.text) or (not text.text.isascii() and self._occurs_in(visible(text.text)))

    def _occurs_in(self, text: str) -> bool:
        return bool(find_sensitive(text, self._kinds) or (self._own and self._own.matched(text)))


class _Injections:
    """The check of a guard of type injection."""

    def __init__(self, guard: ConfiguredGuard) -> None:
        self._patterns = InjectionPatterns(guard.patterns)

    def __call__(self, texts: Iterable[InputText]) -> bool:
        return any(self._patterns.occur_in(each.text) for each in texts)


_COMPILERS: Mapping[GuardType, Callable[[ConfiguredGuard], TextCheck]] = MappingProxyType(
    {"pii": _SensitiveTexts, "injection": _Injections}
)


def _compiled(guard: ConfiguredGuard) -> TextCheck:
    try:
        return _COMPILERS[guard.type](guard)
    except ValueError as error:
        raise ValueError(f"{guard.name}.patterns: {error}") from None
