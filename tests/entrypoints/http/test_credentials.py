"""Credentials of tools: who sets them, which call gets which, what waits for them, and that nothing shows a value."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from portico.bootstrap.service import Service
from tests.support.authlib_issuer import issuer_app
from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer, running_server
from tests.support.portico import chat
from tests.support.server_state import wait_for_idle
from tests.support.tracker import Tracker

pytestmark = pytest.mark.usefixtures("real_time")
GRANTS = {
    "ada": ("red", "ada", None),
    "bob": ("red", "bob", None),
    "admin": ("red", "admin", ["can_send_messages", "can_manage_credentials", "tool:*", "model:*"]),
    "boss": ("red", "boss", ["can_approve", "can_manage_credentials", "tool:*"]),
    "narrow": ("red", "ada", ["can_send_messages", "tool:echo", "model:*"]),
    "reader": ("red", "ada", ["tool:*"]),
    "other": ("blue", "ada", None),
}
ADAS, BOBS, OURS = "adas-own-token", "bobs-own-token", "token-of-the-tenant"
USERS = {ADAS: "ada", BOBS: "bob", OURS: "the team"}
SECRET = {"type": "secret", "description": "A token of the tracker: Settings, Tokens."}


@asynccontextmanager
async def tracked(
    folder: Path, credential: dict[str, Any] | None = None, *, tracker: Tracker | None = None, **tables: Any
) -> AsyncIterator[tuple[dict[str, Caller], Tracker, Service]]:
    """Run a service with the tool `issues`, which has the credential `tracker`."""
    tracker = tracker or Tracker(USERS)
    async with running_server(tracker.app) as upstream:
        url = f"http://127.0.0.1:{upstream.port}"
        tool: dict[str, Any] = {
            "description": "List issues.",
            "url": f"{url}/issues",
            "side_effects": "read",
            "idempotent": True,
        }
        tool |= {"allow_private": True, "credential": "tracker"}
        table = dict(credential or SECRET)
        if table.get("token_url") == "":
            table["token_url"] = f"{url}/token"
        tables = {"tools": {"http": {"issues": tool}}, "credentials": {"tracker": table}} | tables
        async with callers(folder, GRANTS, **tables) as (by_name, service):
            yield by_name, tracker, service


def ask(request_id: str = "q", tool: str = "issues", **fields: Any) -> bytes:
    step = {"name": "look", "type": "tool", "input": {"name": tool, "arguments": {}}}
    return chat("my issues", mode="plan", plan={"steps": [step]}, request_id=request_id, **fields)


async def put(caller: Caller, value: Any, owner: str = "", name: str = "tracker") -> HttpAnswer:
    query = f"?owner={owner}" if owner else ""
    return await caller.send("PUT", f"/v1/credentials/{name}{query}", orjson.dumps({"value": value}))


async def resumed(caller: Caller, payload: Any, request_id: str = "q", **headers: str) -> HttpAnswer:
    body = orjson.dumps({"tool_id": "issues", "payload": payload})
    return await caller.send("POST", f"/v1/executions/{request_id}/resume", body, **headers)


async def listed(caller: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await caller.get("/v1/credentials")).json["data"]
    return found


async def content(caller: Caller, request_id: str = "q") -> Any:
    answer = await caller.get(f"/v1/executions/{request_id}")
    return (answer.json["response"] or {}).get("content")


async def test_each_user_is_asked_once_for_a_token_whose_arrival_answers(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, tracker, service):
        for user, value in (("ada", ADAS), ("bob", BOBS)):
            caller, request_id = by_name[user], f"of-{user}"
            waiting = await caller.execute(ask(request_id))
            [question] = waiting.json["suspensions"]
            assert (waiting.status, question["kind"], question["tool_id"]) == (202, "authorization", "issues")
            assert question["value"] == {
                "credential": "tracker",
                "type": "secret",
                "description": "A token of the tracker: Settings, Tokens.",
            }
            missing = await resumed(caller, {"decision": "authorized"}, request_id)
            assert (missing.status, missing.json["details"]["errors"][0]["field"]) == (422, "payload.decision")
            assert (await put(caller, value)).status == 204
            await wait_for_idle(service)
            assert f"those of {user}" in await content(caller, request_id)
            again = await caller.execute(ask(f"{request_id}-again"))
            assert (again.status, f"those of {user}" in again.json["content"]) == (200, True)
            replay = await caller.send("POST", f"/v1/executions/{request_id}/replay")
            assert replay.json["identical"] is True
    assert tracker.tokens == [ADAS, ADAS, BOBS, BOBS]


async def test_a_denied_authorization_is_an_error_of_the_tool(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, tracker, _):
        await by_name["ada"].execute(ask())
        answer = await resumed(by_name["ada"], {"decision": "deny", "reason": "not today"})
        [step] = answer.json["plan"]["steps"]
        assert "not authorized: not today" in answer.body.decode()
        assert step["status"] == "failed"
    assert tracker.tokens == []


async def test_a_refused_value_is_asked_for_twice_and_never_replaced_by_that_of_the_tenant(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, tracker, service):
        assert (await put(by_name["admin"], OURS, "tenant")).status == 204
        assert (await put(by_name["ada"], "a-stale-token")).status == 204
        waiting = await by_name["ada"].execute(ask())
        assert waiting.json["suspensions"][0]["kind"] == "authorization"
        [shown] = await listed(by_name["ada"])
        assert (shown["owner"], shown["rejected"]) == ("user", True)
        await put(by_name["ada"], "another-stale-token")
        await wait_for_idle(service)
        assert (await by_name["ada"].get("/v1/executions/q")).json["state"] == "SUSPENDED"
        await put(by_name["ada"], "a-third-stale-token")
        await wait_for_idle(service)
        ended = (await by_name["ada"].get("/v1/executions/q")).body.decode()
        assert "TOOL_UNAVAILABLE" in ended
    assert tracker.tokens == ["a-stale-token", "another-stale-token", "a-third-stale-token"]


async def test_a_value_of_the_tenant_stays_when_it_is_refused_for_one_user(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, tracker, _):
        assert (await put(by_name["admin"], "refused-of-tenant", "tenant")).status == 204
        answer = await by_name["ada"].execute(ask())
        assert "TOOL_UNAVAILABLE" in answer.body.decode()
        [shown] = await listed(by_name["bob"])
        assert (shown["owner"], shown["rejected"]) == ("tenant", False)
        assert (await put(by_name["admin"], OURS, "tenant")).status == 204
        assert "the team" in (await by_name["bob"].execute(ask("r"))).json["content"]
        assert (await put(by_name["bob"], BOBS)).status == 204
        assert "those of bob" in (await by_name["bob"].execute(ask("s"))).json["content"]
        assert (await by_name["bob"].send("DELETE", "/v1/credentials/tracker")).status == 204
        assert "the team" in (await by_name["bob"].execute(ask("t"))).json["content"]
    assert tracker.tokens[0] == "refused-of-tenant"


async def test_a_value_of_the_tenant_answers_all_of_its_users(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, _, service):
        for user in ("ada", "bob"):
            assert (await by_name[user].execute(ask(user))).status == 202
        assert (await by_name["other"].execute(ask("ada"))).status == 202
        assert (await put(by_name["admin"], OURS, "tenant")).status == 204
        await wait_for_idle(service)
        for user in ("ada", "bob"):
            assert "the team" in await content(by_name[user], user)
        assert (await by_name["other"].get("/v1/executions/ada")).json["state"] == "SUSPENDED"


async def test_a_header_of_the_request_is_the_value_until_the_execution_ends(tmp_path: Path) -> None:
    credential = {"type": "request", "request_header": "X-Tracker-Token"}
    async with tracked(tmp_path, credential) as (by_name, tracker, service):
        ada = by_name["ada"]
        answer = await ada.execute(ask(), **{"X-Tracker-Token": ADAS})
        assert "those of ada" in answer.json["content"]
        source = service.facade._environment.credentials
        assert source is not None
        assert (source.in_memory, source.with_requests) == ({}, set())
        queued = await ada.execute(ask("queued"), **{"X-Tracker-Token": ADAS, "Prefer": "respond-async"})
        assert queued.status == 202
        await wait_for_idle(service)
        assert "those of ada" in await content(ada, "queued")
        assert (await ada.execute(ask("without"))).json["suspensions"][0]["value"]["type"] == "request"
        assert (await put(ada, ADAS)).json["details"]["errors"][0]["field"] == "name"
        resumed_ = await resumed(ada, {"decision": "authorized"}, "without", **{"X-Tracker-Token": BOBS})
        assert "those of bob" in resumed_.json["content"]
        for given, fault in (("short", "8 to 8192"), ("x" * 8_193, "8 to 8192")):
            bad = await ada.execute(ask("bad"), **{"X-Tracker-Token": given})
            assert (bad.status, bad.json["details"]["errors"][0]["field"]) == (422, "x-tracker-token")
            assert fault in bad.body.decode()
        assert await _rows(tmp_path) == []
    assert tracker.tokens == [ADAS, ADAS, BOBS]


async def _rows(folder: Path) -> list[Any]:
    with closing(sqlite3.connect(folder / "portico.db")) as database:
        return database.execute("SELECT * FROM credentials").fetchall()


async def test_client_credentials_are_one_token_for_all_and_fetched_anew_after_a_401(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("secret").write_text("the-client-secret")
    credential = {"type": "client_credentials", "token_url": "", "client_id": "portico", "scope": "read all"}
    credential |= {"client_secret_file": str(tmp_path / "secret"), "audience": "https://tracker.example"}
    async with tracked(tmp_path, credential) as (by_name, tracker, _):
        for user in ("ada", "bob"):
            assert "the service" in (await by_name[user].execute(ask(user))).json["content"]
        assert len(tracker.issued) == 1
        [form] = tracker.forms
        assert form["grant_type"] == ["client_credentials"]
        assert (form["scope"], form["audience"]) == (["read all"], ["https://tracker.example"])
        del tracker.users["issued-token-0"]
        assert "the service" in (await by_name["ada"].execute(ask("again"))).json["content"]
        assert tracker.tokens[-2:] == ["issued-token-0", "issued-token-1"]
        [shown] = await listed(by_name["ada"])
        assert (shown["owner"], shown["expires_at"] is not None) == ("service", True)
        tracker.refusal = {"error": "invalid_client", "error_description": "the-client-secret is wrong"}
        del tracker.users["issued-token-1"]
        refused = await by_name["ada"].execute(ask("refused"))
        assert "TOOL_UNAVAILABLE" in refused.body.decode()
        assert "the-client-secret" not in refused.body.decode()


@pytest.mark.parametrize(
    ("value", "field"),
    [("short", "value"), ("x" * 8_193, "value"), (7, "value"), ("with\0nul-in-it", "value")],
)
async def test_a_value_that_none_can_be_is_refused_and_not_shown(tmp_path: Path, value: Any, field: str) -> None:
    async with tracked(tmp_path) as (by_name, _, _):
        answer = await put(by_name["ada"], value)
        assert (answer.status, answer.json["details"]["errors"][0]["field"]) == (422, field)
        assert str(value) not in answer.body.decode() or value == 7
        assert await _rows(tmp_path) == []


async def test_credentials_are_known_by_tools_and_set_by_those_who_may(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, _, _):
        for name in ("narrow",):
            assert await listed(by_name[name]) == []
            assert (await put(by_name[name], ADAS)).status == 404
            assert (await by_name[name].send("DELETE", "/v1/credentials/tracker")).status == 404
        assert (await put(by_name["ada"], ADAS, name="nothing")).status == 404
        forbidden = await put(by_name["ada"], OURS, "tenant")
        assert (forbidden.status, forbidden.json["details"]) == (403, {"permission": "can_manage_credentials"})
        assert (await put(by_name["reader"], ADAS)).status == 403
        assert (await put(by_name["ada"], ADAS, "service")).status == 422
        body = orjson.dumps({"value": ADAS, "owner": "tenant"})
        assert (await by_name["ada"].send("PUT", "/v1/credentials/tracker", body)).status == 422
        assert (await put(by_name["ada"], ADAS)).status == 204
        [own], [others] = await listed(by_name["ada"]), await listed(by_name["bob"])
        assert (own["owner"], own["rejected"], own["expires_at"]) == ("user", False, None)
        assert own["set_at"].endswith("Z")
        assert (own["owners"], own["type"]) == (["user", "tenant", "service"], "secret")
        assert (others["owner"], others["set_at"]) == (None, None)
        [foreign] = await listed(by_name["other"])
        assert foreign["owner"] is None


async def test_a_sealed_row_of_another_user_does_not_open(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, tracker, _):
        await put(by_name["ada"], ADAS)
        with closing(sqlite3.connect(tmp_path / "portico.db")) as database, database:
            database.execute("UPDATE credentials SET user_id = 'bob'")
        assert (await listed(by_name["bob"]))[0]["owner"] is None
        assert (await by_name["bob"].execute(ask())).status == 202
    assert tracker.tokens == []


async def test_what_a_tool_says_of_its_credential_is_masked(tmp_path: Path) -> None:
    async with tracked(tmp_path, tracker=Tracker(USERS, echoes=True)) as (by_name, _, _):
        await put(by_name["ada"], ADAS)
        answer = await by_name["ada"].execute(ask())
        assert '"seen":"[credential tracker]"' in answer.json["content"]
        events = (await by_name["ada"].get("/v1/executions/q/events")).body.decode()
        for shown in (answer.body.decode(), events):
            assert ADAS not in shown
            assert "YWRhcy1vd24tdG9rZW" not in shown


async def test_only_the_owner_changes_the_arguments_of_a_call_with_its_own_credential(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"state": {"type": "string"}}}
    async with running_server(Tracker(USERS).app) as upstream:
        tool: dict[str, Any] = {
            "description": "Close issues.",
            "url": f"http://127.0.0.1:{upstream.port}/issues",
            "method": "POST",
        }
        tool |= {"allow_private": True, "credential": "tracker", "parameters": parameters}
        tables = {"tools": {"http": {"issues": tool}}, "credentials": {"tracker": SECRET}}
        async with callers(tmp_path, GRANTS, **tables) as (by_name, service):
            await put(by_name["ada"], ADAS)
            assert (await by_name["ada"].execute(ask())).json["suspensions"][0]["kind"] == "approval"
            edited = {"decision": "approve", "arguments": {"state": "open"}}
            answer = await resumed(by_name["boss"], edited)
            assert (answer.status, answer.json["code"]) == (403, "ACCESS_DENIED")
            assert (await resumed(by_name["boss"], {"decision": "approve"})).status == 204
            await wait_for_idle(service)
            assert "those of ada" in await content(by_name["ada"])


MODULE = """
from portico import SideEffects, ToolContext, ToolError, tool


