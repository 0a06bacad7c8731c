"""`HttpAgent` of AG-UI 1.0.0 and 0.0.59 and CopilotKit, unmodified, in front of a live service, and both schemas.

`make clients` installs them. Where they are not, the journey is skipped.
"""

import json
import os
import re
import shutil
from pathlib import Path

import anyio
import pytest

from tests.journeys.test_npm_clients import ROOT, SECONDS, SERVER, needs_sdks, run_script
from tests.support.portico import portico

COPILOTKIT = ROOT / ".clients" / "copilotkit" / "node_modules"
PAGE = (ROOT / "docs" / "ag-ui.md").read_text(encoding="utf-8")
AGENTS = {"helper": {"description": "Helps.", "tools": ["calculate", "ask_person"]}}
JOURNEY = """
import { HttpAgent } from "%(package)s";

const url = "%(url)s/v1/ag-ui/helper";
const ask = (content) => new HttpAgent({ url, initialMessages: [{ id: "m1", role: "user", content }] });
const print = (agent) => console.log(agent.messages.map((each) => each.role).join(" "));

const calculates = ask("Please calculate 17*3");
await calculates.runAgent();
print(calculates);
console.log(calculates.messages.at(-1).content.split("\\n").at(-1));

const tools = [{ name: "open_menu", description: "Open a menu.", parameters: { type: "object", properties: {} } }];
const opens = ask("Use open_menu");
await opens.runAgent({ tools });
const [call] = opens.messages.at(-1).toolCalls;
opens.messages.push({ id: "m2", role: "tool", toolCallId: call.id, content: "opened" });
await opens.runAgent({ tools });
print(opens);

const asks = ask('Use ask_person: "May I?"');
let interrupts = [];
await asks.runAgent({}, { onRunFinishedEvent: ({ event }) => { interrupts = event.outcome.interrupts; } });
const resume = [{ interruptId: interrupts[0].id, status: "resolved", payload: "yes" }];
await asks.runAgent({ resume });
print(asks);
console.log(interrupts[0].message, asks.messages.find((each) => each.role === "tool").content);
"""

SCHEMAS = """
const { EventSchemas } = await import("%(package)s");
const ask = (agent, content, fields) => ({ agent, body: { threadId: "t", runId: "r", tools: [], context: [], state: {},
  forwardedProps: {}, %(version)s messages: [{ id: "m1", role: "user", content }], ...fields } });
const tools = [{ name: "open_menu", description: "Open a menu.", parameters: { type: "object", properties: {} } }];
const runs = [
  ask("helper", "Hello"),
  ask("helper", "Please calculate 17*3"),
  ask("helper", "Use open_menu", { tools }),
  ask("helper", 'Use ask_person: "May I?"'),
  ask("counter", "Count"),
  ask("lost", "Hello"),
];
const seen = new Set();
for (const { agent, body } of runs) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`%(url)s/v1/ag-ui/${agent}`, { method: "POST", headers, body: JSON.stringify(body) });
  for (const line of (await answer.text()).split("\\n\\n").filter((each) => each.startsWith("data: "))) {
    const frame = JSON.parse(line.slice(6));
    EventSchemas.parse(frame);
    seen.add(frame.type === "RUN_FINISHED" ? `${frame.type} ${frame.outcome?.type}` : frame.type);
  }
}
console.log([...seen].sort().join("\\n"));
"""


@needs_sdks
@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("@ag-ui/core/schemas", 'protocolVersion: "1.0",'),
        ("./node_modules/ag-ui-client-0/node_modules/@ag-ui/core/dist/index.mjs", ""),
    ],
)
async def test_the_schemas_of_both_versions_take_every_frame(package: str, version: str, tmp_path: Path) -> None:
    counter = {"description": "Counts.", "mode": "structured", "output": {"schema": {"type": "object"}}}
    engines = {"main": {"model": "rehearsal://"}, "gone": {"model": "openai://none", "base_url": "http://127.0.0.1:9"}}
    agents = {**AGENTS, "counter": counter, "lost": {"description": "Fails.", "model": "gone"}}
    async with portico(agents=agents, engines=engines, failover={"max_retries": 0}) as (served, _):
        ran = await run_script(SCHEMAS % {"package": package, "version": version, "url": served.url}, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert {
        *("RUN_STARTED", "RUN_ERROR", "RUN_FINISHED interrupt", "RUN_FINISHED success", "STATE_SNAPSHOT"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
    } <= {*ran.stdout.decode().splitlines()}


@needs_sdks
@pytest.mark.parametrize("package", ["@ag-ui/client", "ag-ui-client-0"])
async def test_a_page_reads_text_runs_a_tool_and_answers_a_question(package: str, tmp_path: Path) -> None:
    async with portico(agents=AGENTS) as (served, _):
        ran = await run_script(JOURNEY % {"package": package, "url": served.url}, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode().splitlines() == [
        "user assistant tool assistant",
        "calculate answered: 51",
        "user assistant tool assistant",
        "user assistant tool assistant",
        "May I? yes",
    ]


@pytest.mark.skipif(
    not COPILOTKIT.exists() or shutil.which("node") is None, reason="no Node packages: make clients installs them"
)
@pytest.mark.timeout(90)
async def test_copilotkit_shows_text_runs_a_tool_of_the_page_and_asks_for_an_approval(tmp_path: Path) -> None:
    """The page's server has the ten lines of the documentation."""
    [server] = re.findall(r"```ts\n(.*?)```", PAGE, re.DOTALL)
    agents = {"support": {"description": "Helps.", "tools": ["roll_dice"]}}
    shutil.copy(Path(__file__).with_name("copilotkit_page.mjs"), tmp_path / "page.mjs")
    (tmp_path / "node_modules").symlink_to(COPILOTKIT)
    async with portico(agents=agents, policy={"approve": [{"tool": "roll_dice"}]}) as (served, _):
        (tmp_path / "server.mjs").write_text(server.replace(SERVER, served.url), encoding="utf-8")
        environment = {"PATH": os.environ["PATH"], "COPILOTKIT_TELEMETRY_DISABLED": "true"}
        with anyio.fail_after(SECONDS):
            ran = await anyio.run_process(["node", str(tmp_path / "page.mjs")], env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert (found["opened"], found["reason"]) == (["menu"], "approval")
    assert [roles for roles, _ in found["shown"]] == ["user assistant", *["user assistant tool assistant"] * 2]
    assert [text.partition(":")[0] for _, text in found["shown"]][1:] == ["A tool answered", "roll_dice answered"]
