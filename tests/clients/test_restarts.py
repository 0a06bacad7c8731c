"""A service that is killed with `kill -9` while clients wait, and started again: they get the first answer, once."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp import types

from portico_client import Client
from tests.support.browser import Shop, running_shop

TEXT = "One two three, 👋 four."
NEVER_S = 600.0
RESULT_S = 100.0
TABLES = '[engines.slow]\nmodel = "scripted://{}/slow.json"\n[mcp]\nenabled = true\n'


def say(folder: Path, delay: float) -> None:
    """Let the engine answer after that delay."""
    (folder / "slow.json").write_text(json.dumps([{"text": TEXT, "delay": delay}]))


def kill_and_restart(shop: Shop) -> None:
    """Kill the service, and start it again with an engine that answers at once."""
    shop.stop()
    say(shop.folder, 0)
    shop.start(TABLES.format(shop.folder))


@pytest.mark.timeout(150)
def test_the_second_try_of_execute_gets_the_first_answer_behind_a_kill(tmp_path: Path) -> None:
    say(tmp_path, NEVER_S)
    with (
        running_shop(tmp_path, TABLES.format(tmp_path)) as shop,
        ThreadPoolExecutor(1) as pool,
        Client(shop.url, retries=8) as client,
        Client(shop.url) as other,
    ):
        playing = pool.submit(lambda: client.execute("Count", model="slow", request_id="killed"))
        while not [*other.list(state="EXECUTE")]:
            assert not playing.done(), playing.result()
        kill_and_restart(shop)
        response = playing.result(RESULT_S)
        assert [each["request_id"] for each in other.list()] == ["killed"]
        assert other.get("killed")["response"]["content"] == response["content"] == TEXT


@pytest.mark.timeout(150)
def test_a_form_of_mcp_is_answered_behind_a_kill_and_the_tool_runs_once(tmp_path: Path) -> None:
    asked = []
    say(tmp_path, 0)
    with running_shop(tmp_path, TABLES.format(tmp_path)) as shop:

        async def approve(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            asked.append(params.message)
            kill_and_restart(shop)
            return types.ElicitResult(action="accept", content={"decision": "approve"})

        async def call() -> Any:
            async with mcp.Client(f"{shop.url}/mcp", mode="auto", elicitation_callback=approve) as client:
                return await client.call_tool("execute", {"message": "Refund with refund, order 7."})

        result = asyncio.run(call())
        with Client(shop.url) as client:
            replayed = client.replay(result.structured_content["request_id"])
    assert result.structured_content["state"] == "COMPLETE"
    assert len(asked) == 1
    assert "refund" in asked[0]
    assert (tmp_path / "refunds.txt").read_text() == "7\n"
    assert replayed["identical"]
