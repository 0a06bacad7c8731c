"""Follows a grammar through a text, character by character, and exactly.

A *dot* is a place in a rule: what comes next there, and what follows it. A *rest* is what remains to be done when a
rule ends: the dots to go on at, each with a rest of its own. A *state* is everything that may be true after some text:
the dots at which a character is expected, each with the rest of its rule. A character takes every dot it matches one
place on; from there rules are entered and left until a character is expected everywhere again.

Three things keep that small and fast:

- All who enter a rule at the same character share one rest, so that an ambiguous grammar needs no stack for each of
  its readings, of which there may be exponentially many. Since there is no left recursion, the rests made at one
  character do not contain each other in a circle, and are finished callers first.
- Who has nothing left to do when a rule ends passes on the rest it was given, so that right recursion needs no memory.
- States and rests that say the same are the same object, and a state remembers where each character has led. Most
  of a text is therefore looked up, one dictionary access a character, as in a finite automaton built on demand.

An ambiguous grammar still takes up to the third power of a text's length, so the steps of a text are counted and
limited. A text is charged for each move that it makes for the first time, remembered from other texts or not: so its
verdict never depends on what was checked before. Refused: Earley items, whose origins make every state a new one; a
stack for each reading, as llama.cpp has.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from app.capabilities.output.grammar.graph import END, GrammarGraph, GrammarNode
from app.capabilities.output.grammar.symbols import GrammarRules

STEPS_OF_A_TEXT = 180_000
"""Steps that a text may take, of a microsecond or less."""
STEPS_REMEMBERED = 20_000
"""Once a text is read, all states are forgotten if they took more steps to make."""
_AT_ONCE = 8
_KEPT = 2
"""So many pairs that are only put into sets are one step; fewer where the sets are kept, since they take memory."""
_WIDE = 10_000
"""From so many steps on, a character costs twice as much and more: they no longer fit into the processor's caches."""
_FEWEST = 10
"""Steps that finding a state takes at least; they stand for the memory it is kept in too, about 3 kB."""
_CHECKED_EVERY = 1_024
"""Pairs between two checks of the limit."""


class TooAmbiguousError(Exception):
    """The text has so many readings that following them takes more steps than it may."""


class _Rest:
    """What remains to be done when a rule ends. `done`: perhaps nothing at all, and the text is whole."""

    __slots__ = ("done", "edges")

    def __init__(self, edges: "frozenset[_Pair]", *, done: bool) -> None:
        self.edges = edges
        self.done = done


_NOTHING = _Rest(frozenset(), done=True)


class _Call:
    """The rest of a rule that was entered at this character, while more callers are still being found."""

    __slots__ = ("edges", "passed_on", "rest")

    def __init__(self) -> None:
        self.edges: list[_Open] = []
        self.passed_on: list[_Rest | _Call] = []
        """The rests of callers that have nothing left to do themselves."""
        self.rest = _NOTHING


_Pair: TypeAlias = tuple[GrammarNode, _Rest]
_Open: TypeAlias = tuple[GrammarNode, _Rest | _Call]


def _finished(pair: _Open) -> _Pair:
    dot, rest = pair
    return (dot, rest.rest) if isinstance(rest, _Call) else (dot, rest)


class _State:
    """What may be true after some text: the dots at which a character is expected, and whether the text is whole.

    `moves` remembers where characters have led.
    """

    __slots__ = ("complete", "expected", "moves")

    def __init__(self, expected: frozenset[_Pair], *, complete: bool) -> None:
        self.expected = expected
        self.complete = complete
        self.moves: dict[str, _Closed] = {}


class _Closed:
    """The state that some pairs lead to once all rules are entered and left, and the steps that finding it takes."""

    __slots__ = ("state", "steps")

    def __init__(self, state: _State, steps: int) -> None:
        self.state = state
        self.steps = steps


class _Visit(dict[str, "_Visit"]):
    """A state as one text finds it: where those of its characters lead that the text has come past."""

    __slots__ = ("state",)

    def __init__(self, state: _State) -> None:
        super().__init__()
        self.state = state


