"""Flows as tools, calls that their client gives up, questions too long for a form, names, and hostile requests."""

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from mcp import types
from mcp.shared.exceptions import MCPError

from portico.domain.contract.response import Suspension, SuspensionKind
from portico.domain.ids import SuspensionId
from portico.entrypoints.mcp.questions import answer_of, form_of
from portico.entrypoints.mcp.tools import AGENT, FLOW, MAX_NAME, public_name
from tests.entrypoints.mcp.test_http import MODES, POST, accept, answering, client, served_mcp
from tests.support.server_state import wait_for_idle
from tests.support.upstream import ScriptedUpstream, UpstreamAction

FLOWS: dict[str, Any] = {
    "flows": {"modules": ["tests.support.example_flows"]},
    "mcp": {"enabled": True, "expose": ["flows"], "wait": 0},
}
BIG = {"number": "7", "amount": 500}


@pytest.mark.parametrize("mode", MODES)
async def test_a_flow_is_a_tool_with_the_input_of_the_flow(mode: str) -> None:
    async with served_mcp(**FLOWS) as (served, _), client(served, mode) as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert not {"execute", "agent__roller"} & tools.keys()
        assert tools["flow__split-and-merge"].input_schema["required"] == ["text"]
        done = await mcp.call_tool("flow__split-and-merge", {"text": "some words"})
        assert done.structured_content is not None
        assert done.structured_content["structured_output"] == {"longest": "words", "letters": 9}
        for arguments, said in (({}, "text"), ({"text": 1}, "text")):
            refused = await mcp.call_tool("flow__split-and-merge", arguments)
            assert refused.is_error
            assert said in str(refused.content)
        for hidden in ("execute", "agent__roller", "flow__missing"):
            with pytest.raises(MCPError) as unknown:
                await mcp.call_tool(hidden, {"message": "Hello"})
            assert unknown.value.code == types.INVALID_PARAMS


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_of_a_flow_is_a_form_with_the_fields_of_its_answer_and_a_misfit_is_refused(mode: str) -> None:
    form, asked = answering(accept(answer='{"by": "ada"}'), accept(by="ada"))
    async with served_mcp(**FLOWS) as (served, _), client(served, mode, elicitation_callback=form) as mcp:
        refused = await mcp.call_tool("flow__approval", BIG)
        assert refused.is_error
        assert "by" in str(refused.content)
        done = await mcp.call_tool("flow__approval", BIG)
        assert done.structured_content is not None
        assert done.structured_content["structured_output"] == {"receipt": "paid, approved by ada"}
        assert all("Pay this invoice?" in question for question in asked)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_its_client_gives_up_is_cancelled_at_the_provider(mode: str) -> None:
    async with ScriptedUpstream([UpstreamAction.HANG]) as provider:
        engines = {"slow": {"model": "openai://some-model", "base_url": provider.url}}
        async with served_mcp(agents={}, engines=engines) as (served, service), client(served, mode) as here:
            async with anyio.create_task_group() as group:
                group.start_soon(here.call_tool, "execute", {"message": "Hello"})
                await provider.wait_for_requests()
                group.cancel_scope.cancel()
            await provider.wait_for_departures()
            await wait_for_idle(service)


async def test_a_broken_connection_without_sessions_cancels_nothing_before_2026() -> None:
    async with ScriptedUpstream([UpstreamAction.HANG]) as provider:
        engines = {"slow": {"model": "openai://some-model", "base_url": provider.url}}
        mcp = {"enabled": True, "sessions": False}
        async with served_mcp(mcp=mcp, agents={}, engines=engines) as (served, service):
            async with client(served, "legacy") as here, anyio.create_task_group() as group:
                group.start_soon(here.call_tool, "execute", {"message": "Hello"})
                await provider.wait_for_requests()
                group.cancel_scope.cancel()
            assert service.runner.in_flight == 1
            assert provider.departures == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_that_a_form_cannot_show_whole_is_not_asked_there(mode: str) -> None:
    form, asked = answering(accept(answer="yes"))
    mcp = {"enabled": True, "wait": 0}
    async with served_mcp(mcp=mcp) as (served, _), client(served, mode, elicitation_callback=form) as here:
        long = await here.call_tool("execute", {"message": f'Use ask_person: "{"why " * 500}?"'})
        assert long.structured_content is not None
        assert (long.structured_content["state"], asked) == ("SUSPENDED", [])
        short = await here.call_tool("execute", {"message": 'Use ask_person: "Is\u202e it?"'})
        assert short.structured_content is not None
        assert short.structured_content["state"] == "COMPLETE"
        assert "\\u{202e}" in asked[0]


