"""Does long work on the event loop itself, a piece at a time: between two pieces everybody else has their turn.

Of all works that are under way one goes on in each round of the loop, first come first served, so that nobody waits
for more than one piece. Refused: worker threads, since what takes longest holds the interpreter's lock, and the event
loop then waits for each of them in turn.
"""

from typing import TypeVar

import anyio

from app.domain.pausing import Pausing

T = TypeVar("T")
PIECE = 5_000
"""How much is done at a time, in about microseconds."""


class Turns:
    """Implements `ports.Turns`."""

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def do(self, work: Pausing[T]) -> T:
        done = 0
        while True:
            try:
                done += next(work)
            except StopIteration as end:
                found: T = end.value
                return found
            if done >= PIECE:
                done = 0
                async with self._turn:
                    pass