class _Reading:
    """One text being read: what it has visited, what it has paid for, and the steps it took."""

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
                self._take(1 + len(visit.state.expected) // _AT_ONCE)
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
    """Reads texts by the rules of a grammar.

    `lengths` are those of each symbol's shortest text, None where it has none; `order` numbers each symbol lower than
    all it may enter before any character. Threads may share a recogniser: what two of them find out at the same time
    is found out twice, and means the same.
    """

    def __init__(self, rules: GrammarRules, lengths: Sequence[int | None], order: Sequence[int]) -> None:
        self._order = order
        self._dots = GrammarGraph(rules, lengths)
        self._begin = frozenset([(self._dots.node_before(rules.root, END), _NOTHING)])
        self._remember_nothing()

    def read(self, text: str) -> tuple[bool, int]:
        """Whether the text is whole, and how many of its first characters a whole text may begin with.

        Raises: TooAmbiguousError.
        """
        try:
            return _Reading(self).read(text)
        finally:
            self.forget_if_large()

    def begin(self) -> _Closed:
        """Before any character. Raises: TooAmbiguousError."""
        return self._closing(self._begin)

    def move(self, state: _State, character: str) -> _Closed | None:
        """What is behind that character; None when it cannot stand here. Raises: TooAmbiguousError."""
        known = state.moves.get(character)
        if known is not None:
            return known
        code = ord(character)
        moved = [(dot.grow(), rest) for dot, rest in state.expected if bisect_right(dot.chars, code) & 1]
        if not moved:
            return None
        following = state.moves[character] = self._closing(frozenset(moved))
        return following

    def end(self) -> None:
        """Lets go of everything by which it holds itself, which would be left to the garbage collector."""
        self._forget_states()
        self._dots.unlink()

    def forget_if_large(self) -> None:
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
        self._rests: dict[tuple[frozenset[_Pair], bool], _Rest] = {}

    def _closing(self, pairs: frozenset[_Pair]) -> _Closed:
        known = self._closed.get(pairs)
        if known is None:
            known = self._close(pairs)
            self._steps_remembered += known.steps
            known = self._closed.setdefault(pairs, known)
        return known

    def _close(self, pairs: frozenset[_Pair]) -> _Closed:
        """Enters and leaves rules until a character is expected everywhere."""
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
            dot, rest = pair = todo.pop()
            if dot.chars:
                expected.append(pair)
            elif dot.callee is not None:
                call = calls.get(dot.callee)
                if call is None:
                    call = calls[dot.callee] = _Call()
                    todo.append((self._dots.entry_node(dot.callee), call))
                after = dot.after or dot.grow()
                if after is END:
                    call.passed_on.append(rest)
                else:
                    call.edges.append((after, rest))
            elif dot.forks:
                forks = {(fork, rest) for fork in dot.forks} - seen
                seen |= forks
                todo += forks
            elif isinstance(rest, _Rest):
                left += len(rest.edges)
                complete = complete or rest.done
                fresh = rest.edges - seen
                seen |= fresh
                todo += fresh
            if dot.skip and (skipped := (dot.skip, rest)) not in seen:
                seen.add(skipped)
                todo.append(skipped)
        steps = _FEWEST + _steps(len(seen) + len(expected) + 4 * len(calls)) + left // _AT_ONCE
        steps += self._finish_all(calls)
        return _Closed(self._state(expected, complete=complete), steps)

    def _state(self, expected: Sequence[_Open], *, complete: bool) -> "_State":
        key = frozenset(map(_finished, expected)), complete
        return self._states.get(key) or self._states.setdefault(key, _State(key[0], complete=complete))

    def _finish_all(self, calls: Mapping[int, _Call]) -> int:
        """Makes the rests of all rules that were entered, callers first; the steps that it took."""
        steps = 0
        for callee in sorted(calls, key=self._order.__getitem__):
            _refuse(steps)
            steps += self._finish(calls[callee])
        return steps

    def _finish(self, call: _Call) -> int:
        """Makes the rest of a rule that was entered, once those of its callers are made; the steps that it took."""
        edges = frozenset(map(_finished, call.edges))
        done = False
        steps = len(call.edges) + len(call.passed_on)
        if call.passed_on:
            passed_on = {rest.rest if isinstance(rest, _Call) else rest for rest in call.passed_on}
            if not edges and len(passed_on) == 1:
                call.rest = passed_on.pop()
                return 0
            steps += sum(len(rest.edges) for rest in passed_on) // _KEPT
            edges = edges.union(*[rest.edges for rest in passed_on])
            done = any(rest.done for rest in passed_on)
        call.rest = self._rests.get((edges, done)) or self._rests.setdefault((edges, done), _Rest(edges, done=done))
        return steps


def _steps(size: int) -> int:
    """The steps that so many pairs take."""
    return size + size * size // _WIDE


def _refuse(steps: int) -> None:
    """Raises: TooAmbiguousError for more steps than a text may take."""
    if steps > STEPS_OF_A_TEXT:
        raise TooAmbiguousError
