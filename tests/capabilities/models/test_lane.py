"""Connections of an engine: their number is bounded, and executions that wait are served in rotation."""

import anyio
import anyio.lowlevel
import pytest

from portico.capabilities.models.lane import Lane
from portico.domain.ids import ExecutionId

MANY, FEW = ExecutionId("many"), ExecutionId("few")


async def settle() -> None:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


async def test_executions_that_wait_get_the_next_connections_in_rotation() -> None:
    lane, served = Lane(1), list[str]()

    async def attempt(execution_id: ExecutionId) -> None:
        await lane.enter(execution_id)
        served.append(execution_id)

    await lane.enter(MANY)
    async with anyio.create_task_group() as group:
        for execution_id in (MANY, MANY, MANY, FEW, FEW):
            group.start_soon(attempt, execution_id)
        await settle()
        assert served == []
        for _ in range(5):
            lane.close()
            await settle()
    assert served == ["many", "few", "many", "few", "many"]


@pytest.mark.parametrize("has_turn", [False, True])
async def test_a_cancelled_attempt_leaves_the_line_and_gives_its_turn_on(has_turn: bool) -> None:
    lane = Lane(1)

    async def attempt() -> None:
        await lane.enter(FEW)
        lane.close()

    await lane.enter(MANY)
    async with anyio.create_task_group() as group:
        group.start_soon(attempt)
        await settle()
        if has_turn:
            lane.close()
        group.cancel_scope.cancel()
    if not has_turn:
        lane.close()
    with anyio.fail_after(1):
        await lane.enter(MANY)


async def test_connections_without_waiting_attempts_are_free_again() -> None:
    lane = Lane(2)
    for _ in range(3):
        await lane.enter(MANY)
        lane.close()
    with anyio.fail_after(1):
        await lane.enter(MANY)
        await lane.enter(FEW)
