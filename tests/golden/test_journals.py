"""Golden journals are replayed offline and continued; one of another pattern version or tampered with is refused."""

import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.factory import open_read_only
from portico.adapters.stores.sqlite import open_sqlite
from portico.bootstrap.service import open_history_reader
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, StorageFailure
from portico.domain.lifecycle import TERMINAL, State
from portico.orchestration.runtime.replay import HistoryReader
from portico.ports.journal import ExecutionHistory
from portico.settings import Settings
from tests.support.entropy import SeededEntropy
from tests.support.golden_journals import (
    GOLDEN_EXECUTIONS,
    JOURNALS,
    Rows,
    answer_suspension_of,
    insert_rows,
    open_service_on,
    path_of,
    read_rows,
    records,
)
from tests.support.server_state import wait_for_idle
from tests.support.stored_format import CODECS, GOLDEN
from tests.support.stores import RecordingSink
from tests.support.virtual_time import VirtualClock

PATHS = sorted(JOURNALS.iterdir())


def label(path: Path) -> str:
    return path.stem


def state(rows: Rows) -> State:
    return State(rows["executions"][0]["state"])


def of(*states: State) -> list[Path]:
    """Return the journals of executions in these states."""
    return [each for each in PATHS if state(read_rows(each)) in states]


def name(rows: Rows) -> str:
    found: str = rows["executions"][0]["request_id"]
    return found


def with_pattern_version(rows: Rows, version: int) -> Rows:
    """Return the journal with that version of its pattern."""
    first, *others = rows["commits"]
    outcome, changes = re.subn(r'"pattern_version":\d+', f'"pattern_version":{version}', first["outcome"], count=1)
    assert changes
    return {**rows, "commits": [{**first, "outcome": outcome}, *others]}


async def stored(folder: Path, rows: Rows) -> Path:
    """Return the path of a database with that journal."""
    database = folder / "portico.db"
    async with open_sqlite(database):
        pass
    insert_rows(database, rows)
    return database


@asynccontextmanager
async def history_reader(database: Path) -> AsyncIterator[HistoryReader]:
    settings = Settings.model_validate({"storage": {"url": f"sqlite:///{database}"}})
    async with open_history_reader(settings) as opened:
        yield opened


def test_there_is_one_golden_journal_of_every_kind_of_execution_and_of_this_format() -> None:
    assert {*PATHS} == {*map(path_of, GOLDEN_EXECUTIONS)}
    assert [each.name for each in GOLDEN.parent.glob("format-*")] == [GOLDEN.name]


@pytest.mark.parametrize("path", PATHS, ids=label)
def test_every_record_of_a_golden_journal_is_written_again_as_it_was(path: Path) -> None:
    """Whole seconds may be stored as integers; they are read as floats."""
    for kind, record in records(read_rows(path)):
        encode, decode = CODECS[kind]
        assert orjson.loads(encode(decode(record))) == orjson.loads(record)


@pytest.mark.parametrize("path", of(*TERMINAL, State.SUSPENDED), ids=label)
async def test_a_golden_journal_is_replayed_step_by_step(path: Path, tmp_path: Path) -> None:
    rows = read_rows(path)
    async with history_reader(await stored(tmp_path, rows)) as reader:
        report = await reader.replay(LOCAL.tenant, name(rows))
    assert report.identical, report
    assert report.steps


@pytest.mark.parametrize("path", of(State.SUSPENDED), ids=label)
async def test_a_golden_suspension_is_resumed(path: Path, tmp_path: Path) -> None:
    rows = read_rows(path)
    async with open_service_on(await stored(tmp_path, rows)) as service:
        executions = service.facade.executions
        before = await executions.show(LOCAL, name(rows))
        for _ in before.suspensions:
            await answer_suspension_of(service, name(rows))
        shown = await executions.show(LOCAL, name(rows))
        assert (await executions.replay(LOCAL, name(rows))).identical
    assert shown.state is State.COMPLETE


@pytest.mark.parametrize("path", of(State.EXECUTE), ids=label)
async def test_a_golden_interruption_is_continued(path: Path, tmp_path: Path) -> None:
    rows = read_rows(path)
    async with open_service_on(await stored(tmp_path, rows)) as service:
        await wait_for_idle(service)
        shown = await service.facade.executions.show(LOCAL, name(rows))
    assert shown.state is State.COMPLETE


