"""Long work that can be put aside while it is being done, so that others need not wait for its end."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Pausing: TypeAlias = Generator[int, None, T]
"""Work that comes to a T. Where it can be put aside it yields how much it has done since, in about microseconds.

It is pure: whoever does it decides when it goes on, never what it comes to.
"""


def at_once(work: Pausing[T]) -> T:
    """What the work comes to, done without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


def within(work: Pausing[T], most: int) -> T | None:
    """What the work comes to, done without a pause; None where it takes more than that."""
    done = 0
    while done <= most:
        try:
            done += next(work)
        except StopIteration as end:
            found: T = end.value
            return found
    return None
