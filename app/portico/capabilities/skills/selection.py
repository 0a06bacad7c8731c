"""Selection of skills: the most value that fits a budget of tokens, each skill with all that it requires.

Theory of operation

1. Skills are numbers, sets of skills are bits of an integer. A candidate is taken with its closure: itself, what it
   requires, what that requires. What is taken already is not paid again. Only candidates have value.
2. Candidates that never fit are left out first. If the others fit together, all of them are taken.
3. Up to 40 candidates are chosen exactly, by depth-first search with a bound: the value of the candidates that are
   left, each at its own tokens, the last one in part. It never underestimates, since a closure costs no less than its
   own skill. The first search finds the largest value; the second one finds, among the sets of that value, the one
   that is first by the value and then the name of its skills.
   A candidate that stands alone is not taken once one is refused that has as much value for as few tokens.
4. Both searches together visit at most 20,000 nodes. If that is not enough, the best set so far is taken.
5. More than 40 candidates are taken by the density of their closures, value over tokens, as far as they fit.
6. Values are compared in millionths, as integers, so that no sum depends on its order.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Final, NamedTuple

MAX_EXACT: Final = 40
"""Candidates that are chosen exactly."""
MAX_NODES: Final = 20_000
"""Nodes of the search."""
_MILLION: Final = 1_000_000


class SkillCandidate(NamedTuple):
    """A candidate: its number, its value, and its closure as bits. Candidates are ordered by value, then by name."""

    number: int
    value: int
    closure: int


class Selection(NamedTuple):
    """The skills that are taken, as bits; `is_best` is False if the search ended before it was certain."""

    taken: int
    is_best: bool = True


def to_millionths(value: float) -> int:
    """Return a value as it is compared."""
    return round(value * _MILLION)


def numbers_in(bits: int) -> Iterator[int]:
    """Yield the numbers of the skills in a set, in ascending order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def select(candidates: Sequence[SkillCandidate], costs: Mapping[int, int], budget: int) -> Selection:
    """Return the selection among candidates in the order of ties; `costs` are the tokens of every skill."""
    costs_of = _Costs(costs)
    fitting = [each for each in candidates if costs_of.total(each.closure) <= budget]
    together = 0
    for each in fitting:
        together |= each.closure
    if costs_of.total(together) <= budget:
        return Selection(together)
    greedy = _by_density(fitting, costs_of, budget)
    if len(fitting) > MAX_EXACT:
        return Selection(greedy)
    return _Search(fitting, costs_of, budget).run(greedy)


class _Costs:
    """Tokens of sets of skills."""

    def __init__(self, costs: Mapping[int, int]) -> None:
        self.each = costs
        self._totals: dict[int, int] = {}

    def total(self, bits: int) -> int:
        """Return the tokens of a set."""
        known = self._totals.get(bits)
        if known is None:
            known = self._totals[bits] = sum(self.each[number] for number in numbers_in(bits))
        return known


def _by_density(candidates: Sequence[SkillCandidate], costs: _Costs, budget: int) -> int:
    """Return what is taken by density: the value of the candidates in a closure over its tokens."""

    def density(candidate: SkillCandidate) -> float:
        value = sum(each.value for each in candidates if candidate.closure >> each.number & 1)
        return value / max(1, costs.total(candidate.closure))

    taken, left = 0, budget
    for candidate in sorted(candidates, key=density, reverse=True):
        new = candidate.closure & ~taken
        if costs.total(new) <= left:
            taken, left = taken | new, left - costs.total(new)
    return taken


class _OutOfNodesError(Exception):
    """The search has visited all the nodes that it may."""


class _Search:
    """The two searches for one selection."""

    def __init__(self, candidates: Sequence[SkillCandidate], costs: _Costs, budget: int) -> None:
        self._costs = costs
        self._budget = budget
        self._in_order = candidates
        self._by_density = sorted(
            candidates, key=lambda each: each.value / max(1, costs.each[each.number]), reverse=True
        )
        self._value_of = {each.number: each.value for each in candidates}
        self._unit = gcd(*self._value_of.values()) or 1
        self._better = self._find_better()
        self._nodes = 0
        self._best = self._best_value = 0
        self._least = 0
        """Value that a set must have at least to be of interest."""

    def run(self, first: int) -> Selection:
        """Return the selection; `first` is a set that fits."""
        self._best, self._best_value = first, self._value(first)
        self._least = self._best_value + self._unit
        try:
            self._visit(self._by_density, 0, 0, 0, 0, stops=False)
            self._least = self._best_value
            self._visit(self._in_order, 0, 0, 0, 0, stops=True)
        except _OutOfNodesError:
            return Selection(self._best, is_best=False)
        return Selection(self._best)

    def _visit(
        self, order: Sequence[SkillCandidate], at: int, taken: int, refused: int, value: int, *, stops: bool
    ) -> bool:
        """Search below a node, where the candidates before `at` are decided; return True if the search is over."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _OutOfNodesError
        while at < len(order) and taken >> order[at].number & 1:
            at += 1
        if at == len(order):
            if value < self._least:
                return False
            self._best, self._best_value, self._least = taken, value, value + self._unit
            return stops
        if self._bound(taken, refused, value) < self._least:
            return False
        candidate = order[at]
        new = candidate.closure & ~taken
        barred = candidate.closure | self._better.get(candidate.number, 0)
        if not barred & refused and self._costs.total(taken | new) <= self._budget:
            gained = value + self._value(new)
            if self._visit(order, at + 1, taken | new, refused, gained, stops=stops):
                return True
        return self._visit(order, at + 1, taken, refused | 1 << candidate.number, value, stops=stops)

    def _bound(self, taken: int, refused: int, value: int) -> int:
        """Return a value that no set below this node exceeds."""
        left = self._budget - self._costs.total(taken)
        decided = taken | refused
        for number, each, _ in self._by_density:
            if decided >> number & 1:
                continue
            cost = self._costs.each[number]
            if cost > left:
                value += each * left // cost
                break
            value, left = value + each, left - cost
        return value // self._unit * self._unit

    def _find_better(self) -> Mapping[int, int]:
        """Return, for each candidate that stands alone, the others of its kind that a set would rather have, as bits.

        Such a one can replace it in any set, which then is no worse and no later in the order of ties.
        """
        required = 0
        for each in self._in_order:
            required |= each.closure & ~(1 << each.number)
        alone = [each for each in self._in_order if each.closure == 1 << each.number and not required & each.closure]
        better: dict[int, int] = {}
        for at, each in enumerate(alone):
            cost = self._costs.each[each.number]
            better[each.number] = sum(other.closure for other in alone[:at] if self._costs.each[other.number] <= cost)
        return better

    def _value(self, bits: int) -> int:
        return sum(self._value_of.get(number, 0) for number in numbers_in(bits))
