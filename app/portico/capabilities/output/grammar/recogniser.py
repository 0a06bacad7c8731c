"""Exact recognition of a text by a grammar, one character at a time.

A *node* is a position in a rule: it says what comes next and leads to the node behind it. A *continuation* is what
remains to be done when a rule ends: the nodes to go on at, each with a continuation of its own. A *state* is everything
that may be true after some text: the nodes at which a character is expected, each with the continuation of its rule. A
character moves every node that it matches one position on; from there rules are entered and left until a character is
expected everywhere again.

Three things keep that small and fast:

- All callers that enter a rule at the same character share one continuation, so an ambiguous grammar needs no stack for
  each of its readings, of which there may be exponentially many. There is no left recursion, so the continuations made
  at one character do not contain each other in a circle; they are finished callers first.
- A caller that has nothing left to do when a rule ends passes on its own continuation, so right recursion needs no
  memory.
- Equal states and continuations are the same object, and a state remembers where each character has led. Most of a text
  is therefore looked up, one dictionary access a character, as in a finite automaton that is built on demand.

An ambiguous grammar still takes up to the third power of a text's length, so the steps of a text are counted and
limited. A text is charged for each move that it makes for the first time, even if the move is remembered from another
text: its result never depends on what was checked before. Refused: Earley items, whose origins make every state a new
one; a stack for each reading, as llama.cpp has.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from portico.capabilities.output.grammar.graph import END, GrammarGraph, GrammarNode
from portico.capabilities.output.grammar.symbols import GrammarRules

STEPS_OF_A_TEXT = 180_000
"""Steps of at most a microsecond that one text may take."""
STEPS_REMEMBERED = 20_000
"""If the states took more steps than this to make, they are forgotten after the text."""
_PAIRS_PER_STEP = 8
_STORED_PAIRS_PER_STEP = 2
"""Pairs that are put into a set within one step; fewer if the set is stored, since it takes memory."""
_WIDE = 10_000
"""Steps from which on a character costs twice as much or more, since they no longer fit into the processor's caches."""
_MIN_STEPS = 10
"""Steps that finding a state takes at least; they also stand for its memory, about 3 kB."""
_CHECKED_EVERY = 1_024
"""Pairs between two checks of the limit."""


class TooAmbiguousError(Exception):
    """The text has so many readings that following them takes more steps than allowed."""


class _Continuation:
    """The work that remains when a rule ends. If `done`, nothing may remain, and the text is complete."""

    __slots__ = ("done", "edges")

    def __init__(self, edges: "frozenset[_Pair]", *, done: bool) -> None:
        self.edges = edges
        self.done = done


_NOTHING = _Continuation(frozenset(), done=True)


class _Call:
    """The continuation of a rule that was entered at this character, while more callers are still being found."""

    __slots__ = ("continuation", "edges", "passed_on")

    def __init__(self) -> None:
        self.edges: list[_Open] = []
        self.passed_on: list[_Continuation | _Call] = []
        """The continuations of callers that have nothing left to do themselves."""
        self.continuation = _NOTHING


_Pair: TypeAlias = tuple[GrammarNode, _Continuation]
_Open: TypeAlias = tuple[GrammarNode, _Continuation | _Call]


def _finished(pair: _Open) -> _Pair:
    node, continuation = pair
    return (node, continuation.continuation) if isinstance(continuation, _Call) else (node, continuation)


class _State:
    """Everything that may be true after some text: the nodes that expect a character, and if the text is complete.

    `moves` remembers where characters have led.
    """

    __slots__ = ("complete", "expected", "moves")

    def __init__(self, expected: frozenset[_Pair], *, complete: bool) -> None:
        self.expected = expected
        self.complete = complete
        self.moves: dict[str, _Closed] = {}


class _Closed:
    """The state that some pairs lead to once all rules are entered and left, and the steps of finding it."""

    __slots__ = ("state", "steps")

    def __init__(self, state: _State, steps: int) -> None:
        self.state = state
        self.steps = steps


class _Visit(dict[str, "_Visit"]):
    """A state as one text has used it: where the characters lead that occurred in the text."""

    __slots__ = ("state",)

    def __init__(self, state: _State) -> None:
        super().__init__()
        self.state = state


