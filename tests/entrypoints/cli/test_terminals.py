"""Commands in a pipe and in a pseudo-terminal: their exit codes, and no control characters of others."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.http_server import RunningServer
from tests.support.portico import ASK_PERSON, chat, portico
from tests.support.upstream import ScriptedUpstream, UpstreamAction

ROOT = Path(__file__).parents[3]
HOSTILE = "Hello \x1b[2J\x1b]0;owned\x07"
COMMANDS: Mapping[str, int] = {
    "runs list": 0,
    "runs show said": 0,
    "runs show said --trace": 0,
    "runs show said --steps": 0,
    "runs tail said": 0,
    "runs tail waits": 3,
    "runs show unknown": 17,
    "runs cancel cancelled": 0,
    "runs resume asked --text yes": 0,
    "runs resume wanted-1 --approve": 0,
    "runs resume wanted-2 --deny --reason no": 11,
    "runs resume lost-1 --give-up": 11,
    "approvals list": 0,
    "approvals approve wanted-3 --grant execution": 0,
    "approvals deny wanted-4 --reason no": 0,
    "approvals settle lost-2 --decision happened --result done": 0,
    "approvals approve wanted-4": 17,
    "approvals grants": 0,
    "approvals revoke unknown": 17,
    "flow run split-and-merge --input input.json": 0,
    "schedules list": 0,
    "webhooks list": 0,
    "credentials list": 0,
    "explain said": 0,
    "execute Hi": 0,
    "init": 0,
    "init .": 2,
}
"""Exit codes by command."""
PROGRAM = """
import sys
from portico.entrypoints.cli.command_line import command_line

for command in sys.argv[2:]:
    server = [] if command.startswith("init") else ["--url", sys.argv[1]]
    try:
        command_line()([*command.split(), *server])
    except SystemExit as end:
        sys.stderr.flush()
        print(f"<<{command}: {end.code}>>", flush=True)
"""
"""Runs the commands one after the other."""


def in_pipe(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> bytes:
    ran = subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=True,
    )  # fmt: skip
    return ran.stdout


def in_terminal(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        printed = b""
        while data := read(ours):
            printed += data
    os.close(ours)
    return printed


def read(terminal: int) -> bytes:
    """Return what comes next; nothing once the other side is closed."""
    try:
        return os.read(terminal, 2**16)
    except OSError:
        return b""


@asynccontextmanager
async def shop(url: str) -> AsyncIterator[RunningServer]:
    """Run a service with a flow, a tool that asks a person, and one that sends a request to that URL."""
    order = {"description": "Order.", "method": "POST", "url": url, "allow_private": True, "side_effects": "write"}
    tools = {"modules": ["tests.support.shop_tools"], "http": {"order": order}}
    async with portico(tools=tools, flows={"modules": ["tests.support.example_flows"]}) as (served, _):
        yield served


def call(tool: str, request_id: str, **arguments: object) -> bytes:
    """Return the body of a request that calls the tool."""
    step = {"name": "call", "type": "tool", "input": {"name": tool, "arguments": arguments}}
    return chat("a wish", mode="plan", plan={"steps": [step]}, request_id=request_id)


@pytest.mark.usefixtures("real_time")
@pytest.mark.parametrize("play", [in_pipe, in_terminal])
async def test_commands_have_their_exit_codes_and_show_no_control_characters_of_others(
    tmp_path: Path, play: Callable[..., bytes]
) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PORTICO")}
    environ = {**variables, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    (tmp_path / "input.json").write_text('{"text": "some words"}')
    async with ScriptedUpstream((UpstreamAction.CLOSE,)) as upstream, shop(upstream.url) as served:
        for request_id in ("waits", "cancelled", "asked"):
            assert (await served.post(chat(ASK_PERSON, request_id=request_id, tools=["ask_person"]))).status == 202
        for request_id in ("wanted-1", "wanted-2", "wanted-3", "wanted-4"):
            assert (await served.post(call("refund", request_id, amount=7))).status == 202
        for request_id in ("lost-1", "lost-2"):
            assert (await served.post(call("order", request_id))).status == 202
        assert (await served.post(chat(HOSTILE, request_id="said"))).status == 200
        command = [sys.executable, "-c", PROGRAM, served.url, *COMMANDS]
        printed = await to_thread.run_sync(play, command, tmp_path, environ)
    codes = {name.decode(): int(code) for name, code in re.findall(rb"<<([^:]*): (\d+)>>", printed)}
    assert codes == COMMANDS, printed
    listed = printed.partition(b"<<")[0]
    assert rb"Hello \x1b[2J" in listed
    shown = printed if play is in_terminal else listed  # an answer is written into a pipe as it is
    assert b"\x1b[2J" not in shown
    assert b"\x07" not in shown
