"""One process owns a SQLite file; what it answered for is there, and a full disk takes nothing that it had not."""

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.adapters.stores.database import Statement, Transaction, ask
from app.adapters.stores.sqlite import SqliteDatabase, open_sqlite
from app.domain.failures import Code, ConfigurationFailure, StorageFailure
from tests.support.examples import MOVED, anchored, header, row
from tests.support.stores import in_a_task, replica
from tests.support.virtual_time import VirtualClock

OWNING = """
import asyncio, sys
from pathlib import Path
from app.adapters.stores.sqlite import open_sqlite
async def own():
    async with open_sqlite(Path(sys.argv[1])):
        print("owned", flush=True)
        sys.stdin.read()
asyncio.run(own())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "portico.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    async with in_a_task(open_sqlite(path)) as opened:
        yield opened


async def test_b4_82_a_second_owner_is_refused_by_name_and_the_first_is_none_the_worse(
    database: SqliteDatabase, path: Path, clock: VirtualClock
) -> None:
    with pytest.raises(ConfigurationFailure, match="another process owns") as refused:
        async with open_sqlite(path):
            pass
    assert refused.value.code is Code.CONFIG_INVALID
    async with replica(database, clock) as here:
        await here.journal.open(replace(header("a"), durability="journaled"))


async def test_b4_82_a_dead_owner_leaves_the_file_free(path: Path) -> None:
    command = [sys.executable, "-c", OWNING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        with pytest.raises(ConfigurationFailure):
            async with open_sqlite(path):
                pass
        owner.kill()
        owner.wait()
    async with open_sqlite(path):
        pass


async def test_the_journal_is_written_ahead_and_synced_before_anything_is_answered(database: SqliteDatabase) -> None:
    def pragmas() -> Transaction[list[object]]:
        answers = []
        for name in ("journal_mode", "synchronous"):
            answers.append((yield from ask(Statement(lambda _, name=name: text(f"PRAGMA {name}")), {}))[0][0])
        return answers