NUMBER = {"type": "number", "minimum": 0}
CHOICE = {"type": "string", "enum": ["a", "b"]}


def of_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["n"], "title": "Answer"}


@pytest.mark.parametrize(
    ("schema", "fields", "content", "answer"),
    [
        (
            of_object(n={**NUMBER, "title": "N", "x-own": 1}, c=CHOICE),
            {"n": {**NUMBER, "title": "N"}, "c": CHOICE},
            {"n": 1},
            {"n": 1},
        ),
        *[
            (schema, {"answer": {"type": "string", "description": "JSON, or plain text."}}, {"answer": text}, answer)
            for schema in (None, of_object(n={"type": "array"}), of_object(n={"$ref": "#/$defs/N"}), {"type": "string"})
            for text, answer in (('{"n": 1}', {"n": 1}), ("no JSON", "no JSON"))
        ],
    ],
)
def test_the_form_of_a_flow_has_the_fields_of_a_flat_answer_and_else_one_text(
    schema: Any, fields: Any, content: Any, answer: Any
) -> None:
    asked = Suspension(
        suspension_id=SuspensionId("s"),
        kind=SuspensionKind.FLOW,
        tool_id="node",
        value="?",
        expires_at=datetime.now(UTC),
    )
    form = form_of(asked, schema)
    assert form is not None
    assert form.schema["properties"] == fields
    assert form.schema["required"] == (["answer"] if "answer" in fields else ["n"])
    assert answer_of(asked, "accept", content, schema) == answer


def test_names_of_tools_have_at_most_64_characters_and_stay_apart() -> None:
    names = ["plain", "a" * 60, "a" * 59 + "b", "größe", "gr__e", "a.b", "a b"]
    public = [public_name(FLOW, name) for name in names]
    assert public[0] == "flow__plain"
    assert len(set(public)) == len(names)
    assert all(len(name) <= MAX_NAME and name.isascii() for name in public)
    assert public_name(AGENT, "a" * 57) == AGENT + "a" * 57


async def test_hostile_requests_get_an_error_and_start_nothing() -> None:
    modern = {**POST, "MCP-Protocol-Version": "2026-07-28"}
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}'
    async with served_mcp(limits={"body_bytes": 10_000, "json_depth": 32}) as (served, _):
        for body, headers, status in (
            (b"", POST, 400),
            (b"null", POST, 400),
            (b"\xff", POST, 400),
            (b'"\xed\xa0\x80"', POST, 400),
            (b"[" * 5_000, POST, 400),
            (call % (b'{"name":"execute","arguments":{"message":"\\ud800"}}'), POST, 400),
            (call % b'{"name":"execute","arguments":{"message":1e999}}', POST, 400),
            (b" " * 10_001, POST, 413),
            (call % b'{"name":"execute","arguments":{"message":"Hello"}}', {**modern, "Mcp-Method": "ping"}, 400),
            (call % b'{"name":"execute"}', {**modern, "Mcp-Method": "tools/call", "Mcp-Name": "cancel"}, 400),
            (call % b"[]", modern, 400),
            (call % b"{}", POST, 400),
            (b"{}", {**POST, "Accept": "text/html"}, 406),
            (b"{}", {**POST, "Mcp-Session-Id": "x" * 5_000}, 404),
        ):
            answer = await served.post(body, headers, path="/mcp")
            assert answer.status == status, (body[:80], headers, answer.status, answer.body)
        assert (await served.get("/v1/executions")).json["data"] == []
