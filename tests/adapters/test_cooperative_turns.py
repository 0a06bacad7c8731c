"""Long work goes step by step, one piece in each round of the loop, and everybody else comes in between."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from app.adapters.cooperative_turns import SLICE_COST, UNSCHEDULED_COST, CooperativeTurns
from app.domain.pausing import Pausing


def steps(name: str, pieces: int, done: list[str], size: int = SLICE_COST) -> Pausing[str]:
    for _ in range(pieces):
        done.append(name)
        yield size
    return f"{name} is done"


async def test_short_work_is_done_before_anybody_else_comes_in() -> None:
    done: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_mark, done)
        assert await CooperativeTurns().do(steps("short", 10, done, size=UNSCHEDULED_COST // 20)) == "short is done"
        assert done == ["short"] * 10
    assert done[-1] == "another"


async def _mark(done: list[str]) -> None:
    await checkpoint()
    done.append("another")


async def test_others_come_in_between_the_pieces_of_long_work() -> None:
    done: list[str] = []

    async def count(rounds: int) -> None:
        for _ in range(rounds):
            done.append("round")
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count, 20)
        assert await CooperativeTurns().do(steps("long", 5, done)) == "long is done"
    told = "".join(word[0] for word in done)
    assert "ll" not in told
    assert told.count("l") == 5


async def test_of_many_works_one_goes_on_in_each_round_and_all_have_their_turn() -> None:
    turns, done, pieces_of_a_round = CooperativeTurns(), list[str](), list[int]()

    async def watch() -> None:
        seen = len(done)
        while seen < 40:
            await checkpoint()
            pieces_of_a_round.append(len(done) - seen)
            seen = len(done)

    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(turns.do, steps(name, 10, done))
        await checkpoint()
        group.start_soon(watch)
    assert max(pieces_of_a_round) == 1
    assert all(set(done[at : at + 4]) == set("abcd") for at in range(4, 40, 4))


async def test_a_failure_is_raised_and_what_is_called_off_holds_nobody_up() -> None:
    turns, done = CooperativeTurns(), list[str]()

    def failing() -> Pausing[None]:
        yield SLICE_COST
        raise ValueError("cannot be")

    with pytest.raises(ValueError, match="cannot be"):
        await turns.do(failing())
    async with anyio.create_task_group() as group:
        for name in "ab":
            group.start_soon(turns.do, steps(name, 1_000_000, done))
        await checkpoint()
        group.cancel_scope.cancel()
    assert await turns.do(steps("after", 3, done)) == "after is done"
