"""Tasks that nobody waits for end with whoever opened them."""

import gc
import weakref

import anyio
from anyio.lowlevel import checkpoint

from app.adapters.durable.tasks import open_tasks


async def test_what_was_started_runs_with_what_it_was_given_and_is_forgotten() -> None:
    given: list[tuple[str, int]] = []

    async def work(name: str, number: int) -> None:
        given.append((name, number))

    async with open_tasks() as tasks:
        tasks.start_soon(work, "a", 1)
        held = weakref.ref(work)
        del work
        for _ in range(3):
            await checkpoint()
        gc.collect()
        assert held() is None
    assert given == [("a", 1)]


async def test_what_still_runs_at_the_end_is_cancelled_and_what_is_shielded_waited_for() -> None:
    ended: list[str] = []

    async def endless() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("endless")

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)
            ended.append("shielded")
        await anyio.sleep_forever()

    async with open_tasks() as tasks:
        tasks.start_soon(endless)
        tasks.start_soon(shielded)
        await checkpoint()
    assert ended == ["endless", "shielded"]


async def test_what_had_not_begun_at_the_end_is_cancelled_at_its_first_wait() -> None:
    reached: list[int] = []

    async def work() -> None:
        reached.append(1)
        await checkpoint()
        reached.append(2)

    async with open_tasks() as tasks:
        tasks.start_soon(work)
    assert reached == [1]
