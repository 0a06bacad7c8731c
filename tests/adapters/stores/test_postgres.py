"""Transactions while the server restarts, is unreachable or silent, or aborts them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import asyncpg
import pytest
from sqlalchemy import Double, bindparam, func, select, update

from portico.adapters.stores.database import Statement, Transaction, execute
from portico.adapters.stores.postgres import SCHEMA_LOCK, PostgresTimeouts
from portico.adapters.stores.schema import idempotency_keys
from portico.domain.failures import Code, StorageFailure
from tests.support.examples import MOVED, header, recorded_step, unnumbered
from tests.support.postgres import RealTimeDatabase, open_empty_postgres, open_real_time_postgres
from tests.support.postgres_proxy import PostgresProxy, postgres_proxy
from tests.support.stores import in_own_task, open_replica
from tests.support.virtual_time import VirtualClock

SHORT = PostgresTimeouts(statement=2.0, connect=1.0, acquire=0.3, initial_backoff=0.01, max_backoff=0.05)
INSERT = Statement(lambda insert: insert(idempotency_keys))
COUNT = Statement(lambda _: select(idempotency_keys.c.key).where(idempotency_keys.c.key == bindparam("the_key")))
SLEEP = Statement(lambda _: select(func.pg_sleep(bindparam("seconds", type_=Double))))


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[PostgresProxy]:
    with TemporaryDirectory(prefix="proxy-") as folder:
        async with in_own_task(postgres_proxy(postgres_url, Path(folder))) as opened:
            yield opened


@pytest.fixture
async def database(proxy: PostgresProxy) -> AsyncIterator[RealTimeDatabase]:
    async with in_own_task(open_empty_postgres(proxy.url, SHORT)) as opened:
        yield opened


def inserting(key: str) -> Transaction[None]:
    """Insert a key; the database refuses it the second time."""
    values = {"tenant": "t", "key": key, "body_digest": "", "execution_id": "", "created_at": 0.0}
    yield from execute(INSERT, values)


async def found(database: RealTimeDatabase, key: str) -> int:
    return len(await database.read(lambda: execute(COUNT, {"the_key": key})))


async def unavailable(work: object) -> None:
    with pytest.raises(StorageFailure) as caught:
        await work
    assert caught.value.code is Code.STORAGE_UNAVAILABLE
    assert caught.value.status == 503


async def test_a_broken_connection_is_replaced_and_the_transaction_retried(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    await database.write(lambda: inserting("a"))
    proxy.cut()
    await database.write(lambda: inserting("b"))
    assert [await found(database, key) for key in "ab"] == [1, 1]


async def test_a_transaction_interrupted_midway_is_applied_once(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    tries = 0

    def cut_once() -> Transaction[None]:
        nonlocal tries
        tries += 1
        yield from inserting("a")
        if tries == 1:
            proxy.cut()
        yield from inserting("b")

    await database.write(cut_once)
    assert tries == 2
    assert [await found(database, key) for key in "ab"] == [1, 1]


async def test_a_connection_with_an_internal_client_error_is_replaced(database: RealTimeDatabase) -> None:
    tries = 0

    def lost_once() -> Transaction[None]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
        yield from inserting("a")

    await database.write(lost_once)
    assert tries == 2
    assert await found(database, "a") == 1


async def test_an_unreachable_server_fails_and_is_found_again_later(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    proxy.refusing = True
    proxy.cut()
    await unavailable(database.write(lambda: inserting("a")))
    proxy.refusing = False
    await database.write(lambda: inserting("a"))
    assert await found(database, "a") == 1


async def test_a_lost_commit_answer_fails_a_transaction_that_is_not_idempotent(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    proxy.lose_commits = 1
    await unavailable(database.write(lambda: inserting("a")))
    assert await found(database, "a") == 1


async def test_a_lost_commit_answer_is_recognised_by_the_ordered_writer(
    database: RealTimeDatabase, proxy: PostgresProxy, clock: VirtualClock
) -> None:
    async with open_replica(database, clock) as here:
        opened = replace(header("a"), durability="journaled")
        proxy.lose_commits = 1
        await here.journal.open(opened)
        for number in range(5):
            proxy.lose_commits = 1
            here.journal.put("a", [recorded_step(f"{number}")], unnumbered(MOVED))
            await here.journal.durable("a")
        record = await here.store.load("local", "a")
        assert record is not None
        assert record.commit_count == 5
        assert [each.sequence_number for each in record.events] == [1, 2, 3, 4, 5]
        assert here.sink.sequence_numbers("a") == [1, 2, 3, 4, 5]
        assert here.losses.lost == {}


async def test_a_server_that_is_away_for_less_than_its_time_is_waited_for(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    proxy.refusing = True
    proxy.cut()

    async def come_back() -> None:
        await anyio.sleep(1.0)
        proxy.refusing = False

    async with anyio.create_task_group() as group:
        group.start_soon(come_back)
        group.start_soon(database.write, lambda: inserting("a"))
        group.start_soon(database.append, lambda: inserting("b"))
    assert [await found(database, key) for key in "ab"] == [1, 1]


async def test_a_silent_server_is_given_up_within_the_statement_timeout(
    database: RealTimeDatabase, proxy: PostgresProxy, clock: VirtualClock
) -> None:
    accesses: list[Callable[[], Awaitable[object]]] = [
        partial(found, database, "a"),
        partial(database.write, lambda: inserting("a")),
        partial(database.append, lambda: inserting("a")),
        database.check,
    ]
    took: list[float] = []

    async def measure(access: Callable[[], Awaitable[object]]) -> None:
        began = clock.monotonic()
        await unavailable(access())
        took.append(clock.monotonic() - began)

    proxy.silent = True
    async with anyio.create_task_group() as group:
        for access in accesses:
            group.start_soon(measure, access)
    assert max(took) < SHORT.statement
    proxy.silent = False
    assert await found(database, "a") == 0


async def test_idle_connections_to_a_silent_server_are_not_used_again(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(database.read, lambda: execute(SLEEP, {"seconds": 0.1}))
    proxy.silent = True
    await unavailable(found(database, "a"))
    proxy.silent = False
    before = proxy.connections
    assert await found(database, "a") == 0
    assert proxy.connections == before + 1


async def test_a_silent_server_is_unhealthy_until_it_answers(database: RealTimeDatabase, proxy: PostgresProxy) -> None:
    assert database.health.failure is None
    proxy.silent = True
    await unavailable(database.write(lambda: inserting("a")))
    assert database.health.failure is not None
    proxy.silent = False
    await database.check()
    assert database.health.failure is not None, "only a write shows that it can be written"
    await database.write(lambda: inserting("a"))
    assert database.health.failure is None


async def test_maintenance_and_the_creation_of_the_schema_take_longer_than_a_statement_may(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    seconds = {"seconds": SHORT.statement + 0.5}
    await unavailable(database.write(lambda: execute(SLEEP, seconds)))
    await database.maintain(lambda: execute(SLEEP, seconds))
    # The time of this loop is virtual: a limit would pass at once while the server has work to do.
    creating = await asyncpg.connect(proxy.url, timeout=None)
    await creating.execute("SELECT pg_advisory_lock($1)", SCHEMA_LOCK)

    async def end_creation() -> None:
        await creating.execute("SELECT pg_sleep($1)", seconds["seconds"])
        await creating.close()

    async with anyio.create_task_group() as group:
        group.start_soon(end_creation)
        async with open_real_time_postgres(proxy.url, SHORT) as opened:
            assert await found(opened, "a") == 0


async def test_a_connection_with_a_cancelled_query_is_not_reused(
    database: RealTimeDatabase, proxy: PostgresProxy
) -> None:
    assert await found(database, "a") == 0
    before = proxy.connections
    with anyio.move_on_after(0.1):
        await database.read(lambda: execute(SLEEP, {"seconds": 30.0}))
    assert await found(database, "a") == 0
    assert proxy.connections > before


async def test_a_request_without_a_free_connection_fails_fast(
    database: RealTimeDatabase, proxy: PostgresProxy, clock: VirtualClock
) -> None:
    outcomes: list[Code | None] = []

    async def read() -> None:
        try:
            await database.read(lambda: execute(SLEEP, {"seconds": 0.6}))
        except StorageFailure as failure:
            outcomes.append(failure.code)
        else:
            outcomes.append(None)

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(read)
    assert outcomes.count(Code.STORAGE_UNAVAILABLE) == 4
    assert outcomes.count(None) == 8


async def test_one_of_two_deadlocked_transactions_is_retried(postgres_url: str) -> None:
    tries: list[str] = []

    def crossing(first: str, second: str) -> Transaction[None]:
        tries.append(first)
        yield from execute(TOUCH, {"the_key": first})
        yield from execute(SLEEP, {"seconds": 0.3})
        yield from execute(TOUCH, {"the_key": second})

    async with open_empty_postgres(postgres_url, PostgresTimeouts()) as database:
        for key in "ab":
            await database.write(partial(inserting, key))
        async with anyio.create_task_group() as group:
            group.start_soon(database.write, partial(crossing, "a", "b"))
            group.start_soon(database.write, partial(crossing, "b", "a"))
        touched = [await database.read(partial(execute, TOUCHED, {"the_key": key})) for key in "ab"]
    assert len(tries) == 3
    assert [rows[0][0] for rows in touched] == [2.0, 2.0]


TOUCHED = Statement(
    lambda _: select(idempotency_keys.c.created_at).where(idempotency_keys.c.key == bindparam("the_key"))
)
TOUCH = Statement(
    lambda _: (
        update(idempotency_keys)
        .where(idempotency_keys.c.key == bindparam("the_key"))
        .values(created_at=idempotency_keys.c.created_at + 1)
    )
)