class _Reading:
    """One text being read: its visited states, the moves it was charged for, and its steps."""

    def __init__(self, recogniser: "Recogniser") -> None:
        self._recogniser = recogniser
        self._steps = 0
        self._paid: set[_Closed] = set()
        self._visits: dict[_State, _Visit] = {}

    def read(self, text: str) -> tuple[bool, int]:
        try:
            return self._read(text)
        finally:
            for visit in self._visits.values():
                visit.clear()

    def _read(self, text: str) -> tuple[bool, int]:
        visit = self._at(self._recogniser.begin())
        for position, character in enumerate(text):
            try:
                visit = visit[character]
            except KeyError:
                following = self._recogniser.move(visit.state, character)
                if following is None:
                    return False, position
                self._take(1 + len(visit.state.expected) // _PAIRS_PER_STEP)
                visit[character] = visit = self._at(following)
        return visit.state.complete, len(text)

    def _at(self, closed: _Closed) -> _Visit:
        if closed not in self._paid:
            self._paid.add(closed)
            self._take(closed.steps)
        return self._visits.setdefault(closed.state, _Visit(closed.state))

    def _take(self, steps: int) -> None:
        self._steps += steps
        _refuse(self._steps)


class Recogniser:
    """Recogniser of texts by the rules of a grammar, also of a text that is still being written.

    `lengths` are those of each symbol's shortest text, None if it has none; `order` numbers each symbol lower than all
    symbols that it may enter before any character. Threads may share a recogniser: states that two of them find at the
    same time are found twice and are equivalent.
    """

    def __init__(self, rules: GrammarRules, lengths: Sequence[int | None], order: Sequence[int]) -> None:
        self._order = order
        self._graph = GrammarGraph(rules, lengths)
        self._begin = frozenset([(self._graph.node_before(rules.root, END), _NOTHING)])
        self._remember_nothing()

    def read(self, text: str) -> tuple[bool, int]:
        """Return if the text is complete, and how many of its first characters a complete text may begin with.

        Raises: TooAmbiguousError.
        """
        try:
            return _Reading(self).read(text)
        finally:
            self.forget_if_large()

    def start(self) -> "GrammarPosition":
        """Return the position before any character. Raises: TooAmbiguousError."""
        return GrammarPosition(self, self.begin().state)

    def begin(self) -> _Closed:
        """Return the state before any character. Raises: TooAmbiguousError."""
        return self._closing(self._begin)

    def move(self, state: _State, character: str) -> _Closed | None:
        """Return the state behind that character, None if it cannot come here. Raises: TooAmbiguousError."""
        known = state.moves.get(character)
        if known is not None:
            return known
        code = ord(character)
        moved = [
            (node.grow(), continuation) for node, continuation in state.expected if bisect_right(node.chars, code) & 1
        ]
        if not moved:
            return None
        following = state.moves[character] = self._closing(frozenset(moved))
        return following

    def __del__(self) -> None:
        """Break all reference cycles, which would be left to the garbage collector."""
        with suppress(AttributeError):
            self._forget_states()
            self._graph.unlink()

    def forget_if_large(self) -> None:
        """Forget all states if they take much memory."""
        if self._steps_remembered > STEPS_REMEMBERED:
            self._forget_states()

    def _forget_states(self) -> None:
        states = self._states
        self._remember_nothing()
        for state in tuple(states.values()):
            state.moves.clear()

    def _remember_nothing(self) -> None:
        self._steps_remembered = 0
        self._states: dict[tuple[frozenset[_Pair], bool], _State] = {}
        self._closed: dict[frozenset[_Pair], _Closed] = {}
        self._continuations: dict[tuple[frozenset[_Pair], bool], _Continuation] = {}

    def _closing(self, pairs: frozenset[_Pair]) -> _Closed:
        known = self._closed.get(pairs)
        if known is None:
            known = self._close(pairs)
            self._steps_remembered += known.steps
            known = self._closed.setdefault(pairs, known)
        return known

    def _close(self, pairs: frozenset[_Pair]) -> _Closed:
        """Enter and leave rules until a character is expected everywhere."""
        calls: dict[int, _Call] = {}
        seen: set[_Open] = set(pairs)
        todo: list[_Open] = list(pairs)
        expected: list[_Open] = []
        complete = False
        left, due = 0, _CHECKED_EVERY
        while todo:
            if len(seen) >= due:
                due = len(seen) + _CHECKED_EVERY
                _refuse(_steps(len(seen)))
            node, continuation = pair = todo.pop()
            if node.chars:
                expected.append(pair)
            elif node.callee is not None:
                call = calls.get(node.callee)
                if call is None:
                    call = calls[node.callee] = _Call()
                    todo.append((self._graph.entry_node(node.callee), call))
                after = node.after or node.grow()
                if after is END:
                    call.passed_on.append(continuation)
                else:
                    call.edges.append((after, continuation))
            elif node.forks:
                forks = {(fork, continuation) for fork in node.forks} - seen
                seen |= forks
                todo += forks
            elif isinstance(continuation, _Continuation):
                left += len(continuation.edges)
                complete = complete or continuation.done
                fresh = continuation.edges - seen
                seen |= fresh
                todo += fresh
            if node.skip and (skipped := (node.skip, continuation)) not in seen:
                seen.add(skipped)
                todo.append(skipped)
        steps = _MIN_STEPS + _steps(len(seen) + len(expected) + 4 * len(calls)) + left // _PAIRS_PER_STEP
        steps += self._finish_all(calls)
        return _Closed(self._state(expected, complete=complete), steps)

    def _state(self, expected: Sequence[_Open], *, complete: bool) -> "_State":
        key = frozenset(map(_finished, expected)), complete
        return self._states.get(key) or self._states.setdefault(key, _State(key[0], complete=complete))

    def _finish_all(self, calls: Mapping[int, _Call]) -> int:
        """Make the continuations of all rules that were entered, callers first, and return the steps that it took."""
        steps = 0
        for callee in sorted(calls, key=self._order.__getitem__):
            _refuse(steps)
            steps += self._finish(calls[callee])
        return steps

    def _finish(self, call: _Call) -> int:
        """Make the continuation of a rule whose callers have theirs, and return the steps that it took."""
        edges = frozenset(map(_finished, call.edges))
        done = False
        steps = len(call.edges) + len(call.passed_on)
        if call.passed_on:
            passed_on = {each.continuation if isinstance(each, _Call) else each for each in call.passed_on}
            if not edges and len(passed_on) == 1:
                call.continuation = passed_on.pop()
                return 0
            steps += sum(len(each.edges) for each in passed_on) // _STORED_PAIRS_PER_STEP
            edges = edges.union(*[each.edges for each in passed_on])
            done = any(each.done for each in passed_on)
        call.continuation = self._continuations.get((edges, done)) or self._continuations.setdefault(
            (edges, done), _Continuation(edges, done=done)
        )
        return steps


class GrammarPosition:
    """A position behind some text. It is immutable, so any number of continuations can be tried from it."""

    __slots__ = ("_recogniser", "_state")

    def __init__(self, recogniser: Recogniser, state: _State) -> None:
        self._recogniser = recogniser
        self._state = state

    @property
    def is_complete(self) -> bool:
        """True if the text may end here."""
        return self._state.complete

    def advance(self, character: str) -> "GrammarPosition | None":
        """Return the position behind that character, None if it cannot come here. Raises: TooAmbiguousError."""
        following = self._state.moves.get(character)
        if following is None:
            following = self._recogniser.move(self._state, character)
            self._recogniser.forget_if_large()
        return None if following is None else GrammarPosition(self._recogniser, following.state)

    def accepts_any_of(self, first: int, last: int) -> bool:
        """Return True if any code point from the first to the last may come next."""
        return any(_overlap(node.chars, first, last) for node, _ in self._state.expected)


def _overlap(bounds: tuple[int, ...], first: int, last: int) -> bool:
    run = bisect_right(bounds, first)
    return run % 2 == 1 or (run < len(bounds) and bounds[run] <= last)


def _steps(size: int) -> int:
    """Return the steps that so many pairs take."""
    return size + size * size // _WIDE


def _refuse(steps: int) -> None:
    """Raise TooAmbiguousError for more steps than a text may take."""
    if steps > STEPS_OF_A_TEXT:
        raise TooAmbiguousError
