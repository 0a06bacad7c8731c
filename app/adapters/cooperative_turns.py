"""Does long work on the event loop itself, a piece at a time: between two pieces everybody else has their turn.

Of all works that are under way one goes on in each round of the loop, first come first served, so that nobody waits
for more than one piece. Refused: worker threads, since what takes longest holds the interpreter's lock, and the event
loop then waits for each of them in turn.
"""

from typing import TypeVar

import anyio

from app.domain.pausing import Pausing

T = TypeVar("T")
UNSCHEDULED_COST, SLICE_COST = 500, 5_000
"""How much is done at once, without waiting for a turn, and in each turn, in about microseconds."""


class CooperativeTurns:
    """Implements `ports.Turns`."""

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def do(self, work: Pausing[T]) -> T:
        left = UNSCHEDULED_COST
        while True:
            try:
                left -= next(work)
            except StopIteration as end:
                found: T = end.value
                return found
            if left <= 0:
                left = SLICE_COST
                async with self._turn:
                    pass
