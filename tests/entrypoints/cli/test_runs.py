"""`portico runs`, and `execute` and `flow run` with `--url`, against a server on another port."""

import json
import os
import pty
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES, SUSPENDED
from tests.support.callers import Caller, callers
from tests.support.portico import ASK_PERSON, chat
from tests.support.server_state import wait_for_idle
from tests.support.upstream import Script, ScriptedUpstream, UpstreamAction, closed_port, reply

GRANTS = {"ada": ("red", "ada", None), "boss": ("red", "boss", ["can_approve"])}
REFUSED, DENIED, UNREACHABLE = (
    EXIT_CODES[each] for each in (Category.REQUEST, Category.ACCESS, Category.CONFIGURATION)
)


async def run(url: str, key: str | None, *arguments: str, text: bytes | None = None) -> Result:
    """Run `portico` beside the server, and check that the key is not shown."""
    call = partial(CliRunner().invoke, command_line(), [*arguments, "--url", url], env={"PORTICO_KEY": key}, input=text)
    result: Result = await to_thread.run_sync(call)
    assert not key or key not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


async def run_as(caller: Caller, *arguments: str, text: bytes | None = None) -> Result:
    key = caller.headers["Authorization"].removeprefix("Bearer ")
    return await run(caller.served.url, key, *arguments, text=text)


async def ask(caller: Caller, text: str, request_id: str, **changes: Any) -> None:
    answer = await caller.execute(chat(text, request_id=request_id, **changes))
    assert answer.status in {200, 202}


