"""A database that an earlier release wrote is opened, read, continued and extended by this one.

`before.db` was written by the first release. GOLDEN_DATABASES may name another directory with such a file.
"""

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from portico.adapters.stores import codec
from portico.bootstrap.service import Service, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.request import SystemRequest
from portico.domain.lifecycle import TERMINAL, State
from portico.orchestration.executions import ExecutionView
from portico.orchestration.facade import Accepted
from portico.orchestration.runtime.fork import ForkRequest
from portico.ports.storage import ExecutionFilter, SuspensionFilter
from portico.settings import Settings
from tests.support.golden_journals import NEVER_EXPIRES, answer_suspension_of, wait_for_end
from tests.support.stored_format import assert_keeps

BEFORE = Path(os.environ.get("GOLDEN_DATABASES", Path(__file__).parent)).absolute() / "before.db"

NAMED = {"g-chat", "g-chat-2", "g-ask", "g-plan", "g-vote"}
"""The request ids of the stored executions; the fork has a generated one."""
RETENTION_DAYS = 36_500


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a copy of the database, whose open suspension does not expire."""
    copied = tmp_path / "portico.db"
    shutil.copyfile(BEFORE, copied)
    with closing(sqlite3.connect(copied)) as connection:
        connection.execute("UPDATE suspensions SET expires_at = ?", [NEVER_EXPIRES])
        connection.commit()
    return copied


@asynccontextmanager
async def opened(database: Path) -> AsyncIterator[Service]:
    """Open a service on that file, with the rehearsal engine and the longest retention."""
    tables = {
        "storage": {"url": f"sqlite:///{database}", "event_retention_days": RETENTION_DAYS},
        "server": {"drain_seconds": 0.1},
        "telemetry": {"log_level": "error"},
    }
    async with open_service(Settings.model_validate(tables)) as service:
        yield service


async def executions_of(service: Service) -> list[ExecutionView]:
    page = await service.facade.executions.page(LOCAL, ExecutionFilter(), after=None, limit=100)
    assert page.next is None
    return page.executions


async def test_every_execution_of_an_earlier_database_is_listed_and_shown(database: Path) -> None:
    async with opened(database) as service:
        found = await executions_of(service)
        assert len(found) == 6
        assert {each.request_id for each in found} > NAMED
        for each in found:
            assert await service.facade.executions.show(LOCAL, each.request_id) == each
            assert each.state is (State.SUSPENDED if each.request_id == "g-ask" else State.COMPLETE)
            assert each.response is not None
            assert each.response.error is None
            assert (each.response.content or each.response.structured_output) or each.state is State.SUSPENDED
        [pending] = (
            await service.facade.records.suspensions(LOCAL, SuspensionFilter(), after=None, limit=9)
        ).suspensions
        assert (pending.request_id, pending.tool_id) == ("g-ask", "ask_person")


async def test_every_log_of_an_earlier_database_is_read_to_its_end(database: Path) -> None:
    async with opened(database) as service:
        executions = service.facade.executions
        for each in await executions_of(service):
            events = await executions.events(LOCAL, each.request_id)
            assert [item.sequence_number for item in events] == list(range(1, len(events) + 1))
            trace = await executions.trace(LOCAL, each.request_id)
            assert trace.outcome is each.state
            if each.state in TERMINAL:
                subscription = await executions.read(LOCAL, each.request_id)
                read = []
                while items := await subscription.next():
                    read += items
                assert read == events
                assert subscription.ended


async def test_every_ended_execution_of_an_earlier_database_replays_identically(database: Path) -> None:
    async with opened(database) as service:
        for each in await executions_of(service):
            report = await service.facade.executions.replay(LOCAL, each.request_id)
            assert report.identical, (each.request_id, report)
            history = await service.facade.executions.load_at_rest(LOCAL.own, each.request_id)
            assert report.steps == len(history.steps)


async def test_a_suspension_of_an_earlier_database_takes_its_answer_and_completes(database: Path) -> None:
    async with opened(database) as service:
        await answer_suspension_of(service, "g-ask")
        shown = await service.facade.executions.show(LOCAL, "g-ask")
        assert (shown.state, shown.suspensions) == (State.COMPLETE, [])
        report = await service.facade.executions.replay(LOCAL, "g-ask")
        assert report.identical, report


async def test_a_session_of_an_earlier_database_takes_another_turn(database: Path) -> None:
    async with opened(database) as service:
        before = await service.facade.sessions.show(LOCAL, "ada")
        request = SystemRequest.model_validate(
            {"messages": [{"role": "user", "content": "Please calculate 17*3"}], "session_id": "ada"}
        )
        running = await service.facade.execute(request, LOCAL)
        assert not isinstance(running, Accepted)
        await wait_for_end(running)
        shown = await service.facade.executions.show(LOCAL, running.request_id)
        assert shown.state is State.COMPLETE
        after = await service.facade.sessions.show(LOCAL, "ada")
        assert after.messages == before.messages + 4
        report = await service.facade.executions.replay(LOCAL, running.request_id)
        assert report.identical, report


async def test_a_fork_of_an_earlier_execution_completes(database: Path) -> None:
    async with opened(database) as service:
        running = await service.facade.fork("g-plan", ForkRequest(from_step=0), LOCAL)
        await wait_for_end(running)
        shown = await service.facade.executions.show(LOCAL, running.request_id)
        assert shown.state is State.COMPLETE


def test_every_stored_value_is_encoded_again_with_all_that_was_stored() -> None:
    with closing(sqlite3.connect(f"{BEFORE.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        commits = connection.execute("SELECT number, outcome, events FROM commits").fetchall()
        responses = connection.execute("SELECT response FROM executions WHERE response IS NOT NULL").fetchall()
        suspensions = connection.execute("SELECT suspension FROM suspensions").fetchall()
        messages = connection.execute("SELECT message FROM messages").fetchall()
    assert all((commits, responses, suspensions, messages))
    for number, outcome, events in commits:
        if number == 0:
            assert_keeps(codec.encode_header(*codec.decode_header(outcome)), outcome)
        elif outcome is not None:
            assert_keeps(codec.encode_outcome(codec.decode_outcome(outcome)), outcome)
        if events is not None:
            assert_keeps(codec.encode_events(codec.decode_events(events)), events)
    for (response,) in responses:
        assert_keeps(codec.encode_response(codec.decode_response(response)), response)
    for (suspension,) in suspensions:
        assert_keeps(codec.encode_suspension(codec.decode_suspension(suspension)), suspension)
    for (message,) in messages:
        assert_keeps(codec.encode_message(codec.decode_messages([message])[0]), message)
