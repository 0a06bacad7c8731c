"""`portico approvals` against a running server: lists, decisions, and servers that refuse or are none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from anyio import to_thread
from typer.testing import CliRunner, Result

from portico.bootstrap.service import Service
from portico.domain.failures import Category
from portico.entrypoints.cli.command_line import command_line
from portico.entrypoints.cli.exit_codes import EXIT_CODES
from tests.support.callers import Caller, callers
from tests.support.portico import ASK_PERSON, chat
from tests.support.server_state import wait_for_idle
from tests.support.upstream import Script, ScriptedUpstream, UpstreamAction, closed_port, reply

GRANTS = {
    "ada": ("red", "ada", None),
    "boss": ("red", "boss", ["can_approve"]),
    "asker": ("red", "ada", ["can_send_messages"]),
}
REFUSED, DENIED, UNREACHABLE = (
    EXIT_CODES[each] for each in (Category.REQUEST, Category.ACCESS, Category.CONFIGURATION)
)


@asynccontextmanager
async def shop(
    folder: Path, script: Script, **order: Any
) -> AsyncIterator[tuple[dict[str, Caller], ScriptedUpstream, Service]]:
    """Run a service with a tool `order` that sends a request; yield its callers, its upstream and itself."""
    async with ScriptedUpstream(script) as upstream:
        table = {"description": "Order.", "method": "POST", "url": upstream.url, "allow_private": True, **order}
        async with callers(folder, GRANTS, tools={"http": {"order": table}}) as (by_name, service):
            yield by_name, upstream, service


async def ask_for_order(caller: Caller, request_id: str) -> None:
    step = {"name": "buy", "type": "tool", "input": {"name": "order", "arguments": {}}}
    body = chat("a secret wish", mode="plan", plan={"steps": [step]}, request_id=request_id)
    assert (await caller.execute(body)).status == 202


async def run(url: str, key: str | None, *arguments: str) -> Result:
    """Run `portico approvals` beside the server, and check that the key is not shown."""
    invoke = partial(
        CliRunner().invoke, command_line(), ["approvals", *arguments, "--url", url], env={"PORTICO_KEY": key}
    )
    result: Result = await to_thread.run_sync(invoke)
    assert not key or key not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


async def run_as(caller: Caller, *arguments: str) -> Result:
    return await run(caller.served.url, caller.headers["Authorization"].removeprefix("Bearer "), *arguments)


async def listed(caller: Caller) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await run_as(caller, "list", "--json")).stdout.splitlines()]


async def test_calls_are_listed_and_only_those_that_are_named_are_approved(tmp_path: Path) -> None:
    async with shop(tmp_path, reply({"id": 7})) as (by_name, upstream, service):
        await ask_for_order(by_name["ada"], "q-1")
        await ask_for_order(by_name["ada"], "q-2")
        await by_name["ada"].execute(chat(ASK_PERSON, request_id="q-3"))
        table = (await run_as(by_name["boss"], "list")).stdout.splitlines()
        assert table[0].split() == ["id", "kind", "because", "user", "agent", "asked", "tool", "call"]
        ids = [line.split()[0] for line in table[1:]]
        assert [each.partition("/")[0] for each in ids] == ["q-1", "q-2"]
        assert [line.split()[1:5] for line in table[1:]] == [["approval", "tool", "ada", "-"]] * 2
        assert table[1].endswith('order  {"tool":"order","arguments":{}}')
        shown = await listed(by_name["boss"])
        assert [each["step_name"] for each in shown] == ["buy", "buy"]
        assert shown[0]["suspension_id"] == shown[1]["suspension_id"]
        approved = await run_as(by_name["boss"], "approve", "q-2", ids[1])
        assert approved.stdout == f"approve  {ids[1]}  order\n"
        assert approved.exit_code == 0
        await wait_for_idle(service)
        assert len(upstream.requests) == 1
        assert [each["request_id"] for each in await listed(by_name["ada"])] == ["q-1"]


async def test_an_openai_client_gets_its_answer_once_a_call_is_approved_from_another_terminal(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"tool_calls": [{"name": "order", "arguments": {}}]}, {"text": "Ordered."}]))
    tables: dict[str, Any] = {
        "engines": {"script": {"model": f"scripted://{script}"}},
        "agents": {"buyer": {"description": "Buys.", "system_prompt": "Buy.", "tools": ["order"]}},
    }
    async with ScriptedUpstream(reply({"id": 7})) as upstream:
        order = {"description": "Order.", "method": "POST", "url": upstream.url, "allow_private": True}
        async with callers(tmp_path, GRANTS, tools={"http": {"order": order}}, **tables) as (by_name, _):
            ada, boss = by_name["ada"], by_name["boss"]
            key = ada.headers["Authorization"].removeprefix("Bearer ")
            async with (
                openai.AsyncOpenAI(base_url=f"{ada.served.url}/v1", api_key=key) as client,
                anyio.create_task_group() as group,
            ):

                async def approve() -> None:
                    while not (waiting := await listed(boss)):
                        await anyio.wait_all_tasks_blocked()
                    call = f"{waiting[0]['request_id']}/{waiting[0]['suspension_id']}"
                    assert (await run_as(boss, "approve", call)).exit_code == 0

                group.start_soon(approve)
                question: Any = [{"role": "user", "content": "Buy it."}]
                answer = await client.chat.completions.create(model="buyer", messages=question)
    assert (answer.choices[0].message.content, len(upstream.requests)) == ("Ordered.", 1)


async def test_the_model_sees_the_reason_of_a_denial(tmp_path: Path) -> None:
    async with shop(tmp_path, reply({"id": 7})) as (by_name, upstream, service):
        await ask_for_order(by_name["ada"], "q")
        [shown] = await listed(by_name["ada"])
        call = f"q/{shown['suspension_id']}"
        denied = await run_as(by_name["ada"], "deny", call, "--reason", "too dear")
        assert (denied.exit_code, denied.stdout.split()[0]) == (0, "deny")
        await wait_for_idle(service)
        assert upstream.requests == []
        assert "not approved: too dear" in (await by_name["ada"].get("/v1/executions/q")).body.decode()


async def test_an_unknown_outcome_is_settled_and_not_approved(tmp_path: Path) -> None:
    async with shop(tmp_path, (UpstreamAction.CLOSE,), side_effects="write") as (by_name, upstream, service):
        await ask_for_order(by_name["ada"], "q")
        [shown] = await listed(by_name["boss"])
        assert shown["kind"] == "unknown_outcome"
        assert (await run_as(by_name["boss"], "approve", "q")).exit_code == REFUSED
        settled = await run_as(by_name["boss"], "settle", "q", "--decision", "happened", "--result", "order 7")
        assert (settled.exit_code, settled.stdout.split()[0]) == (0, "happened")
        await wait_for_idle(service)
        assert len(upstream.requests) == 1
        assert "order 7" in (await by_name["ada"].get("/v1/executions/q")).body.decode()


async def test_nothing_is_decided_if_one_id_is_unknown(tmp_path: Path) -> None:
    async with shop(tmp_path, reply({"id": 7})) as (by_name, _, _):
        await ask_for_order(by_name["ada"], "q")
        result = await run_as(by_name["boss"], "approve", "q", "\x1b[2J")
        assert (result.exit_code, result.stdout) == (REFUSED, "")
        assert result.stderr == "REQUEST_NOT_FOUND: no open approval is or belongs to '\\x1b[2J'\n"
        assert len(await listed(by_name["boss"])) == 1


async def test_refusals_of_the_server_are_shown_with_their_code(tmp_path: Path) -> None:
    async with shop(tmp_path, reply({"id": 7})) as (by_name, upstream, _):
        await ask_for_order(by_name["ada"], "q")
        without_right = await run_as(by_name["asker"], "approve", "q")
        assert (without_right.exit_code, without_right.stdout) == (DENIED, "")
        assert without_right.stderr.startswith("ACCESS_DENIED: ")
        for key in (None, "ptk_unknown1_" + "a" * 43):
            result = await run(by_name["ada"].served.url, key, "list")
            assert (result.exit_code, result.stdout) == (DENIED, "")
            assert result.stderr.startswith("ACCESS_UNAUTHENTICATED: ")
        assert upstream.requests == []


async def test_all_pages_are_read() -> None:
    call = {"kind": "approval", "tool_id": "order", "user": "ada", "value": {}}
    pages = [
        reply({"data": [call | {"suspension_id": "s-1", "request_id": "q-1"}], "next": "a b"}),
        reply({"data": [call | {"suspension_id": "s-2", "request_id": "q-2"}], "next": None}),
        reply({"data": [], "next": None}),
    ]
    async with ScriptedUpstream(*pages) as upstream:
        result = await run(f"{upstream.url}/behind/a/proxy", "a-key", "list")
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["id", "q-1/s-1", "q-2/s-2"]
    query = "/behind/a/proxy/v1/suspensions?kind=approval&limit=1000"
    assert [each.path for each in upstream.requests[:2]] == [query, f"{query}&after=a+b"]
    assert {each.headers["authorization"] for each in upstream.requests} == {"Bearer a-key"}


@pytest.mark.parametrize(
    "script",
    [
        (UpstreamAction.CLOSE,),
        reply({"data": [{"suspension_id": 1}], "next": None}),
        reply({"code": "OF_ANOTHER_VERSION", "message": "no"}, status=418),
        reply("down", status=502),
        reply("", status=307, headers={"location": "http://127.0.0.1:1/"}),
    ],
)
async def test_what_is_no_server_of_this_service_is_named(script: Script) -> None:
    async with ScriptedUpstream(script) as upstream:
        result = await run(upstream.url, "a-secret-key", "list")
    assert (result.exit_code, result.stdout, len(upstream.requests)) == (UNREACHABLE, "", 1)
    assert result.stderr.startswith(f"CONFIG_INVALID: {upstream.url}")


async def test_a_server_that_is_not_there_is_named() -> None:
    async with closed_port() as url:
        result = await run(url, None, "list")
    assert result.exit_code == UNREACHABLE
    assert "cannot be reached" in result.stderr


@pytest.mark.parametrize(
    "url", ["ftp://a", "portico.example.com", "http://", "http://u:p@a", "http://a?b", "http://a:b"]
)
async def test_a_url_that_is_none_of_a_server_is_wrong_usage(url: str) -> None:
    assert (await run(url, None, "list")).exit_code == 2


@pytest.mark.parametrize("key", ["a secret", "a\r\nsecret: b", "sécret"])
async def test_a_key_that_is_no_header_is_not_sent(key: str) -> None:
    result = await run("http://127.0.0.1:1", key, "list")
    assert result.stderr == "CONFIG_INVALID: PORTICO_KEY must be visible ASCII characters\n"
    assert result.exit_code == EXIT_CODES[Category.CONFIGURATION]


@pytest.mark.parametrize("options", [("happened",), ("run", "--result", "x"), ("perhaps",)])
async def test_a_decision_that_does_not_fit_is_wrong_usage(options: tuple[str, ...]) -> None:
    assert (await run("http://127.0.0.1:1", None, "settle", "q", "--decision", *options)).exit_code == 2


async def test_a_call_is_approved_with_other_arguments_and_a_grant_that_is_listed_and_revoked(tmp_path: Path) -> None:
    users = {"ada": ("red", "ada", None), "boss": ("red", "boss", ["can_approve"])}
    policy = {"approve": [{"tool": "refund"}]}
    tools = {"modules": ["tests.support.shop_tools"]}
    steps = [
        {
            "name": name,
            "type": "tool",
            "input": {"name": "refund", "arguments": {"amount": amount}},
            "depends_on": after,
        }
        for name, amount, after in (("a", 80, []), ("b", 20, ["a"]))
    ]
    async with callers(tmp_path, users, tools=tools, policy=policy) as (by_name, service):
        boss = by_name["boss"]
        body = chat("refund", mode="plan", plan={"steps": steps}, request_id="q")
        assert (await by_name["ada"].execute(body)).status == 202
        bad = await run_as(boss, "approve", "q", "--arguments", "{amount")
        assert (bad.exit_code, bad.stdout) == (2, "")
        misfit = await run_as(boss, "approve", "q", "--arguments", '{"amount": "much"}')
        assert (misfit.exit_code, misfit.stderr.split()[:2]) == (
            REFUSED,
            ["REQUEST_INVALID:", "payload.arguments.amount:"],
        )
        edited = ("--arguments", '{"amount": 50}', "--reason", "half")
        given = await run_as(boss, "approve", "q", "--grant", "execution", "--seconds", "60", *edited)
        assert (given.exit_code, given.stdout.split()[0]) == (0, "approve"), given.output
        await wait_for_idle(service)
        response = (await by_name["ada"].get("/v1/executions/q")).json["response"]
        assert [each["decision"]["verdict"] for each in response["tool_calls_made"]] == ["approved", "granted"]
        [grant] = [json.loads(line) for line in (await run_as(boss, "grants", "--json")).stdout.splitlines()]
        assert (grant["tool"], grant["granted_by"], grant["uses"]) == ("refund", "boss", 1)
        assert (await run_as(boss, "revoke", grant["grant_id"])).exit_code == 0
        assert (await run_as(boss, "grants", "--json")).stdout == ""
        assert (await run_as(boss, "revoke", "nothing")).stderr.startswith("REQUEST_NOT_FOUND: ")
