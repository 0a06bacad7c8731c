"""The places in a grammar's rules, linked so that a recogniser can walk from one to the next."""

from collections.abc import Callable, Sequence
from functools import partial

from app.capabilities.output.grammar.symbols import Alternation, CharacterSet, GrammarRules, Repetition

_FIRST_PART = 256
"""Dots of a sequence that are made at once."""


class GrammarNode:
    """A place in a rule. Where neither a character nor a rule comes next, and there is no fork, the rule ends."""

    __slots__ = ("_later", "after", "callee", "chars", "forks", "skip")

    def __init__(
        self,
        chars: tuple[int, ...] = (),
        callee: int | None = None,
        *,
        after: "GrammarNode | Callable[[], GrammarNode] | None" = None,
        skip: "GrammarNode | None" = None,
        forks: "tuple[GrammarNode, ...]" = (),
    ) -> None:
        self.chars = chars
        """The bounds of the characters that may come next."""
        self.callee = callee
        """The rule that comes next."""
        self.after: GrammarNode | None = after if isinstance(after, GrammarNode) else None
        """The dot behind that; None until it is first needed."""
        self.skip = skip
        """The dot to go on at if nothing of it comes."""
        self.forks = forks
        """The dots that this one stands for."""
        self._later = None if isinstance(after, GrammarNode) else after

    def grow(self) -> "GrammarNode":
        """The dot behind what comes next."""
        if self.after is None:
            self.after = self._later() if self._later else END
        return self.after

    def unlink(self) -> "list[GrammarNode]":
        """Lets go of the dots that it leads to, which are these."""
        linked = [self.after, self.skip, *self.forks, *(self._later.args if isinstance(self._later, partial) else ())]
        self.after, self.skip, self.forks, self._later = None, None, (), None
        return [dot for dot in linked if isinstance(dot, GrammarNode) and dot is not END]


END = GrammarNode()
"""Where every rule ends."""


class GrammarGraph:
    """The dots of a grammar, made when they are first needed.

    A group is no rule of its own but a fork, and so is a group that is repeated without end: only named rules, which
    may contain themselves, and what has to be counted are entered and left. `lengths` are those of each symbol's
    shortest text, None where it has none; what has none is left out.
    """

    def __init__(self, rules: GrammarRules, lengths: Sequence[int | None]) -> None:
        self._symbols = rules.symbols
        self._named = rules.named
        self._lengths = lengths
        self._entries: dict[int, GrammarNode] = {}
        self._counts: dict[tuple[int, int], GrammarNode] = {}

    def unlink(self) -> None:
        """Takes all dots apart, which hold each other in circles. None of them can be used any more."""
        waiting = [*self._entries.values(), *self._counts.values()]
        self._entries.clear()
        self._counts.clear()
        while waiting:
            waiting += waiting.pop().unlink()

    def entry_node(self, rule: int) -> GrammarNode:
        """The dot at which a rule, or a counted item, begins."""
        entry = self._entries.get(rule)
        if entry is None:
            symbol = self._symbols[rule]
            entry = self._choice(symbol, END) if isinstance(symbol, Alternation) else self.node_before(rule, END)
            entry = self._entries.setdefault(rule, entry)
        return entry

    def node_before(self, symbol: int, after: GrammarNode) -> GrammarNode:
        """The dot before a symbol that is followed by that dot."""
        found = self._symbols[symbol]
        if isinstance(found, Repetition):
            return self._repeat(found, after)
        if isinstance(found, Alternation) and symbol not in self._named:
            return self._choice(found, after)
        return GrammarNode(*self._next(symbol), after=after, skip=None if self._lengths[symbol] else after)

    def _next(self, symbol: int) -> tuple[tuple[int, ...], int | None]:
        """The bounds of the characters that may come next, or the rule that does."""
        found = self._symbols[symbol]
        return (found.bounds, None) if isinstance(found, CharacterSet) else ((), symbol)

    def _choice(self, choice: Alternation, after: GrammarNode) -> GrammarNode:
        productive = [parts for parts in choice.alternatives if all(self._lengths[part] is not None for part in parts)]
        return self._fork(productive, 0, after)

    def _fork(self, alternatives: list[tuple[int, ...]], start: int, after: GrammarNode) -> GrammarNode:
        """The dot before these alternatives, from that index on. A first character that several share is read once."""
        sharing: dict[int, list[tuple[int, ...]]] = {}
        for parts in alternatives:
            sharing.setdefault(parts[start] if start < len(parts) else -1, []).append(parts)
        forks = []
        for symbol, some in sharing.items():
            if len(some) > 1 and symbol >= 0 and isinstance(self._symbols[symbol], CharacterSet):
                forks.append(GrammarNode(*self._next(symbol), after=partial(self._fork, some, start + 1, after)))
            else:
                forks += [self._sequence(parts, after) for parts in dict.fromkeys(parts[start:] for parts in some)]
        return forks[0] if len(forks) == 1 else GrammarNode(forks=tuple(forks))

    def _sequence(self, symbols: tuple[int, ...], after: GrammarNode) -> GrammarNode:
        """The dot before these symbols. Of many only the first dots are made now."""
        end = self._first_part(symbols)
        if end < len(symbols):
            later = partial(self._sequence, symbols[end + 1 :], after)
            after = GrammarNode(*self._next(symbols[end]), after=later)
        for symbol in reversed(symbols[:end]):
            after = self.node_before(symbol, after)
        return after

    def _first_part(self, symbols: tuple[int, ...]) -> int:
        """How many symbols come before one that cannot be passed over and is not written out here; all, if few."""
        for index in range(_FIRST_PART, len(symbols)):
            found = self._symbols[symbols[index]]
            if isinstance(found, CharacterSet) or (symbols[index] in self._named and self._lengths[symbols[index]]):
                return index
        return len(symbols)

    def _repeat(self, repeat: Repetition, after: GrammarNode) -> GrammarNode:
        if self._lengths[repeat.item] is None:
            return after
        if repeat.maximum == 1:
            item = self.node_before(repeat.item, after)
            return item if repeat.minimum else GrammarNode(forks=(item, after))
        if repeat.maximum is not None or repeat.minimum > 1:
            return self._count(repeat, 0, after)
        again = GrammarNode(skip=after)
        first = self.node_before(repeat.item, again)
        if first.after is again:
            again.chars, again.callee, again.after = first.chars, first.callee, again
        else:
            again.forks = (first,)
        return first if repeat.minimum else again

    def _count(self, repeat: Repetition, count: int, after: GrammarNode) -> GrammarNode:
        """The dot within a repetition after so many times. An item that may be empty makes up for missing times.

        A repetition stands at one place only, so that always the same dot follows it.
        """
        if count == repeat.maximum:
            return after
        least = repeat.minimum if self._lengths[repeat.item] else 0
        counted = min(count, least) if repeat.maximum is None else count
        key = repeat.repetition_offset, counted
        if key not in self._counts:
            later = partial(self._count, repeat, counted + 1, after)
            dot = GrammarNode(*self._next(repeat.item), after=later, skip=after if counted >= least else None)
            self._counts.setdefault(key, dot)
        return self._counts[key]
