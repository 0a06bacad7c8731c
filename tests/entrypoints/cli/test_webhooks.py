"""`portico webhooks` against a running server: endpoints, their secrets, and deliveries."""

import json
from functools import partial
from pathlib import Path

from anyio import to_thread
from typer.testing import CliRunner, Result

from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support.portico import chat, portico
from tests.support.replica_processes import wait_until
from tests.support.webhook_receiver import webhook_receiver


async def run(url: str, *arguments: str) -> Result:
    result: Result = await to_thread.run_sync(
        partial(CliRunner().invoke, command_line(), ["webhooks", *arguments, "--url", url])
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


async def test_an_endpoint_is_made_tested_rotated_and_deleted(tmp_path: Path) -> None:
    tables = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "webhooks": {"allow_private": True}}
    async with webhook_receiver() as receiver, portico(**tables) as (served, _):
        here = partial(run, served.url)
        made = await here("put", "orders", receiver.url, "--event", "execution.completed")
        assert (made.exit_code, made.stdout[:6]) == (0, "whsec_"), made.output
        changed = await here("put", "orders", receiver.url)
        assert (changed.exit_code, changed.stdout) == (0, "")
        rotated = await here("rotate", "orders")
        assert rotated.stdout[:6] == "whsec_"
        assert rotated.stdout != made.stdout
        [listed] = [json.loads(line) for line in (await here("list", "--json")).stdout.splitlines()]
        assert (listed["name"], listed["source"], listed["url"]) == ("orders", "api", receiver.url)
        assert made.stdout.strip() not in str(listed)
        tested = await here("test", "orders")
        await receiver.wait_for(1)
        await served.post(chat("Hello", request_id="q"))
        await receiver.wait_for(2)
        found: list[dict[str, str]] = []

        async def are_delivered() -> bool:
            found[:] = [json.loads(line) for line in (await here("deliveries", "--json")).stdout.splitlines()]
            return [each["state"] for each in found] == ["delivered"] * 2

        await wait_until(are_delivered)
        assert tested.stdout.strip() in {each["delivery_id"] for each in found}
        again = await here("retry", found[0]["delivery_id"])
        assert again.stdout == found[0]["delivery_id"] + "\n"
        await receiver.wait_for(3)
        table = (await here("deliveries", "--endpoint", "orders")).stdout.splitlines()
        assert table[0].split()[:2] == ["id", "endpoint"]
        assert len(table) == 3
        assert (await here("delete", "orders")).exit_code == 0
        assert (await here("list", "--json")).stdout == ""


async def test_what_the_server_refuses_is_shown_with_its_code(tmp_path: Path) -> None:
    async with portico(storage={"url": f"sqlite:///{tmp_path}/portico.db"}) as (served, _):
        refused = await run(served.url, "put", "orders", "http://127.0.0.1:1/hook")
        unknown = await run(served.url, "rotate", "nothing")
    assert (refused.exit_code, refused.stdout) == (EXIT_CODES[Category.REQUEST], "")
    assert refused.stderr.startswith("REQUEST_INVALID: url")
    assert unknown.stderr.startswith("REQUEST_NOT_FOUND: ")
