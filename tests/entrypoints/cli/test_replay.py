"""`portico replay` as a person and as a CI job see it."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner, Result
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portico.adapters.stores.executions.store import DatabaseExecutionStore
from portico.adapters.stores.factory import open_read_only
from portico.adapters.system import SystemClock, SystemEntropy
from portico.bootstrap.keys import open_keys
from portico.bootstrap.service import PATTERNS, open_history_reader, open_service
from portico.domain.access.principal import LOCAL
from portico.domain.contract.messages import Message
from portico.domain.contract.request import SystemRequest
from portico.domain.lifecycle import Mode
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.service_parts import OpenHistoryReader, Wiring
from portico.orchestration.execution.context import RunContext
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.patterns.agent_loop import agent_loop
from portico.orchestration.runtime.handle import ExecutionHandle
from portico.orchestration.runtime.replay import HistoryReader
from portico.settings import Settings
from tests.support.cli_checks import CHECKS
from tests.support.stores import RecordingSink

pytestmark = pytest.mark.usefixtures("empty_directory")

ASK = 'Use ask_person: "May I?"'


async def _execute(requests: dict[str, str], *, waits_for: str | None = None) -> None:
    """Run these requests; one of them still runs when the service closes."""
    async with open_service(Settings.model_validate({"server": {"drain_seconds": 0.1}})) as service:
        for request_id, text in requests.items():
            asked = {"request_id": request_id, "messages": [{"role": "user", "content": text}]}
            request = SystemRequest.model_validate(asked | {"background": request_id == waits_for})
            running = await service.facade.execute(request, LOCAL)
            if request_id != waits_for:
                assert isinstance(running, ExecutionHandle)
                ended = anyio.Event()
                running.add_done_callback(ended.set)
                await ended.wait()


def executed(waits_for: str | None = None, **requests: str) -> None:
    """Store the executions of these requests in the configured database, in that order."""

    async def execute() -> None:
        await _execute(requests, waits_for=waits_for)

    anyio.run(execute)


def portico(*arguments: str, opener: OpenHistoryReader = open_history_reader) -> Result:
    wiring = Wiring(
        create_app=lambda _: FastAPI(title="Staged"),
        protocol=HttpToolsProtocol,
        open_service=open_service,
        open_history_reader=opener,
        checks=CHECKS,
        open_keys=open_keys,
    )
    return CliRunner().invoke(command_line(), ["replay", *arguments], obj=lambda: wiring, prog_name="portico")


@dataclass(frozen=True)
class Today:
    """An opener of the history reader with another pattern for chats."""

    pattern: Pattern

    @asynccontextmanager
    async def __call__(self, settings: Settings) -> AsyncIterator[HistoryReader]:
        clock = SystemClock()
        async with open_read_only(settings.storage.url, clock, SystemEntropy(clock)) as database:
            yield HistoryReader(
                DatabaseExecutionStore(database, clock, "looker", RecordingSink()),
                {**PATTERNS, Mode.CHAT: self.pattern},
                None,
            )


async def says_more(run: RunContext) -> Any:
    messages = [*run.settings.messages, Message(role="user", content="Please.")]
    return await agent_loop(run.with_settings(replace(run.settings, messages=messages)))


async def breaks(_: RunContext) -> str:
    raise ZeroDivisionError("of ours")


BROKEN = Today(replace(PATTERNS[Mode.CHAT], run=breaks))
CHANGED = Today(replace(PATTERNS[Mode.CHAT], run=says_more))


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_identical_replays_are_printed_one_per_line() -> None:
    executed(a="Please calculate 17*3", b="Hello", c=ASK)
    result = portico("a", "c")
    assert result.exit_code == 0
    first, second = [line.split() for line in result.stdout.splitlines()]
    assert (first[:2], first[3]) == (["a", "identical"], "steps")
    assert second[:2] == ["c", "identical"]
    newest = lines(portico("--last", "2", "--json", "--fail-on-difference"))
    assert [(each["request_id"], each["identical"]) for each in newest] == [("c", True), ("b", True)]
    assert len(lines(portico("--last", "99", "--json"))) == 3


def test_the_first_difference_is_printed_and_fails_only_if_asked_to() -> None:
    executed(a="Please calculate 17*3", b="Hello")
    received = portico("a", "b", opener=CHANGED)
    assert received.exit_code == 0
    assert received.stdout.splitlines()[0].startswith('a  differs  at step 0, $.fingerprint: recorded "')
    failed = portico("--last", "2", "--json", "--fail-on-difference", opener=CHANGED)
    assert failed.exit_code == 14
    assert [(each["identical"], each["step"]) for each in lines(failed)] == [(False, "0"), (False, "0")]
    assert {"request_id", "identical", "step", "field", "recorded", "replayed"} == set(lines(failed)[0])


def test_an_exception_in_a_pattern_is_a_difference_and_hides_no_other_outcome() -> None:
    executed(a="Hello", b="Hello")
    failed = portico("--last", "2", "--json", "--fail-on-difference", opener=BROKEN)
    assert failed.exit_code == 14
    assert [(each["identical"], each["bug"]) for each in lines(failed)] == [(False, "ZeroDivisionError")] * 2
    assert "the pattern raised ZeroDivisionError" in portico("a", opener=BROKEN).stdout


def test_a_record_of_a_newer_version_is_refused() -> None:
    executed(a="Hello")
    other = Today(replace(PATTERNS[Mode.CHAT], version=0))
    for arguments in (["a"], ["--last", "1"]):
        refused = portico(*arguments, opener=other)
        assert refused.exit_code == 19
        assert refused.stdout.startswith("a  STORAGE_SNAPSHOT_INVALID  ")
    assert lines(portico("a", "--json", opener=other))[0]["refused"] == "STORAGE_SNAPSHOT_INVALID"


def test_a_truncated_record_is_refused() -> None:
    executed(a=ASK)
    with closing(sqlite3.connect("var/portico.db", isolation_level=None)) as database:
        database.execute("DELETE FROM commits WHERE number = (SELECT max(number) FROM commits)")
    refused = portico("a")
    assert (refused.exit_code, refused.stdout.split()[1]) == (19, "STORAGE_SNAPSHOT_INVALID")


def test_unknown_and_running_executions_are_refused_by_name_and_skipped_among_the_newest() -> None:
    executed(a="Hello", b="[[slow:60]] Hello", waits_for="b")
    for name, code in (("unknown", "REQUEST_NOT_FOUND"), ("b", "REQUEST_IN_PROGRESS")):
        refused = portico(name, "a")
        assert refused.exit_code == 17
        assert [line.split()[1] for line in refused.stdout.splitlines()] == [code, "identical"]
    assert portico("--tenant", "other", "a").exit_code == 17
    newest = portico("--last", "5", "--fail-on-difference")
    assert (newest.exit_code, newest.stderr) == (0, "1 of 2 executions compared\n")
    assert portico("--last", "5", "--tenant", "other").stdout == ""


def test_a_check_for_differences_that_compares_nothing_fails() -> None:
    executed(b="[[slow:60]] Hello", waits_for="b")
    for tenant, executions in (("local", 1), ("other", 0)):
        nothing = portico("--last", "5", "--tenant", tenant, "--fail-on-difference", "--json")
        assert (nothing.exit_code, nothing.stderr) == (14, f"0 of {executions} executions compared\n")
        assert portico("--last", "5", "--tenant", tenant).exit_code == 0


def test_replay_needs_an_existing_store() -> None:
    missing = portico("a")
    assert (missing.exit_code, missing.stderr.split(":")[0]) == (15, "CONFIG_INVALID")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["a", "--last", "1"], ["--last", "0"], ["--last", "x"]])
def test_executions_are_selected_in_exactly_one_way(arguments: list[str]) -> None:
    assert portico(*arguments).exit_code == 2


def test_control_characters_of_an_id_are_shown_escaped() -> None:
    executed(a="Hello")
    assert "\\x1b[2J" in portico("\x1b[2J").stdout
