"""A database that the first release wrote is read, replayed and continued by this version."""

import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.adapters.stores import codec
from app.entrypoints.http.app import create_app
from app.settings import Settings
from tests.support.http_server import RunningServer, request_bytes, running_server

BEFORE = Path(__file__).parent / "before.db"
EXECUTIONS = "/v1/executions"
JSON = {"content-type": "application/json"}
NEVER = 4e9


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a copy of the database whose open question does not expire."""
    copy = tmp_path / "before.db"
    shutil.copy(BEFORE, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("UPDATE suspensions SET expires_at = ?", [NEVER])
    return copy


@asynccontextmanager
async def served_from(database: Path) -> AsyncIterator[RunningServer]:
    """Serve the database with the rehearsal engine; nothing in it is too old to keep."""
    tables = {"storage": {"url": f"sqlite:///{database}", "event_retention_days": 36_500}}
    async with running_server(create_app(Settings.model_validate(tables))) as served:
        yield served


async def last_event(served: RunningServer, request_id: str) -> str:
    """Return the type of the last event of a log that ends."""
    log = (await served.get(f"{EXECUTIONS}/{request_id}/events")).body.decode()
    return re.findall(r"^event: (.+)$", log, re.MULTILINE)[-1]


async def test_all_executions_are_listed_and_shown_and_their_logs_end(database: Path) -> None:
    async with served_from(database) as served:
        listed = (await served.get(EXECUTIONS)).json["data"]
        assert [each["state"] for each in listed].count("COMPLETE") == len(listed) - 1 == 5
        for each in listed:
            shown = (await served.get(f"{EXECUTIONS}/{each['request_id']}")).json
            assert (shown["request_id"], shown["state"]) == (each["request_id"], each["state"])
            if each["state"] == "COMPLETE":
                assert await last_event(served, each["request_id"]) == "execution.completed"


async def test_all_ended_executions_replay_identically(database: Path) -> None:
    async with served_from(database) as served:
        listed = (await served.get(EXECUTIONS)).json["data"]
        for each in listed:
            if each["state"] == "COMPLETE":
                replay = await served.ask(request_bytes("POST", f"{EXECUTIONS}/{each['request_id']}/replay", JSON))
                assert (replay.status, replay.json["identical"]) == (200, True), replay.body


async def test_the_open_question_is_answered_and_its_execution_completes(database: Path) -> None:
    async with served_from(database) as served:
        question = (await served.get(f"{EXECUTIONS}/g-ask")).json["suspensions"][0]
        answer = {"tool_id": question["tool_id"], "suspension_id": question["suspension_id"], "payload": "yes"}
        path = f"{EXECUTIONS}/g-ask/resume"
        resumed = await served.ask(request_bytes("POST", path, JSON, orjson.dumps(answer)))
        assert (resumed.status, resumed.json["state"]) == (200, "COMPLETE"), resumed.body
        assert await last_event(served, "g-ask") == "execution.completed"


async def test_the_session_takes_a_third_turn(database: Path) -> None:
    async with served_from(database) as served:
        before = (await served.get("/v1/sessions/ada/messages?limit=1000")).json["data"]
        request = {"session_id": "ada", "messages": [{"role": "user", "content": "Hello again"}]}
        answered = await served.post(orjson.dumps(request))
        assert (answered.status, answered.json["state"]) == (200, "COMPLETE"), answered.body
        after = (await served.get("/v1/sessions/ada/messages?limit=1000")).json["data"]
    assert after[: len(before)] == before
    assert [each["role"] for each in after[len(before) :]] == ["user", "assistant"]


def test_every_stored_value_is_encoded_again_as_it_was_stored() -> None:
    with closing(sqlite3.connect(f"{BEFORE.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        commits = connection.execute("SELECT number, outcome, events FROM commits").fetchall()
        responses = connection.execute("SELECT response FROM executions WHERE response IS NOT NULL").fetchall()
        suspensions = connection.execute("SELECT suspension FROM suspensions").fetchall()
        messages = connection.execute("SELECT message FROM messages").fetchall()
    assert all((commits, responses, suspensions, messages))
    for number, outcome, events in commits:
        if number == 0:
            assert_same(codec.encode_header(*codec.decode_header(outcome)), outcome)
        elif outcome is not None:
            assert_same(codec.encode_outcome(codec.decode_outcome(outcome)), outcome)
        if events is not None:
            assert_same(codec.encode_events(codec.decode_events(events)), events)
    for (response,) in responses:
        assert_same(codec.encode_response(codec.decode_response(response)), response)
    for (suspension,) in suspensions:
        assert_same(codec.encode_suspension(codec.decode_suspension(suspension)), suspension)
    for (message,) in messages:
        assert_same(codec.encode_message(codec.decode_messages([message])[0]), message)


def assert_same(encoded: bytes, stored: bytes) -> None:
    """Compare the order of all fields too; whole seconds may be stored as integers, and are read as floats."""
    pairs = [orjson.loads(encoded), orjson.loads(stored)]
    assert pairs[0] == pairs[1]
    assert repr(_names(pairs[0])) == repr(_names(pairs[1]))


def _names(value: Any) -> Any:
    if isinstance(value, dict):
        return [(name, _names(each)) for name, each in value.items()]
    return [_names(each) for each in value] if isinstance(value, list) else None
