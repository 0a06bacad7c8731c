"""Lane of an engine: what an attempt waits for, in which order, and who is served next."""

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


@pytest.mark.parametrize(("connections", "slots"), [(1, 0), (0, 1), (0, 0)])
async def test_an_attempt_that_would_wait_takes_nothing(connections: int, slots: int) -> None:
    lane, shared = Lane(connections), anyio.Semaphore(slots)
    assert not lane.enter_if_free(shared)
    assert shared.value == slots
    assert lane.enter_if_free(None) is bool(connections)


async def test_an_attempt_that_need_not_wait_takes_a_slot_and_a_connection() -> None:
    lane, shared = Lane(1), anyio.Semaphore(1)
    assert lane.enter_if_free(shared)
    assert (shared.value, lane.enter_if_free(None)) == (0, False)
    lane.close(shared)
    assert (shared.value, lane.enter_if_free(None)) == (1, True)


async def test_it_waits_for_the_reservation_then_for_a_slot_then_for_a_connection() -> None:
    lane, shared, granted = Lane(1), anyio.Semaphore(0), anyio.Event()
    entered: list[str] = []

    async def attempt() -> None:
        await lane.enter(FEW, shared, granted.wait)
        entered.append("few")

    await lane.enter(MANY)
    async with anyio.create_task_group() as group:
        group.start_soon(attempt)
        await settle()
        lane.close()
        shared.release()
        await settle()
        assert (entered, shared.value, lane.enter_if_free(None)) == ([], 1, True)
        granted.set()
        await settle()
        assert (entered, shared.value) == ([], 0)
        lane.close()
        await settle()
        assert entered == ["few"]


async def test_one_that_is_cancelled_as_it_waits_for_a_connection_gives_its_slot_back() -> None:
    lane, shared = Lane(1), anyio.Semaphore(1)
    await lane.enter(MANY)
    with anyio.move_on_after(0):
        await lane.enter(FEW, shared)
    assert shared.value == 1
    lane.close()
    assert lane.enter_if_free(shared)
