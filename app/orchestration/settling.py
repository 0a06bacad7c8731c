"""How a branch ends, and what the branches of a gather come to together."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from app.domain.failures import Code, Failure

T = TypeVar("T")


class Dropped(BaseException):
    """The branch ends here: it, or the whole execution, was stopped before or while this was done."""


class Suspended(BaseException):
    """The branch waits for an answer that does not exist yet."""


Settled: TypeAlias = T | Failure | Dropped | Suspended
"""A branch's end as a value."""


async def as_value(branch: Callable[[], Awaitable[T]], held: Dropped | Suspended | None = None) -> Settled[T]:
    """The branch's result, or why it has none, which is known already where it is `held`."""
    if held is not None:
        return held
    try:
        return await branch()
    except (Failure, Dropped, Suspended) as interrupted:
        return interrupted


def finished(settled: Mapping[int, Settled[T]]) -> dict[int, T | Failure]:
    """What came to a result, in order."""
    in_order = sorted(settled.items(), key=lambda each: each[0])
    return {index: each for index, each in in_order if not isinstance(each, Dropped | Suspended)}


def held_up(settled: Mapping[int, Settled[T]], earlier: Sequence[int]) -> Dropped | Suspended | None:
    """What keeps a branch from beginning that comes after these: the first of them that came to no result."""
    ends = (settled[index] for index in earlier)
    return next((end for end in ends if isinstance(end, Dropped | Suspended)), None)


def has_diverged(value: object) -> bool:
    """Whether it is the failure of a replay, which is nobody's result."""
    return isinstance(value, Failure) and value.code is Code.ORCHESTRATION_REPLAY_DIVERGED


def results(settled: Mapping[int, Settled[T]], counted: Sequence[int]) -> dict[int, T | Failure]:
    """What counts, in order. Raises what is no result: a divergence anywhere first, then Dropped, then Suspended."""
    for each in settled.values():
        if isinstance(each, Failure) and has_diverged(each):
            raise each
    for interruption in (Dropped, Suspended):
        if any(isinstance(settled[index], interruption) for index in counted):
            raise interruption
    in_order = ((index, settled[index]) for index in counted)
    return {index: each for index, each in in_order if not isinstance(each, Dropped | Suspended)}
