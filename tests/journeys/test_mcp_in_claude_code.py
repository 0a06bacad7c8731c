"""Claude Code with `portico mcp`: it rolls dice, and an external call waits for a person."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.entrypoints.mcp.test_http import MCP
from tests.journeys.test_npm_clients import needs_claude, run_claude
from tests.support.portico import portico
from tests.support.scripted_provider import ScriptedService, scripted_service, streamed
from tests.support.upstream import Script

pytestmark = [needs_claude, pytest.mark.timeout(90), pytest.mark.usefixtures("real_time")]
PORTICO = str(Path(sys.executable).parent / "portico")
DICE, REFUND = "Roll 2d6", "Refund 7 with refund, amount 7."
TOOL = '''

@tool(side_effects=SideEffects.EXTERNAL, idempotent=False)
def refund(amount: float) -> str:
    """Refund an amount."""
    with open("refunds.txt", "a") as file:
        file.write(f"{amount:g}\\n")
    return f"refunded {amount:g}"
'''
FORM = """
import json
import sys

form = json.load(sys.stdin)
with open("forms.jsonl", "a") as file:
    file.write(json.dumps(form) + "\\n")
answer = {"hookEventName": "Elicitation", "action": "accept", "content": {"decision": "approve"}}
print(json.dumps({"hookSpecificOutput": answer}))
"""
"""A person who fills in the form of Claude Code."""
TERMINAL = """
import json
import subprocess
import sys

portico, url = sys.argv[1:]


def runs(*arguments):
    return subprocess.run([portico, "runs", *arguments, "--url", url], check=True, capture_output=True).stdout


waiting = json.loads(runs("list", "--state", "SUSPENDED", "--json"))
runs("resume", waiting["request_id"], "--approve")
"""
"""A person who leaves the form open until it is withdrawn, and answers in another terminal."""


def calls(*messages: str) -> list[Script]:
    """Return what the model of Claude Code answers: a call of `execute` with each message, then a text."""
    made = [("p1", "mcp__portico__execute", {"message": message}) for message in messages]
    return [*(streamed("", call) for call in made), streamed("Done.")]


def options(*arguments: str, person: str) -> list[str]:
    """Return the options of Claude Code with `portico mcp` as its only server, and a program that sees its forms."""
    hook = {"type": "command", "command": f"{sys.executable} {person}"}
    server = {"command": PORTICO, "args": ["mcp", *arguments], "alwaysLoad": True}
    return [
        "--strict-mcp-config",
        f"--mcp-config={json.dumps({'mcpServers': {'portico': server}})}",
        f"--settings={json.dumps({'hooks': {'Elicitation': [{'hooks': [hook]}]}})}",
        "--allowedTools=mcp__portico__execute",
    ]


def results(scripted: ScriptedService) -> list[dict[str, Any]]:
    """Return what `execute` has answered to Claude Code."""
    return [json.loads(each["content"]) for each in scripted.sent_messages() if each["role"] == "tool"]


async def test_in_a_new_directory_it_rolls_dice_and_shows_a_form_before_an_external_call(tmp_path: Path) -> None:
    await anyio.run_process([PORTICO, "init"], cwd=tmp_path, env={})
    with (tmp_path / "tools.py").open("a") as tools:
        tools.write(TOOL)
    (tmp_path / "person.py").write_text(FORM)
    async with scripted_service(*calls(DICE, REFUND)) as scripted:
        given = options(person="person.py")
        ran = await run_claude(scripted.served.url, tmp_path, "Roll, then refund.", *given)
        rolled, refunded = results(scripted)
    assert (ran.returncode, ran.stdout) == (0, b"Done.\n"), ran.stderr
    assert "Rolled 2d6" in rolled["content"]
    assert (refunded["state"], "refunded 7" in refunded["content"]) == ("COMPLETE", True)
    [form] = [json.loads(line) for line in (tmp_path / "forms.jsonl").read_text().splitlines()]
    assert form["message"] == 'refund asks to run: {"tool":"refund","arguments":{"amount":7}}'
    assert (tmp_path / "refunds.txt").read_text() == "7\n"


async def test_in_front_of_a_server_the_question_is_answered_in_another_terminal(tmp_path: Path) -> None:
    (tmp_path / "person.py").write_text(TERMINAL)
    async with (
        portico(mcp=MCP, tools={"modules": ["tests.support.shop_tools"]}) as (served, _),
        scripted_service(*calls(REFUND)) as scripted,
    ):
        given = options("--url", served.url, person=f"person.py {PORTICO} {served.url}")
        ran = await run_claude(scripted.served.url, tmp_path, "Refund.", *given)
        [refunded] = results(scripted)
    assert (ran.returncode, ran.stdout) == (0, b"Done.\n"), ran.stderr
    assert (refunded["state"], "refunded 7" in refunded["content"]) == ("COMPLETE", True)
