"""Callers with keys at `/mcp`: sessions, their limits and their end, and what another user may not go on with."""

from asyncio import get_running_loop
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from mcp import types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from portico.bootstrap.service import Service
from portico.entrypoints.http.routes.mcp import SESSION_SECONDS, SESSIONS_OF_USER
from tests.entrypoints.mcp.test_http import AGENT, APPROVE_DICE, DICE, MCP, MODES, accept, answering
from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer, request_bytes
from tests.support.server_state import wait_for_disconnect
from tests.support.virtual_time import VirtualTimeLoop

GRANTS = {
    "ada": ("red", "ada", None),
    "eve": ("red", "eve", None),
    "namesake": ("blue", "ada", None),
    "reader": ("red", "reader", ["can_view_tenant"]),
}
FOREIGN = ("eve", "namesake")
ACCEPT = {"Accept": "application/json, text/event-stream"}
BEGIN = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@asynccontextmanager
async def keyed_mcp(folder: Path, **tables: Any) -> AsyncIterator[tuple[Mapping[str, Caller], Service]]:
    async with callers(folder, GRANTS, **{"mcp": MCP, "agents": {"roller": AGENT}} | tables) as found:
        yield found


@asynccontextmanager
async def keyed_client(caller: Caller, mode: str, **options: Any) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=dict(caller.headers), timeout=60) as http:
        transport = streamable_http_client(f"{caller.served.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


async def send(caller: Caller, method: str, params: Mapping[str, Any], **headers: str) -> HttpAnswer:
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return await caller.send("POST", "/mcp", body, **ACCEPT, **headers)


async def begin(caller: Caller) -> HttpAnswer:
    return await send(caller, "initialize", BEGIN)


async def ping(caller: Caller, session: str) -> int:
    return (await send(caller, "ping", {}, **{"Mcp-Session-Id": session})).status


async def test_without_a_key_nothing_is_answered(tmp_path: Path) -> None:
    async with keyed_mcp(tmp_path) as (by_name, _):
        served = by_name["ada"].served
        for caller in (Caller(served, {}), Caller(served, {"Authorization": "Bearer none"})):
            for answer in (await begin(caller), await caller.get("/mcp"), await caller.send("DELETE", "/mcp")):
                assert (answer.status, answer.json["code"]) == (401, "ACCESS_UNAUTHENTICATED")


async def test_a_caller_without_the_right_to_run_sees_no_tool_and_runs_none(tmp_path: Path) -> None:
    async with keyed_mcp(tmp_path) as (by_name, _), keyed_client(by_name["reader"], "auto") as mcp:
        assert (await mcp.list_tools()).tools == []
        refused = await mcp.call_tool("execute", {"message": "Hello"})
        assert refused.is_error
        assert "ACCESS_DENIED" in str(refused.content)


async def test_a_session_is_unknown_to_other_users(tmp_path: Path) -> None:
    async with keyed_mcp(tmp_path) as (by_name, _):
        session = (await begin(by_name["ada"])).headers["mcp-session-id"]
        for name in FOREIGN:
            header = {"Mcp-Session-Id": session}
            assert await ping(by_name[name], session) == 404
            assert (await by_name[name].get("/mcp", **ACCEPT, **header)).status == 404
            assert (await by_name[name].send("DELETE", "/mcp", **header)).status == 404
        assert await ping(by_name["ada"], session) == 200


async def test_a_user_has_so_many_sessions(tmp_path: Path) -> None:
    async with keyed_mcp(tmp_path) as (by_name, _):
        ada, eve = by_name["ada"], by_name["eve"]
        begun = [await begin(ada) for _ in range(SESSIONS_OF_USER + 1)]
        assert [answer.status for answer in begun] == [200] * SESSIONS_OF_USER + [503]
        assert (await begin(eve)).status == 200
        header = {"Mcp-Session-Id": begun[0].headers["mcp-session-id"]}
        assert (await ada.send("DELETE", "/mcp", **header)).status == 200
        assert (await begin(ada)).status == 200


async def test_an_idle_session_ends(tmp_path: Path) -> None:
    async with keyed_mcp(tmp_path) as (by_name, _):
        ada = by_name["ada"]
        loop = get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        kept, idle = [(await begin(ada)).headers["mcp-session-id"] for _ in range(2)]
        await wait_for_disconnect(ada.served)
        loop.advance(SESSION_SECONDS / 2)
        assert await ping(ada, kept) == 200
        await wait_for_disconnect(ada.served)
        loop.advance(SESSION_SECONDS / 2)
        assert (await ping(ada, idle), await ping(ada, kept)) == (404, 200)


async def test_a_stopping_service_begins_no_session_and_ends_streams(tmp_path: Path) -> None:
    async with keyed_mcp(tmp_path) as (by_name, service):
        ada = by_name["ada"]
        session = (await begin(ada)).headers["mcp-session-id"]
        headers = {**ada.headers, **ACCEPT, "Mcp-Session-Id": session}
        async with ada.served.connect() as connection:
            await connection.send(request_bytes("GET", "/mcp", headers))
            assert (await connection.head())[0] == 200
            await service.drain()
            while await connection.chunk():
                pass
        for answer in (await begin(ada), await ada.get("/mcp", **headers)):
            assert (answer.status, answer.json["code"]) == (503, "REQUEST_SHUTTING_DOWN")


@pytest.mark.parametrize("state", ["own", "forged"])
async def test_a_call_goes_on_only_for_the_user_who_began_it(tmp_path: Path, state: str) -> None:
    form, _ = answering()
    async with keyed_mcp(tmp_path, policy=APPROVE_DICE) as (by_name, _):
        async with keyed_client(by_name["ada"], "auto", elicitation_callback=form) as ada:
            first = await ada.session.call_tool("agent__roller", {"message": DICE}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert first.input_requests is not None
        responses: Any = {name: accept(decision="approve") for name in first.input_requests}
        request_state = first.request_state if state == "own" else "019ab3c0-d4e8-7000-a1b2-c3d4e5f60718"
        for name in FOREIGN if state == "own" else ("ada",):
            async with keyed_client(by_name[name], "auto", elicitation_callback=form) as mcp:
                refused = await mcp.session.call_tool(
                    "agent__roller", {"message": DICE}, input_responses=responses, request_state=request_state
                )
                assert refused.is_error
                assert "REQUEST_NOT_FOUND" in str(refused.content)
                shown = await mcp.call_tool("get_execution", {"request_id": request_state})
                assert "REQUEST_NOT_FOUND" in str(shown.content)
            assert (await by_name[name].get("/v1/executions")).json["data"] == [] or name == "ada"
        assert (await by_name["ada"].get(f"/v1/executions/{first.request_state}")).json["state"] == "SUSPENDED"


@pytest.mark.parametrize("mode", MODES)
async def test_a_key_that_may_not_approve_is_not_asked(tmp_path: Path, mode: str) -> None:
    form, asked = answering(accept(decision="approve"))
    tables: dict[str, Any] = {"policy": {**APPROVE_DICE, "self_approval": False}, "mcp": {**MCP, "wait": 0}}
    async with (
        keyed_mcp(tmp_path, **tables) as (by_name, _),
        keyed_client(by_name["ada"], mode, elicitation_callback=form) as mcp,
    ):
        left = await mcp.call_tool("agent__roller", {"message": DICE})
        assert left.structured_content is not None
        assert (left.structured_content["state"], asked) == ("SUSPENDED", [])


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://editor.example", 200),
        ("https://localhost:3000", 200),
        ("https://evil.example", 403),
        ("https://editor.example.evil.example", 403),
        ("http://editor.example", 403),
        ("null", 403),
        ("https://[", 403),
    ],
)
async def test_only_pages_of_named_origins_may_call(tmp_path: Path, origin: str, status: int) -> None:
    tables: dict[str, Any] = {
        "mcp": {**MCP, "origins": ["https://editor.example"]},
        "server": {"allowed_hosts": ["localhost"]},
    }
    async with keyed_mcp(tmp_path, **tables) as (by_name, _):
        answer = await send(by_name["ada"], "initialize", BEGIN, Origin=origin)
        assert answer.status == status
