"""`portico schedules` against a running server."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread
from typer.testing import CliRunner, Result

from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support.callers import Caller, callers

GRANTS = {"ada": ("red", "ada", None), "eve": ("red", "eve", None)}


async def run(caller: Caller, *arguments: str, given: str | None = None) -> Result:
    return await command(caller, "schedules", *arguments, given=given)


async def command(caller: Caller, *arguments: str, given: str | None = None) -> Result:
    key = caller.headers["Authorization"].removeprefix("Bearer ")
    url = f"http://{caller.served.host}:{caller.served.port}"
    words = [*arguments, "--url", url]
    invoke = partial(CliRunner().invoke, command_line(), words, input=given, env={"PORTICO_KEY": key})
    result: Result = await to_thread.run_sync(invoke)
    assert key not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_schedules_are_stored_listed_run_and_deleted(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        stored = await run(ada, "put", "nightly", "Tidy up.", "--cron", "30 3 * * *", "--timezone", "Europe/Berlin")
        assert stored.exit_code == 0, stored.output
        assert stored.stdout.startswith("nightly  20")
        whole = {"cron": "0 8 * * *", "request": {"messages": [{"role": "user", "content": "Hi"}]}, "paused": True}
        paused = await run(ada, "put", "report", "--file", "-", given=json.dumps(whole))
        assert paused.stdout == "report  paused\n"
        listed = lines(await run(ada, "list", "--json"))
        assert [(each["name"], each["timezone"]) for each in listed] == [
            ("nightly", "Europe/Berlin"),
            ("report", "UTC"),
        ]
        table = (await run(ada, "list")).stdout.splitlines()
        assert [line.split()[0] for line in table] == ["name", "nightly", "report"]
        started = (await run(ada, "run", "report")).stdout.strip()
        [times] = lines(await run(ada, "runs", "report", "--json"))
        assert (times["request_id"], times["outcome"]) == (started, "started")
        assert started in (await run(ada, "runs", "report")).stdout
        assert (await run(ada, "delete", "report")).stdout == "deleted  report\n"
        assert [each["name"] for each in lines(await run(ada, "list", "--json"))] == ["nightly"]


async def test_a_refusal_is_shown_and_ends_with_its_code(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        bad = await run(by_name["ada"], "put", "nightly", "Tidy up.", "--cron", "@daily")
        assert bad.exit_code == EXIT_CODES[Category.REQUEST]
        assert "cron" in bad.output
        await run(by_name["ada"], "put", "nightly", "Tidy up.", "--cron", "30 3 * * *")
        assert (await run(by_name["eve"], "delete", "nightly")).exit_code == EXIT_CODES[Category.REQUEST]
        for half in (("put", "nightly"), ("put", "nightly", "Hi"), ("put", "n", "Hi", "--cron", "x", "--file", "-")):
            assert (await run(by_name["ada"], *half)).exit_code == 2


async def test_a_request_is_started_later_by_a_server(tmp_path: Path) -> None:
    later = ("execute", "--run-at", "2099-01-01T00:00:00Z", "Hello")
    async with callers(tmp_path, GRANTS) as (by_name, _):
        refused = await command(by_name["ada"], *later)
        assert (refused.exit_code, "at most 366 days ahead" in refused.output) == (17, True)
        run_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        started = await command(by_name["ada"], "execute", "--run-at", run_at, "Hello")
        assert started.exit_code == 0, started.output
        view = (await by_name["ada"].get(f"/v1/executions/{started.stdout.strip()}")).json
        assert (view["state"], view["title"]) == ("INIT", "Hello")
