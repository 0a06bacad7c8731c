"""`portico explain` against a running server: a budget table for each inference, and a line for each choice."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from anyio import to_thread
from typer.testing import CliRunner, Result

from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support.callers import Caller, callers
from tests.support.portico import chat

GRANTS = {"ada": ("red", "ada", None), "guest": ("red", "ada", ["can_send_messages", "model:*"])}


async def run_as(caller: Caller, *arguments: str) -> Result:
    key = caller.headers["Authorization"].removeprefix("Bearer ")
    given = ["explain", *arguments, "--url", caller.served.url]
    result: Result = await to_thread.run_sync(
        partial(CliRunner().invoke, command_line(), given, env={"PORTICO_KEY": key})
    )
    assert key not in result.output
    return result


def columns(lines: Sequence[str]) -> list[dict[str, str]]:
    names = lines[0].replace("results cut", "results_cut").split()
    return [dict(zip(names, line.split(), strict=True)) for line in lines[1:]]


async def test_each_inference_has_a_row_whose_terms_add_up(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        await ada.execute(chat("Please calculate 17*3", request_id="q"))
        rows = columns((await run_as(ada, "q")).stdout.splitlines())
        assert [row["inference"] for row in rows] == ["0", "2"]
        for row in rows:
            terms = {name: int(value) for name, value in row.items() if name not in {"inference", "step"}}
            parts = ("system", "skills", "history", "memory", "message", "tools")
            assert sum(terms[name] for name in parts) == terms["used"]
            assert terms["used"] + terms["left"] == terms["limit"]
        assert int(rows[0]["tools"]) > 0
        assert int(rows[1]["history"]) > int(rows[0]["history"]) == 0


async def test_choices_of_the_history_are_named(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS, limits={"history_messages": 2}) as (by_name, _):
        ada, guest = by_name["ada"], by_name["guest"]
        for text in ("Hello", "I am ada@example.org"):
            await ada.execute(chat(text, session_id="s"))
        await guest.execute(chat("Who am I?", session_id="s", request_id="q"))
        lines = (await run_as(guest, "q")).stdout.splitlines()
        assert lines[2:] == ["cut: 2 messages", "redacted: 2 email"]
        shown = json.loads((await run_as(guest, "q", "--json")).stdout)
        assert shown["context"]["redacted"] == {"email": 2}
        assert len(shown["inferences"]) == 1


async def test_an_unknown_request_is_refused_as_the_server_does(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        result = await run_as(by_name["ada"], "unheard-of")
        assert result.exit_code == EXIT_CODES[Category.REQUEST]
        assert "no execution has this id" in result.output
