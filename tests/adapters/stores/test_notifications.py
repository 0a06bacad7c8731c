"""Notifications between replicas: immediate, batched, and resumed after a lost connection."""

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
    """Notifications that one replica received."""

    grown: list[str] = field(default_factory=list)
    cancels: int = 0

    def cancel(self) -> None:
        self.cancels += 1


@asynccontextmanager
async def talking(url: str, *, alone: bool = False) -> AsyncIterator[tuple[PostgresNotifications, Ears]]:
    """Run a sender and a receiver."""
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


async def test_a_grown_log_is_announced_to_all_replicas(postgres_url: str) -> None:
    async with talking(postgres_url) as (mouth, ears):
        mouth.publish("a", [EVENT])
        await until(lambda: ears.grown == ["a"])


async def test_many_notifications_at_once_all_arrive_once(postgres_url: str) -> None:
    names = [f"execution-{number:026}" for number in range(1_000)]
    async with talking(postgres_url) as (mouth, ears):
        for name in names * 2:
            mouth.publish(name, [EVENT])
        await until(lambda: len(ears.grown) >= len(names))
    assert ears.grown == names


async def test_deltas_are_not_announced(postgres_url: str) -> None:
    async with talking(postgres_url) as (mouth, ears):
        mouth.publish("streams", [DELTA])
        mouth.publish("a", [EVENT])
        await until(lambda: ears.grown == ["a"])


async def test_a_lone_replica_announces_cancels_only(postgres_url: str) -> None:
    async with talking(postgres_url, alone=True) as (mouth, ears):
        mouth.publish("a", [EVENT])
        mouth.notify_cancel("a")
        await until(lambda: ears.cancels == 2)
    assert ears.grown == []


async def test_b4_84_a_disconnected_replica_listens_again_and_checks_for_missed_cancels(postgres_url: str) -> None:
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
async def test_b4_84_an_error_of_a_notification_only_costs_its_connection(postgres_url: str, fault: Exception) -> None:
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
    """A connection on which sending fails."""

    fault: Exception
    terminated: bool = False

    async def add_listener(self, _channel: str, _heard: object) -> None:
        """Receive nothing."""

    async def execute(self, *_said: str) -> None:
        raise self.fault

    def is_closed(self) -> bool:
        return False

    def terminate(self) -> None:
        self.terminated = True
