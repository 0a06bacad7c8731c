"""Clients from npm, unmodified, in front of a live service and a scripted provider.

`make clients` installs them. Where they are not, these journeys are skipped.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.replays import assert_replays_are_identical
from tests.support.scripted_provider import answered, scripted_service, streamed
from tests.support.upstream import UpstreamAction

ROOT = Path(__file__).parents[2]
SDKS = ROOT / ".clients" / "sdks"
CLAUDE = ROOT / ".clients" / "claude_code" / "node_modules" / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```js\n(.*?)```", PAGE, re.DOTALL)
SERVER = "http://127.0.0.1:8080"
SECONDS = 60.0
needs_sdks = pytest.mark.skipif(
    not (SDKS / "node_modules").exists() or shutil.which("node") is None,
    reason="no Node packages: make clients installs them",
)
needs_claude = pytest.mark.skipif(not CLAUDE.exists(), reason="no Node packages: make clients installs them")


async def run_script(script: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run an ES module beside the installed packages."""
    file = folder / "script.mjs"
    file.write_text(script, encoding="utf-8")
    (folder / "node_modules").symlink_to(SDKS / "node_modules")
    with anyio.fail_after(SECONDS):
        return await anyio.run_process(["node", str(file)], check=False)


@needs_sdks
@pytest.mark.parametrize("snippet", SNIPPETS, ids=["openai", "ai"])
async def test_a_snippet_of_the_page_prints_the_answer(snippet: str, tmp_path: Path) -> None:
    async with scripted_service(answered("Hi from here.")) as scripted:
        ran = await run_script(snippet.replace(SERVER, scripted.served.url), tmp_path)
    assert (ran.returncode, ran.stdout) == (0, b"Hi from here.\n"), ran.stderr


TOOL_ROUND = """
import { streamText, stepCountIs, tool, jsonSchema } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const portico = createOpenAICompatible({ name: "portico", baseURL: "%s/v1", apiKey: "any" });
const look = tool({
  description: "Looks.",
  inputSchema: jsonSchema({ type: "object", properties: { at: { type: "string" } } }),
  execute: async ({ at }) => `seen ${at}`,
});
let failed = false;
const result = streamText({
  model: portico("default"),
  prompt: "Look.",
  tools: { look },
  stopWhen: stepCountIs(3),
  maxRetries: 0,
  onError: () => { failed = true; },
});
let text = "";
for await (const part of result.textStream) text += part;
console.log(failed ? "failed" : text);
"""


@needs_sdks
async def test_the_ai_sdk_runs_a_tool_round_over_streams(tmp_path: Path) -> None:
    async with scripted_service(streamed("", ("p1", "look", {"at": "ü"})), streamed("Done it.")) as scripted:
        ran = await run_script(TOOL_ROUND % scripted.served.url, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, b"Done it.\n"), ran.stderr
    assert [each["content"] for each in scripted.sent_messages() if each["role"] == "tool"] == ["seen ü"]
    assert [each["tool_call_id"] for each in scripted.sent_messages() if each["role"] == "tool"] == ["p1"]


OPEN_RESPONSES = (
    TOOL_ROUND.replace('import { createOpenAICompatible } from "@ai-sdk/openai-compatible";', "")
    .replace(
        "import { streamText", 'import { createOpenResponses } from "@ai-sdk/open-responses";\nimport { streamText'
    )
    .replace(
        'createOpenAICompatible({ name: "portico", baseURL: "%s/v1", apiKey: "any" })',
        'createOpenResponses({ name: "portico", url: "%s/v1/responses", apiKey: "any" })',
    )
)
"""The same round by the provider of the AI SDK for Open Responses."""


@needs_sdks
async def test_the_ai_sdk_runs_a_tool_round_over_open_responses(tmp_path: Path) -> None:
    async with scripted_service(streamed("", ("p1", "look", {"at": "ü"})), streamed("Done it.")) as scripted:
        ran = await run_script(OPEN_RESPONSES % scripted.served.url, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, b"Done it.\n"), ran.stderr
    assert [each["tool_call_id"] for each in scripted.sent_messages() if each["role"] == "tool"] == ["p1"]


@needs_sdks
async def test_the_ai_sdk_takes_a_stream_that_broke_for_a_failure(tmp_path: Path) -> None:
    async with scripted_service(
        streamed("One two three", broken=UpstreamAction.CLOSE), failover={"max_retries": 0}
    ) as scripted:
        ran = await run_script(TOOL_ROUND % scripted.served.url, tmp_path)
    assert b"failed" in ran.stdout + ran.stderr
    assert len(scripted.provider.requests) == 1


async def run_claude(
    url: str, folder: Path, prompt: str, *options: str, model: str = "default"
) -> subprocess.CompletedProcess[bytes]:
    """Run Claude Code in the folder, with the variables of the page."""
    variables = dict(re.findall(r"^export (\w+)=(\S+)$", PAGE, re.MULTILINE))
    assert variables["CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK"] == "1"
    home = folder / "home"
    home.mkdir()
    environment = {
        **variables,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_MODEL": model,
        "HOME": str(home),
        "PATH": os.environ["PATH"],
    }
    command = [str(CLAUDE), "-p", prompt, "--permission-mode", "acceptEdits", *options]
    with anyio.fail_after(SECONDS):
        return await anyio.run_process(command, check=False, cwd=folder, env=environment, stdin=subprocess.DEVNULL)


@needs_claude
@pytest.mark.timeout(90)
async def test_claude_code_writes_a_file_and_continues_the_record(tmp_path: Path) -> None:
    file = tmp_path / "hello.txt"
    write: dict[str, Any] = {"file_path": str(file), "content": "hello"}
    async with scripted_service(
        streamed("I write it.", ("p1", "Write", write)), streamed("It is written.")
    ) as scripted:
        ran = await run_claude(scripted.served.url, tmp_path, "Write hello into hello.txt")
        await assert_replays_are_identical(scripted.served, scripted.service, turns=2)
    assert (ran.returncode, ran.stdout) == (0, b"It is written.\n"), ran.stderr
    assert file.read_text() == "hello"
    assert [each["tool_call_id"] for each in scripted.sent_messages() if each["role"] == "tool"] == ["p1"]


@needs_claude
@pytest.mark.timeout(90)
async def test_claude_code_sends_one_request_of_a_stream_that_broke_and_reports_no_success(tmp_path: Path) -> None:
    async with scripted_service(
        streamed("One two three", broken=UpstreamAction.CLOSE), failover={"max_retries": 0}
    ) as scripted:
        ran = await run_claude(scripted.served.url, tmp_path, "Count.")
    assert ran.returncode != 0
    assert len(scripted.provider.requests) == 1