@tool(side_effects=SideEffects.READ, idempotent=True, credentials=("tracker",))
async def leak(context: ToolContext, how: str = "") -> dict[str, str]:
    \"\"\"Repeat the credential.\"\"\"
    token = await context.credential("tracker")
    context.progress(0.5, f"with {token}")
    if how == "error":
        raise ToolError(f"bad {token}")
    if how == "exception":
        raise ValueError(f"bad {token}")
    if how == "question":
        raise ToolError.suspend({"question": f"Is {token} right?"})
    return {"token": token}


@tool(side_effects=SideEffects.READ, idempotent=True)
async def undeclared(context: ToolContext) -> str:
    \"\"\"Use a credential without its declaration.\"\"\"
    return await context.credential("tracker")
"""


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("portico.db*"))


async def test_no_value_is_in_the_database_the_log_the_events_or_a_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tmp_path.joinpath("leaking_tools.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    shell = {"description": "Print it.", "command": ["sh", "-c", "echo $TOKEN; echo $TOKEN | base64"]}
    shell |= {"side_effects": "read", "idempotent": True, "credentials": {"TOKEN": "tracker"}}
    tools = {"modules": ["leaking_tools"], "cli": {"shell": shell}, "show_exceptions": True}
    tables = {"tools": tools, "credentials": {"tracker": SECRET}}
    shown: list[str] = []
    async with callers(tmp_path, GRANTS, **tables) as (by_name, _):
        ada = by_name["ada"]
        await put(ada, ADAS)
        calls = [("leak", {"how": how}) for how in ("", "error", "exception", "question")] + [("shell", {})]
        for number, (tool, arguments) in enumerate(calls):
            step = {"name": "look", "type": "tool", "input": {"name": tool, "arguments": arguments}}
            body = chat("go", mode="plan", plan={"steps": [step]}, request_id=f"r{number}")
            answer = await ada.execute(body, Accept="text/event-stream")
            assert "[credential tracker]" in answer.body.decode(), tool
            shown.append(answer.body.decode())
            views = (
                "",
                "/steps",
                "/transcript",
                "/trace",
                *(() if arguments.get("how") == "question" else ("/events",)),
            )
            shown += [(await ada.get(f"/v1/executions/r{number}{view}")).body.decode() for view in views]
        undeclared = (await ada.execute(ask("u", "undeclared"))).body.decode()
        assert "does not declare the credential" in undeclared
        shown.append((await ada.get("/v1/credentials")).body.decode())
        shown.append((await ada.get("/v1/suspensions")).body.decode())
    captured = capfd.readouterr()
    data = stored_bytes(tmp_path)
    whole = "\n".join([*shown, captured.out, captured.err]) + data.decode("latin-1")
    for form in (
        ADAS,
        "YWRhcy1vd24tdG9rZW",
        "FkYXMtb3duLXRva2Vu",
        "hZGFzLW93bi10b2tlb",
        "%61das",
        "adas%2Down%2Dtoken",
    ):
        assert form not in whole


async def test_changes_of_credentials_are_audited_without_values(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with tracked(tmp_path, audit={"file": str(log)}) as (by_name, _, _):
        await put(by_name["ada"], ADAS)
        await put(by_name["admin"], OURS, "tenant")
        await by_name["ada"].send("DELETE", "/v1/credentials/tracker")
        await put(by_name["ada"], "short")
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    made = [(each["action"], each["detail"], each["outcome"]) for each in lines if "credential" in each["action"]]
    assert made == [
        ("credential.put", "user", "ok"),
        ("credential.put", "tenant", "ok"),
        ("credential.delete", "user", "ok"),
        ("credential.put", "user", "ok"),
        ("credential.put", "user", "failed"),
    ]
    assert ADAS.encode() not in log.read_bytes()


async def test_a_server_of_tools_is_asked_once_more_after_a_401_and_then_is_unavailable(tmp_path: Path) -> None:
    accepted, seen = {"value-of-yesterday"}, list[str]()
    server = MCPServer("clock")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def now() -> str:
        """Return the time."""
        return "noon"

    class Guard(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            seen.append(request.headers.get("authorization", ""))
            if seen[-1].removeprefix("Bearer ") not in accepted:
                return Response(status_code=401)
            return await call_next(request)

    app = server.streamable_http_app(host="127.0.0.1")
    app.add_middleware(Guard)
    value = tmp_path / "value"
    value.write_text("value-of-yesterday")
    table = {"type": "secret", "owners": ["service"], "value_file": str(value)}
    async with running_server(app) as upstream:
        tools = {"mcp": {"clock": {"url": f"http://127.0.0.1:{upstream.port}/mcp", "trusted": True, "credential": "c"}}}
        async with callers(tmp_path, GRANTS, tools=tools, credentials={"c": table}) as (by_name, _):
            ada = by_name["ada"]
            [shown] = [each for each in (await ada.get("/v1/tools")).json["data"] if each["source"] == "mcp"]
            assert (await ada.execute(ask("a", shown["name"]))).json["content"] == "noon"
            accepted.clear()
            accepted.add("value-of-today")
            value.write_text("value-of-today")
            seen.clear()
            assert (await ada.execute(ask("b", shown["name"]))).json["content"] == "noon"
            assert seen[-1] == "Bearer value-of-today"
            accepted.clear()
            refused = await ada.execute(ask("c", shown["name"]))
    assert "TOOL_UNAVAILABLE" in refused.body.decode()
    assert "value-of" not in refused.body.decode()


async def test_replicas_do_not_ask_for_a_credential(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, tracker, _):
        body = chat(
            "Use issues.",
            mode="redundant",
            redundancy={"n": 2},
            output={"schema": {}},
            tools=["issues"],
            request_id="r",
        )
        answer = await by_name["ada"].execute(body)
        assert answer.status == 200, answer.body
        steps = (await by_name["ada"].get("/v1/executions/r/steps")).body.decode()
    assert "TOOL_UNAVAILABLE" in steps
    assert tracker.tokens == []


JUNK = (
    None,
    True,
    0,
    1.5,
    10**30,
    "",
    "short",
    "x" * 8_193,
    "\x00" * 8,
    "\ud800" * 9,
    [],
    {},
    ["x" * 9],
)


async def test_junk_in_names_values_and_queries_is_refused_and_never_an_internal_error(tmp_path: Path) -> None:
    async with tracked(tmp_path) as (by_name, _, _):
        ada = by_name["ada"]
        for body in [json.dumps({"value": junk}) for junk in JUNK] + [json.dumps(junk) for junk in JUNK] + ["{", ""]:
            answer = await ada.send("PUT", "/v1/credentials/tracker", body.encode())
            assert answer.status in {400, 415, 422}, (body[:80], answer.body)
        for query in ("?owner=service", "?owner=", "?owner=user&owner=tenant", "?what=1"):
            for method in ("PUT", "DELETE"):
                body_of = orjson.dumps({"value": ADAS}) if method == "PUT" else None
                answer = await ada.send(method, f"/v1/credentials/tracker{query}", body_of)
                assert answer.status == 422, (method, query, answer.body)
        for name in ("%00", "a" * 65, "a.b", "%2e%2e", "a%2fb", "TRACKER", "unknown"):
            for method in ("PUT", "DELETE"):
                body_of = orjson.dumps({"value": ADAS}) if method == "PUT" else None
                assert (await ada.send(method, f"/v1/credentials/{name}", body_of)).status == 404, (method, name)
        assert [each["owner"] for each in await listed(ada)] == [None]


async def test_authlibs_own_server_issues_the_token_and_refuses_another_secret(tmp_path: Path) -> None:
    tracker, secret = Tracker({}), tmp_path / "secret"
    secret.write_text("the-client-secret")

    def know(token: dict[str, Any]) -> None:
        tracker.issued.append(token["access_token"])
        tracker.users[token["access_token"]] = "the service"

    async with running_server(issuer_app("portico", "the-client-secret", know)) as issuer:
        credential = {"type": "client_credentials", "client_id": "portico", "client_secret_file": str(secret)}
        credential |= {"scope": "read all"}
        url = f"http://127.0.0.1:{issuer.port}/token"
        async with tracked(tmp_path, credential | {"token_url": url}, tracker=tracker) as (by_name, _, _):
            for user in ("ada", "bob"):
                assert "the service" in (await by_name[user].execute(ask(user))).json["content"]
            assert (tracker.tokens, len(tracker.issued)) == (tracker.issued * 2, 1)
            tracker.users.clear()
            secret.write_text("another-secret")
            refused = (await by_name["ada"].execute(ask("refused"))).body.decode()
    assert "TOOL_UNAVAILABLE" in refused
    assert "secret" not in refused
