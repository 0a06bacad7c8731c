"""Graph of a plan: the order of its steps.

A step comes after those it names in `depends_on`; without that key it comes after the previous step. With an empty list
it comes after none, so it runs at once.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from portico.domain.contract.request import PlanStep

Predecessors: TypeAlias = Sequence[Sequence[int]]
"""For each step the indexes of the steps it depends on."""


def predecessors(steps: Sequence[PlanStep]) -> tuple[tuple[int, ...], ...]:
    """Return for each step the indexes of the steps it depends on, in the order it names them; unknown names are
    ignored.
    """
    indexes: dict[str, int] = {}
    for index, step in enumerate(steps):
        indexes.setdefault(step.name, index)
    return tuple(
        ((index - 1,) if index else ())
        if step.depends_on is None
        else tuple(indexes[name] for name in dict.fromkeys(step.depends_on) if name in indexes)
        for index, step in enumerate(steps)
    )


def topological_order(before: Predecessors) -> tuple[int, ...]:
    """Return indexes in an order in which each step comes after its predecessors, the smallest index first.

    Steps of a cycle, and those that come after them, are left out.
    """
    successors: list[list[int]] = [[] for _ in before]
    for index, earlier in enumerate(before):
        for each in earlier:
            successors[each].append(index)
    open_predecessors = [len(earlier) for earlier in before]
    ready = [index for index, count in enumerate(open_predecessors) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        order.append(index := heappop(ready))
        for each in successors[index]:
            open_predecessors[each] -= 1
            if not open_predecessors[each]:
                heappush(ready, each)
    return tuple(order)


def non_linear_steps(before: Predecessors, order: Sequence[int]) -> list[int]:
    """Return the indexes of the steps, in a plan without cycles, whose only predecessor is not the previous step."""
    return [index for position, index in enumerate(order) if before[index] != order[max(position - 1, 0) : position]]
