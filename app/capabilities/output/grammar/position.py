"""Follows a grammar while a text is being written, one character at a time."""

from bisect import bisect_right

from app.capabilities.output.grammar.compiled import Grammar
from app.capabilities.output.grammar.recogniser import TooAmbiguousError, _State


class GrammarPosition:
    """What may follow some text. It never changes, so that any number of ways on can be tried from it.

    It keeps the grammar, which ends what it is recognised by when nobody has it any more.
    """

    __slots__ = ("_grammar", "_state")

    def __init__(self, grammar: Grammar, state: _State) -> None:
        self._grammar = grammar
        self._state = state

    @classmethod
    def start(cls, grammar: Grammar) -> "GrammarPosition":
        """Before any character. Raises: TooAmbiguousError."""
        return cls(grammar, grammar._recogniser.begin().state)

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here."""
        return self._state.complete

    def advance(self, character: str) -> "GrammarPosition | None":
        """One character on; None when it cannot stand here. Raises: TooAmbiguousError."""
        following = self._state.moves.get(character)
        if following is None:
            recogniser = self._grammar._recogniser
            following = recogniser.move(self._state, character)
            recogniser.forget_if_large()
        return None if following is None else GrammarPosition(self._grammar, following.state)

    def accepts_any_of(self, first: int, last: int) -> bool:
        """Whether any code point from the first to the last may come next."""
        return any(_overlaps(dot.chars, first, last) for dot, _ in self._state.expected)


def _overlaps(bounds: tuple[int, ...], first: int, last: int) -> bool:
    run = bisect_right(bounds, first)
    return run % 2 == 1 or (run < len(bounds) and bounds[run] <= last)


__all__ = ["GrammarPosition", "TooAmbiguousError"]
