"""Every journal that a release has stored is replayed, continued, or refused, and never mistaken for another one."""

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
from portico.bootstrap.service import PATTERNS, open_history_reader
from portico.domain.access.principal import LOCAL
from portico.domain.failures import Code, StorageFailure
from portico.domain.lifecycle import TERMINAL, Mode, State
from portico.orchestration.runtime.replay import HistoryReader
from portico.ports.journal import ExecutionHistory
from portico.settings import Settings
from tests.support.entropy import SeededEntropy
from tests.support.golden_journals import (
    GOLDEN,
    GOLDEN_EXECUTIONS,
    Rows,
    answer_suspension_of,
    insert_rows,
    open_service_on,
    path_of,
    read_rows,
)
from tests.support.server_state import wait_for_idle
from tests.support.stores import RecordingSink
from tests.support.virtual_time import VirtualClock

JOURNALS = sorted(GOLDEN.glob("format-*/journals/*.json"))


def label(path: Path) -> str:
    """Return the format and the name of a journal."""
    return f"{path.parents[1].name}-{path.stem}"


def state(rows: Rows) -> State:
    return State(rows["executions"][0]["state"])


def of(*states: State) -> list[Path]:
    """Return the journals of executions in these states."""
    return [each for each in JOURNALS if state(read_rows(each)) in states]


def name(rows: Rows) -> str:
    found: str = rows["executions"][0]["request_id"]
    return found


def is_readable(rows: Rows) -> bool:
    """Return whether today's pattern continues journals of that version."""
    header = orjson.loads(rows["commits"][0]["outcome"])[1]
    pattern = PATTERNS[Mode(header["mode"])]
    return bool(pattern.oldest_version <= header["pattern_version"] <= pattern.version)


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


@pytest.mark.parametrize("mode", [Mode.CHAT, Mode.STRUCTURED, Mode.REDUNDANT, Mode.PLAN])
def test_there_are_golden_journals_of_every_version_that_is_read(mode: Mode) -> None:
    headers = [orjson.loads(read_rows(each)["commits"][0]["outcome"])[1] for each in JOURNALS]
    found = {header["pattern_version"] for header in headers if header["mode"] == mode}
    assert found >= set(range(PATTERNS[mode].oldest_version, PATTERNS[mode].version + 1))


def test_there_is_a_golden_journal_of_every_kind_of_execution() -> None:
    for name_, golden in GOLDEN_EXECUTIONS.items():
        assert path_of(name_, Mode(golden.fields.get("mode", "chat"))) in JOURNALS


@pytest.mark.parametrize("path", of(*TERMINAL, State.SUSPENDED), ids=label)
async def test_a_golden_journal_is_replayed_step_by_step_or_refused(path: Path, tmp_path: Path) -> None:
    rows = read_rows(path)
    async with history_reader(await stored(tmp_path, rows)) as reader:
        if not is_readable(rows):
            with pytest.raises(StorageFailure) as refused:
                await reader.replay(LOCAL.tenant, name(rows))
            assert refused.value.code is Code.STORAGE_SNAPSHOT_INVALID
            return
        report = await reader.replay(LOCAL.tenant, name(rows))
    assert report.identical, report
    assert report.steps


@pytest.mark.parametrize("path", of(State.SUSPENDED), ids=label)
async def test_a_golden_suspension_is_resumed_or_refused_and_left_unchanged(path: Path, tmp_path: Path) -> None:
    rows = read_rows(path)
    async with open_service_on(await stored(tmp_path, rows)) as service:
        executions = service.facade.executions
        before = await executions.show(LOCAL, name(rows))
        if not is_readable(rows):
            with pytest.raises(StorageFailure) as refused:
                await answer_suspension_of(service, name(rows))
            assert refused.value.code is Code.STORAGE_SNAPSHOT_INVALID
            assert await executions.show(LOCAL, name(rows)) == before
            return
        for _ in before.suspensions:
            await answer_suspension_of(service, name(rows))
        shown = await executions.show(LOCAL, name(rows))
        assert (await executions.replay(LOCAL, name(rows))).identical
    assert shown.state is State.COMPLETE


@pytest.mark.parametrize("path", of(State.EXECUTE), ids=label)
async def test_a_golden_interruption_is_continued_or_fails_with_the_reason(path: Path, tmp_path: Path) -> None:
    rows = read_rows(path)
    async with open_service_on(await stored(tmp_path, rows)) as service:
        await wait_for_idle(service)
        shown = await service.facade.executions.show(LOCAL, name(rows))
    if is_readable(rows):
        assert shown.state is State.COMPLETE
    else:
        assert shown.last_error is not None
        assert (shown.state, shown.last_error.code) == (State.ERROR, Code.STORAGE_SNAPSHOT_INVALID)


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


@pytest.mark.parametrize("path", JOURNALS, ids=label)
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


@pytest.mark.parametrize("path", JOURNALS, ids=label)
async def test_a_golden_journal_that_lacks_a_commit_is_refused(path: Path, tmp_path: Path, clock: VirtualClock) -> None:
    rows = read_rows(path)
    for number in range(1, len(rows["commits"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        left = [each for each in rows["commits"] if each["number"] != number]
        database = await stored(folder, {**rows, "commits": left})
        assert await refused(database, clock, rows["executions"][0]["execution_id"])
