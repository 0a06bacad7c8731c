"""What replicas tell each other over PostgreSQL: heard at once, in few words, and again after a connection was lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import asyncpg
import pytest

from app.adapters.stores.notifications import NotificationHandlers, PostgresNotifications
from app.domain.journal.events import CorrelationContext, InferenceDelta, LiveDelta, StoredEvent
from tests.support.examples import SPAN, STARTED, TRACE
from tests.support.virtual_time import VirtualTimeLoop

ROOT = CorrelationContext("r-a", None, TRACE, SPAN, None)
EVENT = StoredEvent(1, 1.0, "0", ROOT, STARTED)
DELTA = LiveDelta(1.0, ROOT, InferenceDelta("0/0", 0, text="Hello"))


@dataclass
class Ears:
    """What one replica heard."""

    grown: list[str] = field(default_factory=list)
    cancels: int = 0

    def cancel(self) -> None:
        self.cancels += 1


@asynccontextmanager
async def talking(url: str, *, alone: bool = False) -> AsyncIterator[tuple[PostgresNotifications, Ears]]:
    """One that speaks, and the ears of another, which listen."""
    connect = partial(asyncpg.connect, url)
    mouth, listener, ears = (
        PostgresNotifications(connect, lambda: alone),
        PostgresNotifications(connect, lambda: False),
        Ears(),
    )
    with _outside():
        async with anyio.create_task_group() as group:
            group.start_soon(mouth.run, NotificationHandlers(lambda _: None, lambda: None))
            group.start_soon(listener.run, NotificationHandlers(ears.grown.append, ears.cancel))
            await until(lambda: ears.cancels == 1)
            yield mouth, ears
            group.cancel_scope.cancel()


@contextmanager
def _outside() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        yield


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - a server has no event for it
            await anyio.sleep(0.01)


async def test_a_log_that_has_grown_is_heard_of_everywhere(postgres_url: str) -> None:
    async with talking(postgres_url) as (mouth, ears):
        mouth.publish("a", [EVENT])
        await until(lambda: ears.grown == ["a"])


async def test_many_words_at_once_are_all_heard_and_each_once(postgres_url: str) -> None:
    names = [f"execution-{number:026}" for number in range(1_000)]
    async with talking(postgres_url) as (mouth, ears):
        for name in names * 2:
            mouth.publish(name, [EVENT])
        await until(lambda: len(ears.grown) >= len(names))
    assert ears.grown == names


async def test_deltas_are_no_news_elsewhere(postgres_url: str) -> None:
    async with talking(postgres_url) as (mouth, ears):
        mouth.publish("streams", [DELTA])
        mouth.publish("a", [EVENT])
        await until(lambda: ears.grown == ["a"])


async def test_who_is_alone_says_nothing_of_logs_but_asks_for_cancels(postgres_url: str) -> None:
    async with talking(postgres_url, alone=True) as (mouth, ears):
        mouth.publish("a", [EVENT])
        mouth.notify_cancel("a")
        await until(lambda: ears.cancels == 2)
    assert ears.grown == []


async def test_b4_84_whoever_was_cut_off_listens_again_and_looks_for_what_was_missed(postgres_url: str) -> None:
    async with talking(postgres_url) as (mouth, ears):
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        await connection.close()
        await until(lambda: ears.cancels >= 2)
        while "a" not in ears.grown:
            mouth.publish("a", [EVENT])
            await anyio.sleep(0.1)


@pytest.mark.parametrize("fault", [asyncpg.InternalClientError("no place"), asyncpg.QueryCanceledError("too slow")])
async def test_b4_84_what_goes_wrong_with_a_word_costs_its_connection_and_nothing_else(
    postgres_url: str, fault: Exception
) -> None:
    first, ears = Failing(fault), Ears()

    async def connect() -> object:
        return await asyncpg.connect(postgres_url) if first.terminated else first

    signals = PostgresNotifications(connect, lambda: False)
    with _outside():
        async with anyio.create_task_group() as group:
            group.start_soon(signals.run, NotificationHandlers(ears.grown.append, ears.cancel))
            await until(lambda: ears.cancels == 1)
            signals.notify_cancel("a")
            await until(lambda: ears.cancels == 2)
            group.cancel_scope.cancel()
    assert first.terminated


@dataclass
class Failing:
    """A connection over which nothing can be said."""

    fault: Exception
    terminated: bool = False

    async def add_listener(self, _channel: str, _heard: object) -> None:
        """Hears nothing."""

    async def execute(self, *_said: str) -> None:
        raise self.fault

    def is_closed(self) -> bool:
        return False

    def terminate(self) -> None:
        self.terminated = True
