"""SQLite files: one owner, durable commits, and refused writes on a full disk."""

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from portico.adapters.stores.sqlite import SqliteDatabase, open_sqlite
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, ConfigurationFailure, StorageFailure
from tests.support.examples import MOVED, header, recorded_step, unnumbered
from tests.support.file_size import limited_file_size, wal_size
from tests.support.stores import in_own_task, open_replica
from tests.support.virtual_time import VirtualClock

OWNING = """
import asyncio, sys
from pathlib import Path
from portico.adapters.stores.sqlite import open_sqlite
async def own():
    async with open_sqlite(Path(sys.argv[1])):
        print("owned", flush=True)
        sys.stdin.read()
asyncio.run(own())
"""


@contextmanager
def owned_elsewhere(path: Path) -> Iterator[None]:
    """Run another process that owns the file, and kill it at the end."""
    command = [sys.executable, "-c", OWNING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        yield
        owner.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "portico.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    async with in_own_task(open_sqlite(path)) as opened:
        yield opened


async def test_a_second_owner_is_refused_and_the_first_continues(
    database: SqliteDatabase, path: Path, clock: VirtualClock
) -> None:
    with pytest.raises(ConfigurationFailure, match="another process owns") as refused:
        async with open_sqlite(path):
            pass
    assert refused.value.code is Code.CONFIG_INVALID
    async with open_replica(database, clock) as here:
        await here.journal.open(replace(header("a"), durability="journaled"))


async def test_the_file_of_a_dead_owner_can_be_opened(path: Path) -> None:
    with owned_elsewhere(path), pytest.raises(ConfigurationFailure):
        async with open_sqlite(path):
            pass
    async with open_sqlite(path):
        pass


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
async def test_a_file_that_is_owned_cannot_be_opened_through_a_link(
    path: Path, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "elsewhere" / "other.db"
    other.parent.mkdir()
    async with open_sqlite(path):
        pass
    link(other, path)
    with owned_elsewhere(path), pytest.raises(ConfigurationFailure, match="another process owns"):
        async with open_sqlite(other):
            pass
    async with open_sqlite(other):
        pass


async def on_writer(database: SqliteDatabase, sql: str) -> object:
    """Return the answer of the writing connection."""
    return await database._writer.run_alone(lambda connection: connection.execute(sql).fetchone()[0])


async def test_the_file_has_a_write_ahead_log_and_full_synchronisation(database: SqliteDatabase) -> None:
    assert await on_writer(database, "PRAGMA journal_mode") == "wal"
    assert await on_writer(database, "PRAGMA synchronous") == 2


async def test_a_full_disk_refuses_writes_until_there_is_room(database: SqliteDatabase, clock: VirtualClock) -> None:
    """Try every page as the one at which the disk is full."""
    full: list[tuple[Code, int]] = []
    pages = await on_writer(database, "PRAGMA page_count")
    assert isinstance(pages, int)
    async with open_replica(database, clock) as here:
        for room in range(24):
            name = f"e-{room}"
            await on_writer(database, f"PRAGMA max_page_count = {pages + room}")
            durable = -1
            try:
                await here.journal.open(replace(header(name, name), durability="journaled"))
                for number in range(8):
                    here.journal.put(name, [recorded_step(f"{number}")], unnumbered(*[MOVED] * 20))
                    await here.journal.durable(name)
                    durable = number
            except StorageFailure as failure:
                full.append((failure.code, failure.status))
            await on_writer(database, "PRAGMA max_page_count = 1000000")
            record = await here.store.load("local", name)
            stored = [] if record is None else list(record.steps)
            assert stored == [f"{number}" for number in range(durable + 1)]
            assert here.sink.sequence_numbers(name) == list(range(1, 20 * len(stored) + 1))
            assert (name in here.losses.lost) == (durable < 7)
            here.journal.close(name)
            pages = await on_writer(database, "PRAGMA page_count")
            assert isinstance(pages, int)
            if durable == 7:
                break
        assert len(full) > 3
        assert set(full) == {(Code.STORAGE_FULL, 503)}
        await here.journal.open(replace(header("after", "after"), durability="journaled"))


def damage_file(path: Path) -> None:
    """Overwrite everything but the first page."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"damage" * (size // 6))


async def test_a_limited_file_size_is_a_full_disk_until_it_is_lifted(
    database: SqliteDatabase, path: Path, clock: VirtualClock
) -> None:
    async with open_replica(database, clock) as here:
        await here.journal.open(replace(header("a"), durability="journaled"))
        with limited_file_size(wal_size(path) + 20_000):
            for number in range(100):
                here.journal.put("a", [recorded_step(f"{number}")], unnumbered(*[MOVED] * 20))
            with pytest.raises(StorageFailure) as full:
                await here.journal.durable("a")
            assert full.value.code is Code.STORAGE_FULL
            assert await here.store.find(LOCAL.own, "r-1") is not None
            for _ in range(3):
                with pytest.raises(StorageFailure):
                    await database.check()
                assert database.health.failure is not None
        await database.check()
        assert database.health.failure is None


async def test_a_damaged_file_is_never_healthy_again(database: SqliteDatabase, path: Path, clock: VirtualClock) -> None:
    async with open_replica(database, clock) as here:
        await here.journal.open(replace(header("a"), durability="journaled"))
        await database._writer.run_alone(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        await database._writer.run_alone(lambda connection: connection.execute("PRAGMA shrink_memory"))
        damage_file(path)
        with pytest.raises(StorageFailure) as damaged:
            await here.journal.open(replace(header("b", "r-2"), durability="journaled"))
        assert (damaged.value.code, damaged.value.message) == (
            Code.STORAGE_UNAVAILABLE,
            "the database file is damaged",
        )
        with pytest.raises(StorageFailure) as still_damaged:
            await database.check()
        database.health.succeeded(writing=True)
        assert database.health.failure is still_damaged.value


async def test_a_write_waits_for_a_foreign_writer(database: SqliteDatabase, path: Path, clock: VirtualClock) -> None:
    beside = sqlite3.connect(path, isolation_level=None)
    beside.execute("BEGIN IMMEDIATE")
    async with open_replica(database, clock) as here, anyio.create_task_group() as group:
        group.start_soon(here.journal.open, replace(header("a"), durability="journaled"))
        await checkpoint()
        beside.execute("COMMIT")
    beside.close()
    async with open_replica(database, clock) as here:
        assert await here.store.find(LOCAL.own, "r-1") is not None


@pytest.fixture
def no_database(path: Path) -> Path:
    path.write_bytes(b"no database" * 1_000)
    return path


async def test_a_file_that_is_not_a_database_is_refused(no_database: Path) -> None:
    with pytest.raises(StorageFailure):
        async with open_sqlite(no_database):
            pass


async def test_a_file_that_cannot_be_written_is_refused_with_the_settings_key(no_database: Path) -> None:
    with pytest.raises(ConfigurationFailure, match="cannot write"):
        async with open_sqlite(no_database / "portico.db"):
            pass


async def test_a_reader_needs_no_lock(database: SqliteDatabase, path: Path, clock: VirtualClock) -> None:
    async with open_replica(database, clock) as here:
        await here.journal.open(replace(header("a"), durability="journaled"))
        beside = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        assert beside.execute("SELECT request_id FROM executions").fetchall() == [("r-1",)]
        beside.close()
