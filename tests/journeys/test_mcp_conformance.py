"""The conformance suite of the protocol, unmodified, in front of the MCP server, in both eras.

It needs a newer Node than the other journeys, which `make clients` installs beside it. Where they are not, the journey
is skipped. Scenarios that call tools, prompts and resources of the suite's own server are left out.
"""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.entrypoints.mcp.test_http import MCP, client, served_mcp

MODULES = Path(__file__).parents[2] / ".clients" / "conformance" / "node_modules"
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE = next(MODULES.glob("node-*/bin/node"), None)
SECONDS = 100.0
IN_BOTH = ("tools-list", "resources-list", "server-sse-multiple-streams", "dns-rebinding-protection")
SCENARIOS = {
    "2025-11-25": (*IN_BOTH, "server-initialize", "server-session-lifecycle", "ping"),
    "2026-07-28": (
        *IN_BOTH,
        "caching",
        "http-header-validation",
        "input-required-result-unsupported-methods",
        "sep-2164-resource-not-found",
    ),
}
WITHOUT_PROMPTS = {"sep-2549-prompts-list-caching-hints"}
"""Checks of prompts, which Portico does not have; the suite asks every server for them."""


@pytest.mark.skipif(NODE is None, reason="no Node packages: make clients installs them")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", SCENARIOS)
async def test_the_conformance_suite_passes(version: str, tmp_path: Path) -> None:
    async with served_mcp(mcp={**MCP, "sessions": True}) as (served, _):
        async with client(served, "auto") as mcp:
            await mcp.call_tool("execute", {"message": "Hello"})
        command = [str(NODE), str(SUITE), "server", "--url", f"{served.url}/mcp", "--suite", "all"]
        with anyio.fail_after(SECONDS):
            await anyio.run_process([*command, "--spec-version", version, "-o", str(tmp_path)], check=False)
    failed = [each for scenario in SCENARIOS[version] for each in failures(tmp_path, scenario)]
    assert {each["id"] for each in failed} == (WITHOUT_PROMPTS if "caching" in SCENARIOS[version] else set()), failed


def failures(folder: Path, scenario: str) -> list[Any]:
    """Return the checks of a scenario that failed or warn."""
    [results] = folder.glob(f"server-{scenario}-2*/checks.json")
    checks = json.loads(results.read_text(encoding="utf-8"))
    assert any(each["status"] == "SUCCESS" for each in checks), scenario
    return [each for each in checks if each["status"] in {"FAILURE", "WARNING"}]
