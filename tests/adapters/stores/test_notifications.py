"""Notifications between replicas: immediate, batched, and resumed after a lost connection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import asyncpg
import pytest

from portico.adapters.event_bus import EventBus
from portico.adapters.stores.notifications import NotificationHandlers, PostgresNotifications
from portico.domain.journal.events import CorrelationContext, InferenceDelta, LiveDelta, StoredEvent
from tests.support.examples import SPAN, STARTED, TRACE
from tests.support.harness import fail_on_fault
from tests.support.virtual_time import VirtualTimeLoop

ROOT = CorrelationContext("r-a", None, TRACE, SPAN, None)
EVENT = StoredEvent(1, 1.0, "0", ROOT, STARTED)
DELTA = LiveDelta(1.0, ROOT, InferenceDelta("0/0", 0, text="Hello"))


@dataclass
class Received:
    """Notifications that one replica received."""

    grown: list[str] = field(default_factory=list)
    cancels: int = 0

    def cancel(self) -> None:
        self.cancels += 1


@asynccontextmanager
async def connected(url: str, *, alone: bool = False) -> AsyncIterator[tuple[PostgresNotifications, Received]]:
    """Run a sender and a receiver."""
    connect = partial(asyncpg.connect, url)
    sender = PostgresNotifications(connect, lambda: alone, response_timeout=2.0)
    receiver = PostgresNotifications(connect, lambda: False, response_timeout=2.0)
    received = Received()
    with _real_time():
        async with anyio.create_task_group() as group:
            group.start_soon(sender.run, NotificationHandlers(lambda _: None, lambda: None))
            group.start_soon(receiver.run, NotificationHandlers(received.grown.append, received.cancel))
            await until(lambda: received.cancels == 1)
            yield sender, received
            group.cancel_scope.cancel()


@contextmanager
def _real_time() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    with loop.in_real_time():
        yield


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - a server has no event for it
            await anyio.sleep(0.01)


async def test_a_grown_log_is_announced_to_all_replicas(postgres_url: str) -> None:
    async with connected(postgres_url) as (sender, received):
        sender.publish("a", [EVENT])
        await until(lambda: received.grown == ["a"])


async def test_many_notifications_at_once_all_arrive_once(postgres_url: str) -> None:
    names = [f"execution-{number:026}" for number in range(1_000)]
    async with connected(postgres_url) as (sender, received):
        for name in names * 2:
            sender.publish(name, [EVENT])
        await until(lambda: len(received.grown) >= len(names))
    assert received.grown == names


async def test_deltas_are_not_announced(postgres_url: str) -> None:
    async with connected(postgres_url) as (sender, received):
        bus = EventBus([sender], capacity=1, on_fault=fail_on_fault, on_drop=lambda: None)
        bus.publish("streams", [DELTA])
        bus.publish("a", [EVENT])
        await until(lambda: received.grown == ["a"])


async def test_a_lone_replica_announces_cancels_only(postgres_url: str) -> None:
    async with connected(postgres_url, alone=True) as (sender, received):
        sender.publish("a", [EVENT])
        sender.notify_cancel("a")
        await until(lambda: received.cancels == 2)
    assert received.grown == []


async def test_a_disconnected_replica_listens_again_and_checks_for_missed_cancels(postgres_url: str) -> None:
    async with connected(postgres_url) as (sender, received):
        connection = await asyncpg.connect(postgres_url)
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        await connection.close()
        await until(lambda: received.cancels >= 2)
        while "a" not in received.grown:
            sender.publish("a", [EVENT])
            await anyio.sleep(0.1)


@pytest.mark.parametrize("fault", [asyncpg.InternalClientError("no place"), asyncpg.QueryCanceledError("too slow")])
async def test_an_error_of_a_notification_only_costs_its_connection(postgres_url: str, fault: Exception) -> None:
    first, received = Failing(fault), Received()

    async def connect() -> object:
        return await asyncpg.connect(postgres_url) if first.terminated else first

    notifications = PostgresNotifications(connect, lambda: False)
    with _real_time():
        async with anyio.create_task_group() as group:
            group.start_soon(notifications.run, NotificationHandlers(received.grown.append, received.cancel))
            await until(lambda: received.cancels == 1)
            notifications.notify_cancel("a")
            await until(lambda: received.cancels == 2)
            group.cancel_scope.cancel()
    assert first.terminated


@dataclass
class Failing:
    """A connection on which sending fails."""

    fault: Exception
    terminated: bool = False

    async def add_listener(self, _channel: str, _callback: object) -> None:
        """Receive nothing."""

    async def execute(self, *_arguments: str) -> None:
        raise self.fault

    def is_closed(self) -> bool:
        return False

    def terminate(self) -> None:
        self.terminated = True
