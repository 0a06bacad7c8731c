"""Clients that repeat on their own send once what must not be repeated.

That is a failure behind a tool that must not run twice, and an approval that no person gives.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.test_npm_clients import needs_claude, needs_sdks, run_claude, run_script
from tests.journeys.test_responses_clients import needs_codex, run_codex
from tests.support.http_server import RunningServer
from tests.support.portico import portico
from tests.support.replays import executions_by_state

MODEL = "shop"
BOTH = pytest.mark.parametrize("tool", ["refund", "write_note"])
"""A tool that waits for an approval, and one that runs and must not run twice."""
ARGUMENTS = {"refund": {"amount": 7}, "write_note": {"text": "x"}}
STATES = {"refund": "SUSPENDED", "write_note": "ERROR"}
AI_SDK = """
import { generateText, streamText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createOpenResponses } from "@ai-sdk/open-responses";

const providers = [
  createOpenAICompatible({ name: "portico", baseURL: "%(url)s/v1", apiKey: "any" }),
  createOpenResponses({ name: "portico", url: "%(url)s/v1/responses", apiKey: "any" }),
];
for (const portico of providers) {
  const asked = { model: portico("%(model)s"), prompt: "Go." };
  try {
    console.log("answered", (await generateText(asked)).text);
  } catch {
    console.log("failed");
  }
  let failed = false;
  const stream = streamText({ ...asked, onError: () => { failed = true; } });
  for await (const part of stream.textStream) void part;
  console.log(failed ? "failed" : "answered");
}
"""


@asynccontextmanager
async def shop(folder: Path, tool: str, requests: int) -> AsyncIterator[RunningServer]:
    """Run a service whose agent calls the tool; behind that every model fails, and no approval is waited for."""
    call: dict[str, Any] = {"tool_calls": [{"name": tool, "arguments": ARGUMENTS[tool]}]}
    again = [call] if tool == "refund" else [call, {"fault": "refused"}]
    script = folder / "script.json"
    script.write_text(json.dumps(again * requests * 3))
    agent = {"description": "Sells.", "system_prompt": "You sell.", "tools": [tool]}
    async with portico(
        engines={"script": {"model": f"scripted://{script}"}},
        tools={"modules": ["tests.support.shop_tools"]},
        agents={MODEL: agent},
        failover={"max_retries": 0},
        ingress={"approval_wait": 0},
        policy={"approve": [{"tool": "refund"}]},
    ) as (served, _):
        yield served


@needs_sdks
@BOTH
async def test_the_ai_sdk_sends_each_request_once(tmp_path: Path, tool: str) -> None:
    async with shop(tmp_path, tool, 4) as served:
        ran = await run_script(AI_SDK % {"url": served.url, "model": MODEL}, tmp_path)
        requests = await executions_by_state(served)
    assert (ran.stdout.split(), requests) == ([b"failed"] * 4, {STATES[tool]: 4}), ran.stderr


@needs_codex
@BOTH
@pytest.mark.timeout(90)
async def test_codex_sends_one_request(tmp_path: Path, tool: str) -> None:
    async with shop(tmp_path, tool, 1) as served:
        code, said = await run_codex(served.url, tmp_path, "Go.", model=MODEL)
        assert code != 0, said
        assert await executions_by_state(served) == {STATES[tool]: 1}


@needs_claude
@BOTH
@pytest.mark.timeout(90)
async def test_claude_code_sends_one_request(tmp_path: Path, tool: str) -> None:
    async with shop(tmp_path, tool, 1) as served:
        ran = await run_claude(served.url, tmp_path, "Go.", model=MODEL)
        assert ran.returncode != 0, ran.stdout
        assert await executions_by_state(served) == {STATES[tool]: 1}
