"""`portico mcp`: the server of its own process, and a bridge to one elsewhere."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.entrypoints.mcp.test_http import APPROVE_DICE, DICE, accept, answering, served_mcp

PORTICO = str(Path(sys.executable).parent / "portico")
CONFIG = """
[agents.roller]
description = "Rolls dice."
system_prompt = "You roll dice."
tools = ["roll_dice"]

[[policy.approve]]
tool = "roll_dice"
"""


def program(folder: Path, *arguments: str) -> Any:
    return StdioServerParameters(command=PORTICO, args=["mcp", *arguments], cwd=folder)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_own_process_runs_agents_and_asks_with_forms(tmp_path: Path, mode: str) -> None:
    (tmp_path / "portico.toml").write_text(CONFIG)
    answer, asked = answering(accept(decision="approve"))
    async with Client(program(tmp_path), mode=mode, elicitation_callback=answer) as mcp:
        assert "agent__roller" in {tool.name for tool in (await mcp.list_tools()).tools}
        result = await mcp.call_tool("agent__roller", {"message": DICE})
        assert result.structured_content is not None
        assert result.structured_content["state"] == "COMPLETE"
        assert '"sides":6' in asked[0]


async def test_a_server_runs_what_is_passed_on_to_it(
    tmp_path: Path,
) -> None:
    answer, asked = answering(accept(decision="approve"))
    async with (
        served_mcp(policy=APPROVE_DICE) as (served, _),
        Client(program(tmp_path, "--url", served.url), mode="auto", elicitation_callback=answer) as mcp,
    ):
        result = await mcp.call_tool("agent__roller", {"message": DICE})
        assert result.structured_content is not None
        assert result.structured_content["state"] == "COMPLETE"
        assert len(asked) == 1
        shown = await served.get(f"/v1/executions/{result.structured_content['request_id']}")
        assert shown.json["state"] == "COMPLETE"
