"""The MCP server over HTTP, called by the SDK's own client in both eras of the protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import types
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError

from portico.bootstrap.service import Service
from portico.domain.access.principal import LOCAL
from portico.domain.ids import RequestId
from portico.ports.storage import ExecutionFilter
from tests.support.http_server import RunningServer
from tests.support.portico import ASK_PERSON, portico

MODES = ("auto", "legacy")
MCP = {"enabled": True, "expose": ["execute", "agents", "flows", "executions"]}
DICE = "Roll two dice with roll_dice, count 2, sides 6."
AGENT = {"system_prompt": "You roll dice.", "description": "Rolls dice.", "tools": ["roll_dice"]}
APPROVE_DICE = {"approve": [{"tool": "roll_dice"}]}
POST = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served_mcp(**tables: Any) -> AsyncIterator[tuple[RunningServer, Service]]:
    async with portico(**{"mcp": MCP, "agents": {"roller": AGENT}} | tables) as (served, service):
        yield served, service


def client(served: RunningServer, mode: str, **options: Any) -> Client:
    return Client(f"{served.url}/mcp", mode=mode, **options)


def answering(*answers: types.ElicitResult) -> tuple[Any, list[str]]:
    """Return a callback that gives these answers in order, and the questions that it was asked."""
    left, asked = list(answers), list[str]()

    async def answer(_: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return left.pop(0)

    return answer, asked


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


@pytest.mark.parametrize("mode", MODES)
async def test_tools_are_listed_and_run_in_both_eras(mode: str) -> None:
    async with served_mcp() as (served, service), client(served, mode) as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert list(tools) == ["agent__roller", "cancel", "execute", "get_execution", "resume"]
        assert tools["agent__roller"].description == "Rolls dice."
        assert tools["get_execution"].annotations is not None
        assert tools["get_execution"].annotations.read_only_hint is True
        assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
        result = await mcp.call_tool("agent__roller", {"message": DICE})
        assert not result.is_error
        shown = result.structured_content
        assert shown is not None
        assert (shown["state"], [part.type for part in result.content]) == ("COMPLETE", ["text"])
        view = await service.facade.executions.show(LOCAL, RequestId(shown["request_id"]))
        assert view.agent == "roller"
        assert view.response is not None
        assert str(view.response.metadata.client).count("mcp/") == 1
        again = await mcp.call_tool("get_execution", {"request_id": shown["request_id"]})
        assert again.structured_content == shown


@pytest.mark.parametrize("mode", MODES)
async def test_a_wrong_call_is_an_error_that_names_the_argument_and_starts_nothing(mode: str) -> None:
    async with served_mcp() as (served, service), client(served, mode) as mcp:
        for arguments, said in (
            ({}, "message"),
            ({"message": ""}, "message"),
            ({"message": "Hello", "temperature": 1}, "temperature"),
            ({"message": "Hello", "mode": "flow"}, "mode"),
            ({"message": "Hello", "agent": "missing"}, "agent"),
            ({"message": "Hello", "session_id": "no spaces"}, "session_id"),
        ):
            result = await mcp.call_tool("execute", arguments)
            assert result.is_error, arguments
            assert said in str(result.content), (arguments, result.content)
            assert result.structured_content is not None
            assert result.structured_content["error"]["code"] == "REQUEST_INVALID"
        with pytest.raises(MCPError) as unknown:
            await mcp.call_tool("agent__missing", {"message": "Hello"})
        assert unknown.value.code == types.INVALID_PARAMS
        page = await service.facade.executions.page(LOCAL, ExecutionFilter(), after=None, limit=10)
        assert page.executions == []


@pytest.mark.parametrize("mode", MODES)
async def test_an_approval_is_a_form_that_shows_the_arguments(mode: str) -> None:
    answer, asked = answering(accept(decision="approve"))
    async with (
        served_mcp(policy=APPROVE_DICE) as (served, service),
        client(served, mode, elicitation_callback=answer) as mcp,
    ):
        result = await mcp.call_tool("agent__roller", {"message": DICE})
        assert not result.is_error, result.content
        assert result.structured_content is not None
        assert result.structured_content["state"] == "COMPLETE"
        assert len(asked) == 1
        assert "roll_dice" in asked[0]
        assert '"sides":6' in asked[0]
        replay = await service.facade.executions.replay(LOCAL, RequestId(result.structured_content["request_id"]))
        assert replay.identical


@pytest.mark.parametrize("mode", MODES)
async def test_a_declined_approval_is_denied_and_a_cancelled_form_leaves_it_open(mode: str) -> None:
    answer, _ = answering(types.ElicitResult(action="decline"), types.ElicitResult(action="cancel"))
    async with (
        served_mcp(policy=APPROVE_DICE) as (served, service),
        client(served, mode, elicitation_callback=answer) as mcp,
    ):
        denied = await mcp.call_tool("agent__roller", {"message": DICE})
        assert denied.structured_content is not None
        view = await service.facade.executions.show(LOCAL, RequestId(denied.structured_content["request_id"]))
        assert view.response is not None
        assert [call.status for call in view.response.tool_calls_made] == ["not_run"]
        left = await mcp.call_tool("agent__roller", {"message": DICE})
        assert left.structured_content is not None
        assert (left.is_error, left.structured_content["state"]) == (False, "SUSPENDED")


@pytest.mark.parametrize("mode", MODES)
async def test_a_model_answers_questions_and_never_decides_for_a_person(mode: str) -> None:
    async with (
        served_mcp(mcp={**MCP, "wait": 0}, policy=APPROVE_DICE) as (served, _),
        client(served, mode) as mcp,
    ):
        asked = (await mcp.call_tool("execute", {"message": ASK_PERSON})).structured_content
        assert asked is not None
        given = {
            "request_id": asked["request_id"],
            "suspension_id": asked["suspensions"][0]["suspension_id"],
            "answer": "yes",
        }
        answered = await mcp.call_tool("resume", given)
        assert answered.structured_content is not None
        assert answered.structured_content["state"] == "COMPLETE"
        waits = await mcp.call_tool("agent__roller", {"message": DICE})
        assert waits.structured_content is not None
        assert "get_execution" in str(waits.content)
        approval = waits.structured_content["suspensions"][0]
        refused = await mcp.call_tool(
            "resume",
            {
                "request_id": waits.structured_content["request_id"],
                "suspension_id": approval["suspension_id"],
                "answer": {"decision": "approve"},
            },
        )
        assert refused.is_error
        assert "A person decides this" in str(refused.content)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_waits_for_an_answer_from_elsewhere(mode: str) -> None:
    async with served_mcp(policy=APPROVE_DICE) as (served, service), client(served, mode) as mcp:
        results: list[types.CallToolResult] = []

        async def call() -> None:
            results.append(await mcp.call_tool("agent__roller", {"message": DICE}))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await approve_next(served, service)
        assert results[0].structured_content is not None
        assert results[0].structured_content["state"] == "COMPLETE"


async def approve_next(served: RunningServer, service: Service) -> None:
    """Approve the next call that waits, as the console does, which learns of it from the live list."""
    changed, changes = asyncio.Event(), await service.changes.watch(LOCAL)
    changes.notify(changed.set)
    while not (found := [each for each in changes.take() if each.name == "suspension"]):
        await changed.wait()
        changed.clear()
    changes.close()
    suspension = json.loads(found[0].data)["suspension"]
    body = json.dumps({"tool_id": suspension["tool_id"], "payload": {"decision": "approve"}}).encode()
    path = f"/v1/executions/{suspension['request_id']}/resume"
    assert (await served.post(body, path=path)).status in {200, 202}


async def test_an_open_form_is_withdrawn_when_the_console_is_faster() -> None:
    shown = anyio.Event()

    async def never(_: ClientRequestContext, __: types.ElicitRequestParams) -> types.ElicitResult:
        shown.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with (
        served_mcp(policy=APPROVE_DICE) as (served, service),
        client(served, "legacy", elicitation_callback=never) as mcp,
        anyio.create_task_group() as group,
    ):

        async def console() -> None:
            await shown.wait()
            await approve_next(served, service)

        group.start_soon(console)
        result = await mcp.call_tool("agent__roller", {"message": DICE})
        assert result.structured_content is not None
        assert result.structured_content["state"] == "COMPLETE"


async def test_a_second_call_must_be_for_the_same_request() -> None:
    async with (
        served_mcp(policy=APPROVE_DICE) as (served, _),
        client(served, "auto", elicitation_callback=answering()[0]) as mcp,
    ):
        first = await mcp.session.call_tool("agent__roller", {"message": DICE}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert first.input_requests is not None
        responses: Any = {name: accept(decision="approve") for name in first.input_requests}
        for tool, arguments in (
            ("agent__roller", {"message": "Roll three dice."}),
            ("execute", {"message": DICE}),
            ("agent__roller", {"message": DICE, "session_id": "talk"}),
        ):
            with pytest.raises(MCPError) as other:
                await mcp.session.call_tool(
                    tool, arguments, input_responses=responses, request_state=first.request_state
                )
            assert other.value.code == types.INVALID_PARAMS
        misfit: Any = {name: accept(decision="perhaps") for name in first.input_requests}
        wrong = await mcp.session.call_tool(
            "agent__roller", {"message": DICE}, input_responses=misfit, request_state=first.request_state
        )
        assert wrong.is_error
        done = await mcp.session.call_tool(
            "agent__roller", {"message": DICE}, input_responses=responses, request_state=first.request_state
        )
        assert done.structured_content is not None
        assert done.structured_content["state"] == "COMPLETE"


@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_sent_to_a_client_that_asks_for_it(mode: str) -> None:
    sent: list[tuple[float, str | None]] = []

    async def progress(number: float, _: float | None, message: str | None) -> None:
        sent.append((number, message))

    async with served_mcp() as (served, _), client(served, mode) as mcp:
        await mcp.call_tool("execute", {"message": DICE}, progress_callback=progress)
    assert [number for number, _ in sent] == [float(at) for at in range(1, len(sent) + 1)]
    assert sent


async def test_executions_are_resources_and_unknown_ones_are_not_found() -> None:
    async with served_mcp() as (served, _), client(served, "auto") as mcp:
        done = (await mcp.call_tool("execute", {"message": "Hello"})).structured_content
        assert done is not None
        await anyio.sleep(1)  # of virtual time: records of ended executions are written a moment later
        listed = await mcp.list_resources()
        assert [str(each.uri) for each in listed.resources] == [f"portico://executions/{done['request_id']}"]
        read = await mcp.read_resource(str(listed.resources[0].uri))
        assert isinstance(read.contents[0], types.TextResourceContents)
        assert json.loads(read.contents[0].text)["request_id"] == done["request_id"]
        assert (await mcp.read_resource(f"{listed.resources[0].uri}/trace")).contents
        for uri in ("portico://executions/nothing", "portico://executions/", "portico://other", "file:///etc/passwd"):
            with pytest.raises(MCPError) as unknown:
                await mcp.read_resource(uri)
            assert unknown.value.code == types.INVALID_PARAMS


async def test_what_is_not_the_protocol_is_refused_and_never_a_5xx() -> None:
    async with served_mcp() as (served, _):
        for body, headers, statuses in (
            (b"{", POST, {400}),
            (b"[]", POST, {400}),
            (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', POST, {400}),
            (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', POST, {400}),
            (b"{}", {**POST, "Content-Type": "text/plain"}, {415}),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', {**POST, "Mcp-Session-Id": "forged"}, {404}),
            (b'{"jsonrpc":"2.0","id":1,"method":"none"}', {**POST, "MCP-Protocol-Version": "2026-07-28"}, {400, 404}),
            (b'{"jsonrpc":"2.0","id":1,"method":"none"}', {**POST, "MCP-Protocol-Version": "1999"}, {400}),
            (b"{}", {**POST, "Origin": "https://evil.example"}, {403}),
        ):
            answer = await served.post(body, headers, path="/mcp")
            assert answer.status in statuses, (body, answer.status, answer.body)
        assert (await served.get("/mcp/")).status == 404


async def test_spaces_around_a_header_do_not_count() -> None:
    named = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "execute", "arguments": {"message": "Hello"}, "_meta": named}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {**POST, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "  execute  "}
    async with served_mcp() as (served, _):
        assert (await served.post(body, headers, path="/mcp")).status == 200


async def test_without_the_table_there_is_no_server() -> None:
    async with portico() as (served, _):
        assert (await served.post(b"{}", POST, path="/mcp")).status == 404
