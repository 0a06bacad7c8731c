"""The graph of the positions in a grammar's rules, along which a recogniser walks."""

from collections.abc import Callable, Sequence
from functools import partial

from portico.capabilities.output.grammar.symbols import Alternation, CharacterSet, GrammarRules, Repetition

_FIRST_PART = 256
"""Nodes of a sequence that are made at once."""


class GrammarNode:
    """A position in a rule. If neither a character, a rule nor a fork comes next, the rule ends."""

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
        """The node behind that; None until it is first needed."""
        self.skip = skip
        """The node to go on at if that is left out."""
        self.forks = forks
        """The nodes that this one stands for."""
        self._later = None if isinstance(after, GrammarNode) else after

    def grow(self) -> "GrammarNode":
        """Return the node behind the next character or rule, made if it is needed for the first time."""
        if self.after is None:
            self.after = self._later() if self._later else END
        return self.after

    def unlink(self) -> "list[GrammarNode]":
        """Remove all links to other nodes and return those nodes."""
        linked = [self.after, self.skip, *self.forks, *(self._later.args if isinstance(self._later, partial) else ())]
        self.after, self.skip, self.forks, self._later = None, None, (), None
        return [node for node in linked if isinstance(node, GrammarNode) and node is not END]


END = GrammarNode()
"""The end of every rule."""


class GrammarGraph:
    """The nodes of a grammar, each made when it is first needed.

    A group is a fork, not a rule of its own, and so is a group that is repeated without end: only named rules, which
    may contain themselves, and counted items are entered and left. `lengths` are those of each symbol's shortest text,
    None if it has none; symbols without a text are left out.
    """

    def __init__(self, rules: GrammarRules, lengths: Sequence[int | None]) -> None:
        self._symbols = rules.symbols
        self._named = rules.named
        self._lengths = lengths
        self._entries: dict[int, GrammarNode] = {}
        self._counts: dict[tuple[int, int], GrammarNode] = {}

    def unlink(self) -> None:
        """Remove all links between the nodes, which refer to each other in circles. The graph is unusable then."""
        waiting = [*self._entries.values(), *self._counts.values()]
        self._entries.clear()
        self._counts.clear()
        while waiting:
            waiting += waiting.pop().unlink()

    def entry_node(self, rule: int) -> GrammarNode:
        """Return the first node of a rule or of a counted item."""
        entry = self._entries.get(rule)
        if entry is None:
            symbol = self._symbols[rule]
            entry = self._choice(symbol, END) if isinstance(symbol, Alternation) else self.node_before(rule, END)
            entry = self._entries.setdefault(rule, entry)
        return entry

    def node_before(self, symbol: int, after: GrammarNode) -> GrammarNode:
        """Return the node before a symbol that is followed by that node."""
        found = self._symbols[symbol]
        if isinstance(found, Repetition):
            return self._repeat(found, after)
        if isinstance(found, Alternation) and symbol not in self._named:
            return self._choice(found, after)
        return GrammarNode(*self._next(symbol), after=after, skip=None if self._lengths[symbol] else after)

    def _next(self, symbol: int) -> tuple[tuple[int, ...], int | None]:
        """Return the bounds of the characters that may come next, or the rule that comes next."""
        found = self._symbols[symbol]
        return (found.bounds, None) if isinstance(found, CharacterSet) else ((), symbol)

    def _choice(self, choice: Alternation, after: GrammarNode) -> GrammarNode:
        productive = [parts for parts in choice.alternatives if all(self._lengths[part] is not None for part in parts)]
        return self._fork(productive, 0, after)

    def _fork(self, alternatives: list[tuple[int, ...]], start: int, after: GrammarNode) -> GrammarNode:
        """Return the node before these alternatives, from that index on. A shared first character is read once."""
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
        """Return the node before these symbols. Of many symbols, only the first nodes are made now."""
        end = self._first_part(symbols)
        if end < len(symbols):
            later = partial(self._sequence, symbols[end + 1 :], after)
            after = GrammarNode(*self._next(symbols[end]), after=later)
        for symbol in reversed(symbols[:end]):
            after = self.node_before(symbol, after)
        return after

    def _first_part(self, symbols: tuple[int, ...]) -> int:
        """Return the number of symbols before one that cannot be skipped and is not expanded here; all, if few."""
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
        """Return the node within a repetition after so many items. Empty items make up for missing ones.

        A repetition occurs at one position only, so the same node always follows it.
        """
        if count == repeat.maximum:
            return after
        least = repeat.minimum if self._lengths[repeat.item] else 0
        counted = min(count, least) if repeat.maximum is None else count
        key = repeat.repetition_offset, counted
        if key not in self._counts:
            later = partial(self._count, repeat, counted + 1, after)
            node = GrammarNode(*self._next(repeat.item), after=later, skip=after if counted >= least else None)
            self._counts.setdefault(key, node)
        return self._counts[key]
