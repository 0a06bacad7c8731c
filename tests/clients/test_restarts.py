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
from portico_client.core import TextFold
from tests.support.browser import Shop, running_shop
from tests.support.scripted_provider import streamed
from tests.support.upstream import ScriptedUpstream, UpstreamAction

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
    shop.start()


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


def read_over_a_kill(folder: Path, tables: str) -> tuple[str, list[int], Any]:
    """Return the text of a stream whose service is killed behind the first words, its numbers, and what is stored."""
    with (
        running_shop(folder, tables) as shop,
        Client(shop.url) as client,
        client.stream("Count", model="slow") as stream,
    ):
        shown, numbers, fold, is_killed = "", list[int](), TextFold(), False
        for event in stream:
            numbers += [event["sequence_number"]] if "sequence_number" in event else []
            if (part := fold.take(event)) is None:
                continue
            if not is_killed:  # only once: a discarded attempt empties what is shown
                is_killed = True
                shop.stop()
                shop.start()
            shown = shown[: len(shown) - part.replaces] + part.text
        if (part := fold.last(stream.response)) is not None:
            shown = shown[: len(shown) - part.replaces] + part.text
        return shown, numbers, client.get(stream.request_id or "")["response"]


@pytest.mark.timeout(150)
async def test_a_stream_is_read_on_behind_a_kill_and_no_character_is_lost_or_doubled(tmp_path: Path) -> None:
    begun, whole = streamed("One two ", broken=UpstreamAction.HANG), streamed(TEXT)
    loop: Any = asyncio.get_running_loop()
    async with ScriptedUpstream(begun, whole) as provider:
        tables = f'[engines.slow]\nmodel = "openai://scripted"\nbase_url = "{provider.url}"\n'
        with loop.in_real_time():
            shown, numbers, stored = await asyncio.to_thread(read_over_a_kill, tmp_path, tables)
    assert (shown, stored["content"]) == (TEXT, TEXT)
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(provider.requests) == 2


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