@pytest.mark.parametrize("version", [0, 2])
async def test_a_suspension_of_another_pattern_version_is_refused_and_left_unchanged(
    version: int, tmp_path: Path
) -> None:
    rows = with_pattern_version(read_rows(path_of("chat-suspended")), version)
    async with open_service_on(await stored(tmp_path, rows)) as service:
        executions = service.facade.executions
        before = await executions.show(LOCAL, name(rows))
        for attempt in (answer_suspension_of(service, name(rows)), executions.replay(LOCAL, name(rows))):
            with pytest.raises(StorageFailure) as refused:
                await attempt
            assert refused.value.code is Code.STORAGE_SNAPSHOT_INVALID
        assert await executions.show(LOCAL, name(rows)) == before


@pytest.mark.parametrize(("version", "state"), [(0, State.ERROR), (2, State.EXECUTE)])
async def test_an_interruption_of_an_older_pattern_version_ends_and_of_a_newer_one_waits(
    version: int, state: State, tmp_path: Path
) -> None:
    rows = with_pattern_version(read_rows(path_of("chat-interrupted")), version)
    async with open_service_on(await stored(tmp_path, rows)) as service:
        await wait_for_idle(service)
        shown = await service.facade.executions.show(LOCAL, name(rows))
    assert shown.state is state
    if state is State.ERROR:
        assert shown.last_error is not None
        assert shown.last_error.code is Code.STORAGE_SNAPSHOT_INVALID


def tampered(rows: Rows) -> Iterator[tuple[str, int, Any]]:
    """Yield a column, the number of a commit, and a wrong value for it."""
    for commit in rows["commits"]:
        number = commit["number"]
        for column in ("outcome", "events"):
            if commit[column] is not None:
                encoded = commit[column].encode()
                yield column, number, encoded[: len(encoded) // 2]
                yield column, number, b"[99," + encoded.partition(b",")[2]
                yield column, number, encoded.replace(b'":', b'_of_later":', 1)
                yield column, number, b"\x80\x04\x95\x00"
                yield column, number, 7
        if commit["first_event"] is not None:
            yield "first_event", number, commit["first_event"] + 1
        yield "number", number, 1_000


async def load(database: Path, clock: VirtualClock, execution_id: str) -> ExecutionHistory | None:
    async with open_read_only(f"sqlite:///{database}", clock, SeededEntropy(0)) as beside:
        return await DatabaseExecutionStore(beside, clock, "reader", RecordingSink()).load(LOCAL.tenant, execution_id)


async def refused(database: Path, clock: VirtualClock, execution_id: str) -> bool:
    try:
        found = await load(database, clock, execution_id)
    except StorageFailure as failure:
        return failure.code is Code.STORAGE_SNAPSHOT_INVALID
    assert found is not None
    return False


@pytest.mark.parametrize("path", PATHS, ids=label)
async def test_a_golden_journal_that_was_tampered_with_is_refused(
    path: Path, tmp_path: Path, clock: VirtualClock
) -> None:
    rows = read_rows(path)
    database = await stored(tmp_path, rows)
    execution_id = rows["executions"][0]["execution_id"]
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for column, number, other in tampered(rows):
            connection.execute("BEGIN")
            before = connection.execute(f"SELECT {column} FROM commits WHERE number = ?", [number]).fetchone()
            connection.execute(f"UPDATE commits SET {column} = ? WHERE number = ?", [other, number])
            connection.execute("COMMIT")
            assert await refused(database, clock, execution_id), (column, number, other)
            moved = other if column == "number" else number
            connection.execute(f"UPDATE commits SET {column} = ? WHERE number = ?", [before[0], moved])
    assert not await refused(database, clock, execution_id)


@pytest.mark.parametrize("path", PATHS, ids=label)
async def test_a_golden_journal_that_lacks_a_commit_is_refused(path: Path, tmp_path: Path, clock: VirtualClock) -> None:
    rows = read_rows(path)
    for number in range(1, len(rows["commits"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        left = [each for each in rows["commits"] if each["number"] != number]
        database = await stored(folder, {**rows, "commits": left})
        assert await refused(database, clock, rows["executions"][0]["execution_id"])
