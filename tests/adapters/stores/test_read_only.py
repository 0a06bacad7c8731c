"""Read-only access to a database that another process owns."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from portico.adapters.stores.database import Database
from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.factory import open_read_only
from portico.adapters.stores.sqlite import open_sqlite
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, ConfigurationFailure, StorageFailure
from portico.domain.journal.events import ExecutionSuspended
from portico.domain.lifecycle import State
from portico.ports.storage import ExecutionFilter, SuspensionAnswers
from tests.support.another_user import as_ordinary_user
from tests.support.entropy import SeededEntropy
from tests.support.examples import COMPLETED, SUSPENSION, recorded_step, response
from tests.support.postgres import RealTimeDatabase, open_empty_postgres
from tests.support.stored_executions import answered, begun, journaled, moved
from tests.support.stores import RecordingSink, in_own_task, open_replica
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop


@dataclass
class Two:
    """The owner's database and the same database opened read-only."""

    owned: Database
    looked_at: Database


@asynccontextmanager
async def _two(kind: str, folder: Path, postgres_url: str) -> AsyncIterator[Two]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    url = postgres_url if kind == "postgres" else f"sqlite:///{folder}/portico.db"
    async with AsyncExitStack() as stack:
        owned: Database = await stack.enter_async_context(
            open_empty_postgres(url) if kind == "postgres" else open_sqlite(folder / "portico.db")
        )
        with loop.in_real_time():
            beside = await stack.enter_async_context(open_read_only(url, VirtualClock(), SeededEntropy(1)))
        yield Two(owned, RealTimeDatabase(beside))


@pytest.fixture(params=["sqlite", "postgres"])
async def two(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> AsyncIterator[Two]:
    async with in_own_task(_two(request.param, tmp_path, postgres_url)) as opened:
        yield opened


async def test_a_read_only_database_shows_committed_data_and_refuses_writes(two: Two, clock: VirtualClock) -> None:
    async with open_replica(two.owned, clock) as here:
        store = DatabaseExecutionStore(two.looked_at, clock, "looker", RecordingSink())
        await begun(here, "a", "r-a", moved(State.COMPLETE), COMPLETED)
        asked = ExecutionSuspended((SUSPENSION,), response(State.SUSPENDED))
        await begun(here, "b", "r-b", moved(State.SUSPENDED), asked)
        found = await store.executions(LOCAL.own, ExecutionFilter(), limit=9)
        assert [each.request_id for each in found.items] == ["r-b", "r-a"]
        assert await store.load("local", "a") == await here.store.load("local", "a")
        with pytest.raises(StorageFailure):
            await store.answer("local", "b", SuspensionAnswers([answered("s-1")]))
        with pytest.raises(StorageFailure):
            await store.claim("b", 1)
        await here.journal.open(journaled("c", "r-c"))
        here.journal.put("c", [recorded_step("0")], [])
        await here.journal.durable("c")
        seen = await store.load("local", "c")
        assert seen is not None
        assert list(seen.steps) == ["0"]
        assert (await here.store.answer("local", "b", SuspensionAnswers([answered("s-1")]))).open_suspensions == 0


@contextmanager
def without_write_permission(folder: Path) -> Iterator[None]:
    """Let this process read the folder only, as root too."""
    folder.chmod(0o555)
    for file in folder.iterdir():
        file.chmod(0o444)
    try:
        with as_ordinary_user():
            yield
    finally:
        folder.chmod(0o755)


async def test_a_closed_database_on_a_read_only_file_system_can_be_read(clock: VirtualClock) -> None:
    with TemporaryDirectory(prefix="portico-") as name:
        folder = Path(name)
        async with open_sqlite(folder / "portico.db") as database, open_replica(database, clock) as here:
            await begun(here, "a", "r-a", moved(State.COMPLETE), COMPLETED)
        with without_write_permission(folder):
            async with open_read_only(f"sqlite:///{folder}/portico.db", clock, SeededEntropy(0)) as read:
                store = DatabaseExecutionStore(read, clock, "looker", RecordingSink())
                assert await store.find(LOCAL.own, "r-a") is not None
        assert os.listdir(folder) == ["portico.db"]


async def test_a_missing_file_is_refused_and_not_created(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "nowhere" / "portico.db"
    with pytest.raises(ConfigurationFailure) as refused:
        async with open_read_only(f"sqlite:///{path}", clock, SeededEntropy(0)):
            pass
    assert refused.value.code is Code.CONFIG_INVALID
    assert not path.parent.exists()


async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "portico.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    before = path.read_bytes()
    with pytest.raises(StorageFailure):
        async with open_read_only(f"sqlite:///{path}", clock, SeededEntropy(0)) as database:
            await DatabaseExecutionStore(database, clock, "looker", RecordingSink()).find(LOCAL.own, "r-a")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["portico.db"]