async def test_executions_are_listed_newest_first_and_by_filter(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        for number in range(3):
            await ask(ada, "Hello", f"q-{number}", session_id="s")
        await ask(ada, ASK_PERSON, "q-3")
        table = (await run_as(ada, "runs", "list")).stdout.splitlines()
        assert table[0].split()[:4] == ["request", "id", "state", "mode"]
        assert [line.split()[0] for line in table[1:]] == ["q-3", "q-2", "q-1", "q-0"]
        limited = await run_as(ada, "runs", "list", "--session", "s", "--limit", "2", "--json")
        assert [json.loads(line)["request_id"] for line in limited.stdout.splitlines()] == ["q-2", "q-1"]
        waiting = await run_as(ada, "runs", "list", "--state", "suspended", "--state", "ERROR", "--json", "-q")
        assert [json.loads(line)["request_id"] for line in waiting.stdout.splitlines()] == ["q-3"]
        assert (await run_as(ada, "runs", "list", "--since", "soon")).exit_code == REFUSED
        assert (await run_as(ada, "runs", "list", "--state", "GONE")).exit_code == 2


async def test_an_execution_is_shown_with_its_answer_alone_on_standard_output(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        await ask(ada, "Please calculate 17*3", "q")
        content = (await ada.get("/v1/executions/q")).json["response"]["content"]
        shown = await run_as(ada, "runs", "show", "q")
        assert shown.stdout == f"{content}\n"
        assert shown.stderr.startswith("state: COMPLETE\nmode: chat\n")
        quiet = await run_as(ada, "runs", "show", "q", "--quiet")
        assert (quiet.stdout, quiet.stderr) == (f"{content}\n", "")
        trace = (await run_as(ada, "runs", "show", "q", "--trace")).stdout
        assert "rehearsal" in trace
        assert "calculate" in trace
        steps = (await run_as(ada, "runs", "show", "q", "--steps", "--json")).stdout.splitlines()
        assert {json.loads(line)["kind"] for line in steps} >= {"inference", "tool_call"}
        assert (await run_as(ada, "runs", "show", "q", "--steps", "--trace")).exit_code == 2


async def test_a_tail_shows_what_a_stream_shows_and_ends_as_the_execution(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        await ask(ada, "Hello", "q")
        await ask(ada, ASK_PERSON, "w")
        content = (await ada.get("/v1/executions/q")).json["response"]["content"]
        tail = await run_as(ada, "runs", "tail", "q")
        assert (tail.exit_code, tail.stdout) == (0, f"{content}\n")
        assert "execution.completed" in tail.stderr
        lines = [json.loads(line) for line in (await run_as(ada, "runs", "tail", "q", "--json")).stdout.splitlines()]
        assert [each["sequence_number"] for each in lines] == [*range(1, len(lines) + 1)]
        last = await run_as(ada, "runs", "tail", "q", "--json", "--after", str(len(lines) - 1))
        assert [json.loads(line) for line in last.stdout.splitlines()] == lines[-1:]
        nothing = await run_as(ada, "runs", "tail", "q", "--after", str(len(lines)), "-q")
        assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, f"{content}\n", "")
        waits = await run_as(ada, "runs", "tail", "w", "--quiet")
        assert (waits.exit_code, waits.stdout) == (SUSPENDED, "")
        assert waits.stderr == "suspended: ask_person: May I?\n"


def _frame(number: int, kind: str, **fields: Any) -> bytes:
    ids = {"request_id": "q", "session_id": None, "trace_id": "0" * 32, "span_id": "0" * 16, "parent_span_id": None}
    data = {"sequence_number": number, "type": kind, **ids, "caused_by": None, "timestamp": "2026-11-22T00:00:00Z"}
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, kind.encode(), orjson.dumps(data | fields))


def _broken_off(*frames: bytes) -> Script:
    """Return an answer whose connection ends after these frames, before the body does."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%b\r\n" % (len(each), each) for each in frames), UpstreamAction.CLOSE]


async def test_a_tail_reads_on_where_a_stream_broke_and_passes_over_what_it_does_not_know() -> None:
    done = {"request_id": "q", "trace_id": "0" * 32, "mode": "chat", "state": "COMPLETE", "content": "Hi", "new": 1}
    first = _broken_off(_frame(1, "of.another.version", x=1), _frame(2, "node.start", node="a\x1b[2J"))
    second = _broken_off(_frame(2, "node.start", node="a"), _frame(3, "execution.completed", response=done))
    state = reply({"state": "EXECUTE", "events": 1, "response": None})
    async with ScriptedUpstream(state, first, second) as upstream:
        result = await run(upstream.url, None, "runs", "tail", "q")
    assert (result.exit_code, result.stdout) == (0, "Hi\n")
    assert [line.split()[2] for line in result.stderr.splitlines()] == ["node.start", "execution.completed"]
    assert "\x1b" not in result.stderr
    assert [each.headers["last-event-id"] for each in upstream.requests[1:]] == ["0", "2"]


async def test_executions_are_cancelled_one_after_the_other(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        await ask(ada, ASK_PERSON, "a")
        await ask(ada, "Hello", "b")
        result = await run_as(ada, "runs", "cancel", "a", "b", "\x1b[2J")
        assert result.exit_code == REFUSED
        assert result.stdout == "a  cancelling\nb  COMPLETE\n"
        assert result.stderr == "REQUEST_NOT_FOUND: no execution has this id\n"


async def test_a_question_is_answered_and_the_execution_followed(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        await ask(ada, ASK_PERSON, "q")
        before = (await ada.get("/v1/executions/q")).json["events"]
        assert (await run_as(ada, "runs", "resume", "q", "--approve")).exit_code == REFUSED
        resumed = await run_as(ada, "runs", "resume", "q", "--text", "yes", "--json")
        lines = [json.loads(line) for line in resumed.stdout.splitlines()]
        numbers = [each["sequence_number"] for each in lines if "sequence_number" in each]
        assert (resumed.exit_code, numbers[0], lines[-1]["type"]) == (0, before + 1, "execution.completed")
        again = await run_as(ada, "runs", "resume", "q", "--text", "yes")
        assert again.exit_code == REFUSED
        assert again.stderr == "REQUEST_RESUME_UNEXPECTED: no suspension of the execution is open\n"
        assert (await run_as(ada, "runs", "resume", "unheard-of", "--text", "a")).exit_code == REFUSED


async def test_another_users_call_is_approved_without_being_followed(tmp_path: Path) -> None:
    async with ScriptedUpstream(reply({"id": 7})) as upstream:
        table = {"description": "Order.", "method": "POST", "url": upstream.url, "allow_private": True}
        async with callers(tmp_path, GRANTS, tools={"http": {"order": table}}) as (by_name, service):
            step = {"name": "buy", "type": "tool", "input": {"name": "order", "arguments": {}}}
            await ask(by_name["ada"], "a wish", "q", mode="plan", plan={"steps": [step]})
            approved = await run_as(by_name["boss"], "runs", "resume", "q", "--approve")
            assert (approved.exit_code, approved.output) == (0, "")
            await wait_for_idle(service)
            assert len(upstream.requests) == 1
            assert (await run_as(by_name["ada"], "runs", "tail", "q", "-q")).exit_code == 0


@pytest.mark.parametrize(
    "options",
    [(), ("--approve", "--deny"), ("--text", "a", "--reason", "b"), ("--answer", "{"), ("--happened",)],
    ids=" ".join,
)
async def test_an_answer_that_is_none_is_wrong_usage(options: tuple[str, ...]) -> None:
    assert (await run("http://127.0.0.1:1", None, "runs", "resume", "q", *options)).exit_code == 2


@pytest.mark.parametrize(
    "command",
    [("runs", "list"), ("runs", "show", "q"), ("runs", "tail", "q"), ("runs", "cancel", "q"), ("execute", "Hi")],
    ids=" ".join,
)
async def test_no_server_a_wrong_key_and_an_unknown_id_have_exit_codes_and_one_line(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    async with closed_port() as url:
        missing = await run(url, None, *command)
    assert (missing.exit_code, missing.stdout, missing.stderr.count("\n")) == (UNREACHABLE, "", 1)
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        denied = await run(ada.served.url, "ptk_unknown1_" + "a" * 43, *command)
        assert (denied.exit_code, denied.stdout, denied.stderr.count("\n")) == (DENIED, "", 1)
        if "q" in command:
            unknown = await run_as(ada, *command)
            line = "REQUEST_NOT_FOUND: no execution has this id\n"
            assert (unknown.exit_code, unknown.stdout, unknown.stderr) == (REFUSED, "", line)


async def test_the_key_may_stand_in_a_file_and_the_url_in_the_environment(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada, file = by_name["ada"], tmp_path / "key"
        file.write_text(ada.headers["Authorization"].removeprefix("Bearer ") + "\n")
        variables = {"PORTICO_URL": ada.served.url, "PORTICO_KEY": "ptk_of_another"}
        given = ["runs", "list", "--key-file", str(file)]
        result = await to_thread.run_sync(partial(CliRunner().invoke, command_line(), given, env=variables))
        assert result.exit_code == 0
        for content in (None, "", "two words"):
            file.unlink(missing_ok=True)
            if content is not None:
                file.write_text(content)
            result = await to_thread.run_sync(partial(CliRunner().invoke, command_line(), given, env=variables))
            assert result.exit_code == UNREACHABLE
            assert result.stderr.startswith(f"CONFIG_INVALID: {file}")


async def test_execute_runs_on_a_server_as_in_this_process(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        result = await run_as(ada, "execute", "-", "--json", "--quiet", text="Say café\n".encode())
        response = json.loads(result.stdout)
        assert (result.exit_code, result.stderr, response["state"]) == (0, "", "COMPLETE")
        request = (await ada.get(f"/v1/executions/{response['request_id']}/input")).json
        assert request["messages"][-1]["content"] == "Say café"
        streamed = await run_as(ada, "execute", "Hello", "--stream")
        assert "execution.completed" in streamed.stderr
        assert (await run_as(ada, "runs", "list", "--limit", "1", "-q")).stdout.count("COMPLETE") == 1
        waits = await run_as(ada, "execute", ASK_PERSON, "-q")
        assert (waits.exit_code, waits.stderr) == (SUSPENDED, "suspended: ask_person: May I?\n")
        assert (await run_as(ada, "execute", "-", text=b" \n")).exit_code == 2
        assert (await run_as(ada, "execute", "-", text=b"\xff")).exit_code == REFUSED
        assert (await run_as(ada, "execute", "Hello", "--agent", "of-another")).exit_code == REFUSED


async def test_a_flow_runs_on_a_server(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"text": "some words"}')
    async with callers(tmp_path, GRANTS, flows={"modules": ["tests.support.example_flows"]}) as (by_name, _):
        result = await run_as(by_name["ada"], "flow", "run", "split-and-merge", "--input", str(file), "-q", "--json")
    assert (result.exit_code, json.loads(result.stdout)["mode"]) == (0, "flow")


async def test_a_question_is_asked_at_the_terminal_of_another_machine(tmp_path: Path) -> None:
    """The answer is typed in a pseudo-terminal, while what is printed goes to pipes."""
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ada = by_name["ada"]
        ours, theirs = pty.openpty()
        key = ada.headers["Authorization"].removeprefix("Bearer ")
        command = [sys.executable, "-m", "portico", "execute", ASK_PERSON, "--url", ada.served.url, "-q"]
        environ = os.environ | {"PORTICO_KEY": key, "PYTHONPATH": str(Path(__file__).parents[3])}
        async with await anyio.open_process(command, stdin=theirs, cwd=tmp_path, env=environ) as process:
            os.write(ours, b"yes\n")
            assert process.stdout is not None
            assert process.stderr is not None
            printed = b"".join([chunk async for chunk in process.stdout])
            asked = b"".join([chunk async for chunk in process.stderr])
            code = await process.wait()
        os.close(ours)
        os.close(theirs)
    assert (code, asked.startswith(b"ask_person: May I?")) == (0, True)
    assert b"yes" in printed
