"""Real clients of the Responses API: OpenAI's SDK, its Agents SDK with hosted approvals, and Codex."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI

from tests.support.documentation import ROOT, SERVER
from tests.support.http_server import RunningServer
from tests.support.portico import portico
from tests.support.replays import assert_replays_are_identical, executions_by_state

MODULES = {"modules": ["tests.support.shop_tools"]}
REFUNDS = {"type": "mcp", "server_label": "portico", "allowed_tools": ["refund"], "require_approval": "always"}
CALCULATOR: Any = REFUNDS | {"allowed_tools": ["calculate"], "require_approval": "never"}
RUNS = 100
PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
[CODEX_TABLE] = re.findall(r"```toml\n# config\.toml\n(.*?)```", PAGE, re.DOTALL)
INSTALLED = ROOT / ".clients" / "codex" / "node_modules" / "@openai" / "codex-linux-x64" / "vendor"
CODEX = next(iter(INSTALLED.glob("*/bin/codex")), None)
needs_codex = pytest.mark.skipif(CODEX is None, reason="no Codex: make clients installs it")


def client(served: RunningServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0)


async def test_the_sdk_streams_reads_on_follows_cancels_and_deletes() -> None:
    async with portico() as (served, _), client(served) as openai:
        asked: dict[str, Any] = {"model": "default", "tools": [CALCULATOR]}
        stream = await openai.responses.create(input="Please calculate 17*3", background=True, stream=True, **asked)
        first = [event async for event in stream]
        name = first[-1].response.id
        rest = await openai.responses.retrieve(name, stream=True, starting_after=first[4].sequence_number)
        assert [event.sequence_number async for event in rest] == [each.sequence_number for each in first[5:]]
        async with openai.responses.stream(input="Please calculate 17*3", **asked) as live:
            final = await live.get_final_response()
        assert [item.type for item in final.output] == ["mcp_call", "message"]
        assert final.output_text == (await openai.responses.retrieve(name)).output_text
        follow = await openai.responses.create(model="default", input="And?", previous_response_id=name)
        assert [item.type async for item in openai.responses.input_items.list(follow.id)] == ["message"]
        slow = await openai.responses.create(model="default", input="[[slow:60]] Hello", background=True)
        assert (await openai.responses.cancel(slow.id)).status == "cancelled"
        await openai.responses.delete(follow.id)


async def test_the_agents_sdk_asks_for_approvals_in_its_own_loop_and_leaves_nothing_suspended() -> None:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    agents.set_tracing_disabled(True)
    async with portico(tools=MODULES) as (served, _), client(served) as openai:
        asked: list[str] = []

        def approve(request: Any) -> dict[str, bool]:
            asked.append(request.data.name)
            return {"approve": True}

        tool = agents.HostedMCPTool(tool_config=REFUNDS, on_approval_request=approve)
        agent = agents.Agent(name="shop", model=agents.OpenAIResponsesModel("default", openai), tools=[tool])
        answers: list[str] = []

        async def run(amount: int) -> None:
            text = f"Use refund: {json.dumps({'amount': amount})}"
            answers.append((await agents.Runner.run(agent, text)).final_output.rpartition(": ")[2])

        async with anyio.create_task_group() as group:
            for amount in range(RUNS):
                group.start_soon(run, amount)
        suspended = (await served.get("/v1/executions?state=SUSPENDED")).json["data"]
    assert sorted(answers) == sorted(f"refunded {amount}" for amount in range(RUNS))
    assert (asked, suspended) == (["refund"] * RUNS, [])


async def run_codex(url: str, folder: Path, prompt: str, model: str = "default") -> tuple[int | None, str]:
    """Run Codex in the folder `work` of this one, with the table of the page; return its exit code and what it said."""
    work = folder / "work"
    work.mkdir()
    table = CODEX_TABLE.replace(SERVER, url).replace('model = "default"', f'model = "{model}"')
    (folder / "config.toml").write_text(table)
    loop: Any = asyncio.get_running_loop()
    with loop.in_real_time():
        process = await asyncio.create_subprocess_exec(
            str(CODEX),
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt),
            cwd=work,
            env={**os.environ, "CODEX_HOME": str(folder), "PORTICO_KEY": "any"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    return process.returncode, said.decode()


@needs_codex
@pytest.mark.timeout(90)
async def test_codex_runs_a_command_that_the_model_asks_for_with_the_table_of_the_page(tmp_path: Path) -> None:
    command = {"name": "exec_command", "arguments": {"cmd": "echo from codex > made.txt"}}
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"tool_calls": [command]}, {"text": "It is made."}]))
    async with portico(engines={"script": {"model": f"scripted://{script}"}}) as (served, service):
        code, said = await run_codex(served.url, tmp_path, "Make a file.")
        assert await executions_by_state(served) == {"COMPLETE": 2}
        await assert_replays_are_identical(served, service, turns=2)
        listed = [each["request_id"] for each in (await served.get("/v1/executions")).json["data"]]
        followed = (await served.get(f"/v1/executions/{listed[0]}/input")).json.get("after")
    assert code == 0, said
    assert followed == listed[1]
    assert (tmp_path / "work" / "made.txt").read_text() == "from codex\n"
    assert "It is made." in said
