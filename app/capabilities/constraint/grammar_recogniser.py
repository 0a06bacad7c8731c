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
limited. Refused: Earley items, whose origins make every state a new one; a stack for each reading, as llama.cpp has.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

from app.capabilities.constraint.grammar_dots import END, Dot, Dots
from app.capabilities.constraint.grammar_symbols import Rules

STEPS_OF_A_TEXT = 50_000
STEPS_OF_A_CHARACTER = 24
"""A text may take so many steps, and so many more for each of its characters. A step is a microsecond or less; what
is remembered takes none."""
STEPS_REMEMBERED = 50_000
"""States are forgotten once they took so many steps to make."""
_AT_ONCE = 8
"""So many pairs that are only put into sets are one step."""
_WIDE = 10_000
"""From so many steps on, a character costs twice as much and more: they no longer fit into the processor's caches."""


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


_Pair: TypeAlias = tuple[Dot, _Rest]
_Open: TypeAlias = tuple[Dot, _Rest | _Call]


def _finished(pair: _Open) -> _Pair:
    dot, rest = pair
    return (dot, rest.rest) if isinstance(rest, _Call) else (dot, rest)


class _State:
    """What may be true after some text: the dots at which a character is expected, and whether the text is whole."""

    __slots__ = ("complete", "expected", "moves")

    def __init__(self, expected: frozenset[_Pair], *, complete: bool) -> None:
        self.expected = expected
        self.complete = complete
        self.moves: dict[str, _State] = {}


class _Steps:
    """The steps that a text may still take."""

    __slots__ = ("left",)

    def __init__(self, characters: int) -> None:
        self.left = STEPS_OF_A_TEXT + STEPS_OF_A_CHARACTER * characters

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooAmbiguousError


class Recogniser:
    """Reads texts by the rules of a grammar.

    `lengths` are those of each symbol's shortest text, None where it has none; `order` numbers each symbol lower than
    all it may enter before any character. Threads may share a recogniser: what two of them find out at the same time
    is found out twice, and means the same.
    """

    def __init__(self, rules: Rules, lengths: Sequence[int | None], order: Sequence[int]) -> None:
        self._order = order
        self._dots = Dots(rules, lengths)
        self._begin = frozenset([(self._dots.before(rules.root, END), _NOTHING)])
        self._forget()

    def _forget(self) -> None:
        self._steps_remembered = 0
        self._states: dict[tuple[frozenset[_Pair], bool], _State] = {}
        self._closed: dict[frozenset[_Pair], _State] = {}
        self._rests: dict[tuple[frozenset[_Pair], bool], _Rest] = {}

    def read(self, text: str) -> tuple[bool, int]:
        """Whether the text is whole, and how many of its first characters a whole text may begin with.

        Raises: TooAmbiguousError.
        """
        try:
            return self._read(text, _Steps(len(text)))
        except TooAmbiguousError:
            self._forget()
            raise

    def _read(self, text: str, steps: _Steps) -> tuple[bool, int]:
        state = self._state(self._begin, steps)
        for position, character in enumerate(text):
            try:
                state = state.moves[character]
            except KeyError:
                following = self._move(state, character, steps)
                if following is None:
                    return False, position
                state = following
        return state.complete, len(text)

    def _move(self, state: _State, character: str, steps: _Steps) -> _State | None:
        """The state behind that character; None when it cannot stand here."""
        code = ord(character)
        steps.take(len(state.expected) // _AT_ONCE)
        moved = [(dot.grow(), rest) for dot, rest in state.expected if bisect_right(dot.chars, code) & 1]
        if not moved:
            return None
        following = state.moves[character] = self._state(frozenset(moved), steps)
        return following

    def _state(self, pairs: frozenset[_Pair], steps: _Steps) -> _State:
        known = self._closed.get(pairs)
        if known is not None:
            return known
        before = steps.left
        state = self._close(pairs, steps)
        self._steps_remembered += before - steps.left
        if self._steps_remembered > STEPS_REMEMBERED:
            forgotten = list(self._states.values())
            self._forget()
            for old in forgotten:
                old.moves.clear()
        return self._closed.setdefault(pairs, state)

    def _close(self, pairs: frozenset[_Pair], steps: _Steps) -> _State:
        """Enters and leaves rules until a character is expected everywhere."""
        calls: dict[int, _Call] = {}
        seen: set[_Open] = set(pairs)
        todo: list[_Open] = list(pairs)
        expected: list[_Open] = []
        complete = False
        left = 0
        while todo:
            dot, rest = pair = todo.pop()
            if dot.chars:
                expected.append(pair)
            elif dot.callee is not None:
                call = calls.get(dot.callee)
                if call is None:
                    call = calls[dot.callee] = _Call()
                    todo.append((self._dots.entry(dot.callee), call))
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
        size = len(seen) + len(expected) + 4 * len(calls)
        steps.take(size + size * size // _WIDE + left // _AT_ONCE)
        for callee in sorted(calls, key=self._order.__getitem__):
            self._finish(calls[callee], steps)
        key = frozenset([_finished(pair) for pair in expected]), complete
        return self._states.get(key) or self._states.setdefault(key, _State(key[0], complete=complete))

    def _finish(self, call: _Call, steps: _Steps) -> None:
        """Makes the rest of a rule that was entered, once those of its callers are made."""
        edges = frozenset([_finished(edge) for edge in call.edges])
        done = False
        if call.passed_on:
            passed_on = {rest.rest if isinstance(rest, _Call) else rest for rest in call.passed_on}
            if not edges and len(passed_on) == 1:
                call.rest = passed_on.pop()
                return
            steps.take(sum(len(rest.edges) for rest in passed_on) // _AT_ONCE)
            edges = edges.union(*[rest.edges for rest in passed_on])
            done = any(rest.done for rest in passed_on)
        steps.take(len(call.edges) + len(call.passed_on))
        call.rest = self._rests.get((edges, done)) or self._rests.setdefault((edges, done), _Rest(edges, done=done))
