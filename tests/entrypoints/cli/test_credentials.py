"""`portico credentials` against a running server."""

import json
from functools import partial
from pathlib import Path

from anyio import to_thread
from typer.testing import CliRunner, Result

from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support.callers import Caller, callers

GRANTS = {"ada": ("red", "ada", None), "admin": ("red", "admin", ["can_manage_credentials", "tool:*"])}
TABLES = {
    "credentials": {"tracker": {"type": "secret", "description": "A token."}},
    "tools": {
        "http": {"issues": {"description": "I", "url": "https://tracker.example/issues", "credential": "tracker"}}
    },
}
VALUE = "a-value-that-no-one-sees"


async def run(caller: Caller, *arguments: str, given: str | None = None) -> Result:
    key = caller.headers["Authorization"].removeprefix("Bearer ")
    command = ["credentials", *arguments, "--url", f"http://{caller.served.host}:{caller.served.port}"]
    invoke = partial(CliRunner().invoke, command_line(), command, input=given, env={"PORTICO_KEY": key})
    result: Result = await to_thread.run_sync(invoke)
    assert VALUE not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


async def test_values_are_set_from_standard_input_listed_and_deleted(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **TABLES) as (by_name, _):
        ada, admin = by_name["ada"], by_name["admin"]
        assert (await run(ada, "set", "tracker", given=f"{VALUE}\n")).stdout == "set  tracker\n"
        [listed] = [json.loads(line) for line in (await run(ada, "list", "--json")).stdout.splitlines()]
        assert (listed["name"], listed["owner"]) == ("tracker", "user")
        assert "tracker" in (await run(ada, "list")).stdout
        assert (await run(admin, "set", "tracker", "--tenant", given=VALUE)).exit_code == 0
        assert (await run(ada, "delete", "tracker")).stdout == "deleted  tracker\n"
        [listed] = [json.loads(line) for line in (await run(ada, "list", "--json")).stdout.splitlines()]
        assert listed["owner"] == "tenant"
        assert (await run(admin, "delete", "tracker", "--tenant")).exit_code == 0


async def test_what_the_server_refuses_is_an_exit_code(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, **TABLES) as (by_name, _):
        ada = by_name["ada"]
        assert (await run(ada, "set", "tracker", given="short")).exit_code == EXIT_CODES[Category.REQUEST]
        assert (await run(ada, "set", "nothing", given=VALUE)).exit_code == EXIT_CODES[Category.REQUEST]
        refused = await run(ada, "set", "tracker", "--tenant", given=VALUE)
        assert refused.exit_code == EXIT_CODES[Category.ACCESS]
        assert "may not manage credentials" in refused.stderr
