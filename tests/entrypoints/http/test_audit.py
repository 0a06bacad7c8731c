"""The audit log of a whole service: who is in it, who is not, and what happens when it cannot be written."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.adapters.audit.verification import verify
from portico.bootstrap.keys import KeyGrant, open_keys
from portico.domain.access.limits import NO_LIMITS
from portico.domain.access.principal import KEY_DEFAULT
from portico.domain.failures import ConfigurationFailure, StorageFailure
from portico.domain.ids import KeyId, TenantId, UserId
from portico.orchestration.audit import (
    AuditedErasure,
    AuditedExecutions,
    AuditedFiles,
    AuditedKeys,
    AuditedMemory,
    AuditedRecords,
    AuditedSessions,
)
from portico.orchestration.erasure import Erasure
from portico.orchestration.executions import Executions
from portico.orchestration.files import Files
from portico.orchestration.keys import Keys
from portico.orchestration.memory import Memory
from portico.orchestration.records import Records
from portico.orchestration.sessions import Sessions
from portico.settings import Settings
from tests.support.callers import Caller, Grants, callers
from tests.support.portico import chat, portico

SECRET = "canary-4711"
GRANTS: Grants = {
    "ann": ("acme", "ann", None),
    "auditor": ("acme", "zoe", ["can_view_tenant"]),
    "boss": ("acme", "boss", ["can_approve", "can_view_tenant", "can_send_messages"]),
}
ASK = 'Use ask_person: "May I?"'


@asynccontextmanager
async def audited(folder: Path, reads: str = "others", **tables: Any) -> AsyncIterator[tuple[dict[str, Caller], Path]]:
    path = folder / "audit.jsonl"
    async with callers(folder, GRANTS, audit={"file": str(path), "reads": reads}, **tables) as (by_name, _):
        yield by_name, path


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def recorded(path: Path, *fields: str) -> list[tuple[Any, ...]]:
    """Return these fields of all lines but those about keys and the service."""
    found = [each for each in entries(path) if each["action"].partition(".")[0] not in {"key", "service"}]
    return [tuple(each[field] for field in fields) for each in found]


async def test_reads_of_the_data_of_others_are_recorded_with_reader_and_owner(tmp_path: Path) -> None:
    async with audited(tmp_path) as (by_name, path):
        ann, auditor = by_name["ann"], by_name["auditor"]
        await ann.execute(chat(f"Hello {SECRET}", request_id="q", session_id="s"))
        for read in ("", "/events", "/trace", "/input", "/steps"):
            assert (await ann.get(f"/v1/executions/q{read}")).status == 200
        assert recorded(path, "action") == []
        for read in ("", "/events", "/trace", "/input", "/steps"):
            assert (await auditor.get(f"/v1/executions/q{read}")).status == 200
        assert (await auditor.get("/v1/executions")).status == 200
        assert (await auditor.get("/v1/sessions/s/messages")).status == 200
        assert (await auditor.get("/v1/executions/unknown")).status == 404
    read = ("execution.read", "acme", "zoe", "q", "ann")
    lines = recorded(path, "action", "tenant", "user", "target", "owner")
    assert {*lines} == {
        read,
        ("execution.read", "acme", "zoe", None, "ann"),
        ("session.read", "acme", "zoe", "s", None),
    }
    assert lines.count(read) >= 5
    assert SECRET not in path.read_text()
    assert verify([path]) == len(entries(path))


async def test_files_of_sessions_are_recorded_without_what_is_in_them(tmp_path: Path) -> None:
    files = {"files": {"root": str(tmp_path / "files")}}
    async with audited(tmp_path, "all", tools=files) as (by_name, path):
        ann, file = by_name["ann"], "/v1/sessions/s/files/a.txt"
        assert (await ann.send("PUT", file, SECRET.encode())).status == 201
        assert (await ann.get("/v1/sessions/s/files")).status == 200
        assert (await ann.get(file)).body == SECRET.encode()
        assert (await ann.send("DELETE", file)).status == 204
        assert (await ann.send("DELETE", file)).status == 404
    assert recorded(path, "action", "user", "target", "outcome", "code", "detail") == [
        ("file.write", "ann", "s", "ok", None, None),
        ("file.read", "ann", "s", "ok", None, None),
        ("file.read", "ann", "s", "ok", None, "content"),
        ("file.delete", "ann", "s", "ok", None, None),
        ("file.delete", "ann", "s", "ok", None, None),
        ("file.delete", "ann", "s", "failed", "REQUEST_NOT_FOUND", None),
    ]
    assert SECRET not in path.read_text()


async def test_changes_are_recorded_before_they_happen_and_again_if_they_fail(tmp_path: Path) -> None:
    async with audited(tmp_path) as (by_name, path):
        ann, boss = by_name["ann"], by_name["boss"]
        await ann.execute(chat(ASK, request_id="q", session_id="s"))
        answer = json.dumps({"tool_id": "ask_person", "payload": SECRET}).encode()
        assert (await ann.send("POST", "/v1/executions/q/resume", answer)).status == 200
        assert (await ann.send("POST", "/v1/executions/q/fork", b'{"from_step":0,"overrides":{}}')).status == 202
        assert (await ann.send("POST", "/v1/executions/q/cancel")).status == 200
        assert (await boss.send("POST", "/v1/executions/q/cancel")).status == 404
        await ann.send("PUT", "/v1/memory/d", b'{"text":"a document"}')
        assert (await ann.send("DELETE", "/v1/memory/d")).status == 204
        assert (await ann.send("DELETE", "/v1/sessions/s?forks=delete")).status == 204
    assert recorded(path, "action", "user", "target", "outcome", "code", "detail") == [
        ("suspension.answer", "ann", "q", "ok", None, "answer"),
        ("execution.fork", "ann", "q", "ok", None, None),
        ("execution.cancel", "ann", "q", "ok", None, None),
        ("execution.cancel", "boss", "q", "ok", None, None),
        ("execution.cancel", "boss", "q", "failed", "REQUEST_NOT_FOUND", None),
        ("memory.delete", "ann", "d", "ok", None, None),
        ("session.delete", "ann", "s", "ok", None, None),
    ]
    assert SECRET not in path.read_text()


@pytest.mark.parametrize(("reads", "lines"), [("none", 0), ("all", 2)])
async def test_reads_are_recorded_as_configured(tmp_path: Path, reads: str, lines: int) -> None:
    async with audited(tmp_path, reads) as (by_name, path):
        await by_name["ann"].execute(chat("Hello", request_id="q"))
        assert (await by_name["ann"].get("/v1/executions/q")).status == 200
        assert (await by_name["auditor"].get("/v1/executions/q")).status == 200
    assert len(recorded(path, "action")) == lines


async def test_refused_callers_keys_and_the_life_of_the_service_are_recorded(tmp_path: Path) -> None:
    async with audited(tmp_path) as (by_name, path):
        for _ in range(3):
            assert (await by_name["ann"].served.get("/v1/executions")).status == 401
            assert (await by_name["auditor"].execute(chat("Hello"))).status == 403
        await anyio.sleep(1.5)
        refused = recorded(path, "action", "code", "detail", "outcome")
        key = by_name["auditor"].headers["Authorization"].removeprefix("Bearer ptk_")[:8]
        keys = {each["key"] for each in entries(path) if each["code"] == "ACCESS_DENIED"}
    assert sorted(refused) == [
        ("access.refuse", "ACCESS_DENIED", "2 more", "refused"),
        ("access.refuse", "ACCESS_UNAUTHENTICATED", "2 more", "refused"),
    ]
    assert keys == {key}
    actions = [each["action"] for each in entries(path)]
    assert (actions[0], actions[-1], actions.count("key.create")) == ("service.start", "service.stop", len(GRANTS))
    assert by_name["ann"].headers["Authorization"][-43:] not in path.read_text()


async def test_what_cannot_be_recorded_is_not_changed_and_is_read_all_the_same(tmp_path: Path) -> None:
    async with audited(tmp_path) as (by_name, path):
        ann, auditor = by_name["ann"], by_name["auditor"]
        await ann.execute(chat(ASK, request_id="q", session_id="s"))
        path.rename(tmp_path / "old")
        path.symlink_to("/dev/full")
        refused = await ann.send("POST", "/v1/executions/q/cancel")
        read = await auditor.get("/v1/executions/q")
        metrics = (await ann.served.get("/metrics")).body.decode()
    assert (refused.status, refused.json["code"]) == (503, "STORAGE_FULL")
    assert (read.status, read.json["state"]) == (200, "SUSPENDED")
    assert "portico_audit_failures_total 2.0" in metrics


async def test_a_log_that_cannot_be_written_stops_the_start_and_the_change_of_keys(tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "storage": {"url": f"sqlite:///{tmp_path}/portico.db"},
        "audit": {"file": str(tmp_path)},
    }
    with pytest.raises(ExceptionGroup) as stopped:
        async with portico(**tables):
            pass
    assert stopped.group_contains(ConfigurationFailure, match=r"audit\.file: cannot write .*: is a directory")
    async with open_keys(Settings.model_validate(tables)) as keys:
        grant = KeyGrant(TenantId("acme"), UserId("ann"), KEY_DEFAULT, NO_LIMITS, days=None)
        with pytest.raises(StorageFailure):
            await keys.create(grant)
        with pytest.raises(StorageFailure):
            await keys.revoke(KeyId("abcd1234"), cancel=False)
        assert await keys.all(None) == []


UNRECORDED: Mapping[type, frozenset[str]] = {
    Executions: frozenset({"require", "require_answerable", "load_at_rest"}),
    Records: frozenset({"predecessor", "find_predecessor", "stored", "ran"}),
    Erasure: frozenset(),
    Sessions: frozenset({"page", "require", "update"}),
    Files: frozenset({"require", "require_writable"}),
    Keys: frozenset({"page"}),
    Memory: frozenset({"put", "show", "require_own", "page", "search"}),
}
"""Calls that read nothing of other users, or change nothing that is listed; a list of sessions has no contents."""


@pytest.mark.parametrize(
    ("audited", "plain"),
    [
        (AuditedExecutions, Executions),
        (AuditedRecords, Records),
        (AuditedErasure, Erasure),
        (AuditedSessions, Sessions),
        (AuditedFiles, Files),
        (AuditedMemory, Memory),
        (AuditedKeys, Keys),
    ],
)
def test_every_call_is_recorded_or_known_to_need_no_line(audited: type, plain: type) -> None:
    calls = {name for name, member in vars(plain).items() if iscoroutinefunction(member) and not name.startswith("_")}
    assert calls == {name for name in vars(audited) if name in calls} | UNRECORDED[plain]
