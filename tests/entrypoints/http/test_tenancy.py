"""Tenant matrix: on every route, the ids of another tenant and of another user answer 404 or find nothing.

The routes come from the API description, so that a new one without a case here fails.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from mcp.shared.exceptions import MCPError

from portico.domain.access.principal import KEY_DEFAULT, Permission
from tests.entrypoints.mcp.test_callers import keyed_client
from tests.support.callers import Caller, callers
from tests.support.portico import ASK_PERSON, chat

MANAGER = [*KEY_DEFAULT.names, Permission.MANAGE_KEYS]
OF_CREDENTIALS = "/v1/credentials/"
"""Beginning of the routes of values, whose names are those of the configuration; `test_credentials.py` walks them."""
OF_TENANTS = "/v1/webhooks"
"""Beginning of the routes that hear of all users of a tenant; `test_webhook_endpoints.py` walks them."""
GRANTS = {
    "ada": ("red", "ada", MANAGER),
    "eve": ("red", "eve", MANAGER),
    "bob": ("blue", "bob", MANAGER),
    "namesake": ("blue", "ada", MANAGER),
    "viewer": ("red", "viewer", ["can_view_tenant", "can_send_messages", "model:*"]),
}
FOREIGN = ("eve", "bob", "namesake")
OPENAPI = Path(__file__).parents[3] / "openapi" / "openapi.json"
OF_NO_USER = frozenset(
    {
        *("GET /v1/tools", "GET /v1/step-types", "GET /v1/engines", "GET /v1/flows", "GET /v1/flows/{name}"),
        *("GET /v1/agents", "GET /v1/skills", "GET /v1/models", "GET /v1/models/{model}"),
        "POST /v1/embeddings",
        *("GET /v1/prompts", "GET /v1/errors", "GET /v1/machines", "GET /livez", "GET /readyz", "GET /metrics"),
    }
)
"""Routes without data of users: what is configured, and probes."""
ANSWERED = "019ab3c0-d4e8-7000-a1b2-c3d4e5f60718"
"""Id of an execution that the ids of client APIs can name."""
APPROVAL = {
    "type": "mcp_approval_response",
    "approval_request_id": f"mcpr_{ANSWERED.replace('-', '')}_0",
    "approve": True,
}
NAMED_IN_BODY: Mapping[str, Sequence[dict[str, Any]]] = {
    "POST /v1/execute": (
        {"after": "done"},
        {"session_id": "talk"},
        {"session_id": "talk", "if_session_busy": "enqueue"},
    ),
    "POST /v1/responses": (
        {"model": "default", "input": "Who am I?", "previous_response_id": f"resp_{ANSWERED.replace('-', '')}"},
        {"model": "default", "input": "Who am I?", "conversation": "talk"},
        {"model": "default", "input": [APPROVAL]},
    ),
    "POST /v1/chat/completions": ({"model": "default", "portico": {"session_id": "talk"}},),
    "POST /v1/messages": ({"model": "default", "portico": {"session_id": "talk"}},),
    "POST /v1/messages/count_tokens": ({"model": "default", "portico": {"session_id": "talk"}},),
    "POST /v1/quote": ({"after": "done"}, {"session_id": "talk"}),
}
"""Bodies with an id of ada's, by route."""
LISTS: Mapping[str, Sequence[str]] = {
    "GET /v1/executions": (
        *("", "?session_id=talk", "?view=summary", "?state=SUSPENDED", "?state=COMPLETE,SUSPENDED"),
        *("?q=talk", "?q=do", "?origin=done"),
    ),
    "GET /v1/sessions": ("",),
    "GET /v1/suspensions": ("", "?request_id=open", "?user=ada", "?session_id=talk"),
    "GET /v1/grants": ("",),
    "GET /v1/credentials": ("",),
    "GET /v1/usage": ("", "?by=day", "?by=user"),
    "GET /v1/stats": ("", "?bucket=day"),
    "GET /v1/me": ("",),
    "GET /v1/memory": ("",),
    "GET /v1/keys": ("",),
    "GET /v1/schedules": ("",),
}
"""Queries of the lists, by route."""
LIVE = frozenset({"GET /v1/events"})
"""Streams without an end, whose readers `test_changes.py` tells apart."""
RUN = "POST /v1/ag-ui/{agent}"
"""A run, which names an execution by an interrupt only."""
PUT_DOCUMENT = "PUT /v1/memory/{document_id}"
PUT_SCHEDULE = "PUT /v1/schedules/{schedule_name}"
SEARCH_MEMORY = "POST /v1/memory/search"
MAKE_KEY = "POST /v1/keys"
REVOKE_KEY = "DELETE /v1/keys/{public_id}"
REVOKE_GRANT = "DELETE /v1/grants/{grant_id}"
"""Grants of others are revoked by no one, see `test_approval_answers.py`."""
DOCUMENT = orjson.dumps({"text": "My name is Ada."})
SCHEDULE = orjson.dumps({"cron": "0 3 * * *", "request": {"messages": [{"role": "user", "content": "I am Ada."}]}})


def described_routes() -> list[str]:
    paths = orjson.loads(OPENAPI.read_bytes())["paths"]
    return [f"{method.upper()} {path}" for path, item in paths.items() for method in item if method != "parameters"]


def with_id_in_path() -> list[str]:
    ids = ("{request_id}", "{session_id}", "{document_id}", "{response_id}", "{schedule_name}")
    own = {PUT_DOCUMENT, PUT_SCHEDULE}
    return [route for route in described_routes() if route not in own and any(each in route for each in ids)]


def test_every_route_has_a_case() -> None:
    cases = {
        *with_id_in_path(),
        *NAMED_IN_BODY,
        *LISTS,
        PUT_DOCUMENT,
        PUT_SCHEDULE,
        SEARCH_MEMORY,
        MAKE_KEY,
        REVOKE_KEY,
        REVOKE_GRANT,
        RUN,
    }
    walked = {route for route in described_routes() if OF_TENANTS in route or OF_CREDENTIALS in route}
    assert cases | OF_NO_USER | LIVE | walked >= set(described_routes())


async def begin(ada: Caller) -> None:
    """Let ada have an execution that has ended, in a session, one that waits for an answer, and a document."""
    assert (await ada.execute(chat("My name is Ada.", request_id="done"))).status == 200
    assert (await ada.execute(chat("My name is Ada.", request_id=ANSWERED))).status == 200
    assert (await ada.execute(chat("Hello", request_id="turn", session_id="talk"))).status == 200
    assert (await ada.execute(chat(ASK_PERSON, request_id="open"))).status == 202
    assert (await ada.send("PUT", "/v1/memory/note", DOCUMENT)).status == 201
    assert (await ada.send("PUT", "/v1/schedules/nightly", SCHEDULE)).status == 201


def addressed(route: str) -> list[tuple[str, str]]:
    """Return the method and the paths of a route with ids of ada's."""
    method, _, path = route.partition(" ")
    return [
        (
            method,
            path.replace("{request_id}", request_id)
            .replace("{session_id}", "talk")
            .replace("{document_id}", "note")
            .replace("{schedule_name}", "nightly")
            .replace("{response_id}", f"resp_{ANSWERED.replace('-', '')}"),
        )
        for request_id in (("done", "turn", "open") if "{request_id}" in path else ("",))
    ]


async def state_of(ada: Caller) -> list[bytes]:
    """Return everything of ada's that others could change."""
    paths = ("/v1/executions/done", "/v1/executions/turn", "/v1/executions/open", "/v1/sessions/talk")
    more = (
        "/v1/sessions/talk/messages",
        "/v1/executions",
        "/v1/suspensions",
        "/v1/memory/note",
        "/v1/schedules/nightly",
    )
    return [(await ada.get(path)).body for path in (*paths, *more)]


async def test_an_id_of_another_user_in_the_path_is_unknown(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        before = await state_of(by_name["ada"])
        for route in with_id_in_path():
            for method, path in addressed(route):
                for name in FOREIGN:
                    # The refusal comes before the body is read: an empty object is a valid body of no route.
                    answer = await by_name[name].send(method, path, b"{}" if method in {"POST", "PATCH"} else None)
                    assert answer.status == 404, (route, name, answer.body)
                    unknown = method, path.replace("done", "nothing").replace("turn", "nothing")
                    same = await by_name[name].send(
                        unknown[0],
                        unknown[1]
                        .replace("open", "nothing")
                        .replace("talk", "nothing")
                        .replace("note", "nothing")
                        .replace("nightly", "nothing")
                        .replace("019ab3c0", "00000000"),
                        b"{}" if method in {"POST", "PATCH"} else None,
                    )
                    assert (same.status, same.json["detail"]) == (404, answer.json["detail"])
        assert await state_of(by_name["ada"]) == before


@pytest.mark.parametrize("route", NAMED_IN_BODY)
async def test_an_id_of_another_user_in_the_body_is_unknown(tmp_path: Path, route: str) -> None:
    method, _, path = route.partition(" ")
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        before = await state_of(by_name["ada"])
        for fields in NAMED_IN_BODY[route]:
            # A session of another tenant is no conflict: both have one of that name.
            foreign = (
                ("eve", "viewer")
                if {"session_id", "conversation"} & fields.get("portico", fields).keys()
                else ("eve", "viewer", "bob", "namesake")
            )
            for name in foreign:
                answer = await by_name[name].send(method, path, chat("Who am I?", **fields))
                assert answer.status == 404, (fields, name, answer.body)
        assert await state_of(by_name["ada"]) == before


async def test_an_own_execution_is_not_forked_into_the_session_of_another_user(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        await by_name["eve"].execute(chat("Hello", request_id="own"))
        for from_step in (0, "end"):
            body = {"from_step": from_step, "session_id": "talk", "overrides": {"messages": []}}
            answer = await by_name["eve"].send("POST", "/v1/executions/own/fork", orjson.dumps(body))
            assert answer.status == 404


async def test_lists_have_nothing_of_other_users(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        for route, queries in LISTS.items():
            for query in queries:
                for name in FOREIGN:
                    answer = await by_name[name].get(route.partition(" ")[2] + query)
                    assert answer.status == 200, (route, query, answer.body)
                    assert not any(
                        each in answer.body.decode()
                        for each in ("done", "turn", "talk", "open", "Ada", "note", "nightly")
                    )


async def test_keys_of_other_users_are_neither_listed_nor_made_nor_revoked(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        ids = {name: (await each.get("/v1/me")).json["key"] for name, each in by_name.items()}
        for name in FOREIGN:
            listed = (await by_name[name].get("/v1/keys")).json["data"]
            assert {each["public_id"] for each in listed} == {ids[name]}
            answer = await by_name[name].send("DELETE", f"/v1/keys/{ids['ada']}")
            unknown = await by_name[name].send("DELETE", "/v1/keys/unknown1")
            assert (answer.status, answer.json["detail"]) == (404, unknown.json["detail"])
            made = await by_name[name].send("POST", "/v1/keys", orjson.dumps({"user": "ada"}))
            # The namesake makes a key of its own user, in its own tenant.
            assert (made.status, made.json.get("tenant")) == ((201, "blue") if name == "namesake" else (403, None))
        shown = await by_name["ada"].get("/v1/keys")
        assert [(each["public_id"], each["revoked_at"]) for each in shown.json["data"]] == [(ids["ada"], None)]


async def test_a_document_id_is_of_one_user(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        before = await state_of(by_name["ada"])
        for name in FOREIGN:
            search = orjson.dumps({"query": "What is her name? Ada?"})
            found = await by_name[name].send("POST", "/v1/memory/search", search)
            assert (found.status, found.json["data"]) == (200, [])
            own = await by_name[name].send("PUT", "/v1/memory/note", orjson.dumps({"text": f"I am {name}."}))
            assert (own.status, own.json["user"]) == (201, GRANTS[name][1])
            found = await by_name[name].send("POST", "/v1/memory/search", search)
            assert not any("Ada" in each["text"] for each in found.json["data"])
            assert (await by_name[name].send("DELETE", "/v1/memory/note")).status == 204
        assert await state_of(by_name["ada"]) == before


async def test_a_request_id_is_taken_and_an_idempotency_key_is_not(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        key = {"Idempotency-Key": "k"}
        assert (await by_name["ada"].execute(chat("Hello", request_id="done"))).status == 200
        assert (await by_name["eve"].execute(chat("Hello", request_id="done"))).status == 409
        assert (await by_name["bob"].execute(chat("Hello", request_id="done"))).status == 200
        first = await by_name["ada"].execute(chat("Hello"), **key)
        for name in ("eve", "bob", "namesake"):
            answer = await by_name[name].execute(chat("Hello"), **key)
            assert answer.json["request_id"] != first.json["request_id"]
        again = await by_name["ada"].execute(chat("Hello"), **key)
        assert (again.json["request_id"], again.headers["idempotency-replayed"]) == (first.json["request_id"], "true")


async def test_a_cursor_of_another_user_is_refused(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        cursor = (await by_name["ada"].get("/v1/executions?limit=1")).json["next"]
        statuses = [(await by_name[name].get(f"/v1/executions?after={cursor}")).status for name in ("ada", *FOREIGN)]
        assert statuses == [200, 422, 422, 422]


async def test_a_viewer_of_the_tenant_reads_and_changes_nothing(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        before = await state_of(by_name["ada"])
        reads = {"GET", "POST /v1/executions/{request_id}/replay"}
        for route in with_id_in_path():
            for method, path in addressed(route):
                if path.endswith("open/events"):
                    continue  # Its stream stays open.
                answer = await by_name["viewer"].send(method, path, b"{}" if method in {"POST", "PATCH"} else None)
                if method in reads or route in reads:
                    # Only a flow has a snapshot, files are their owner's, and what has ended has no more events.
                    expected = {404} if path.endswith("/snapshot") or "/files" in path else {200, 204}
                    assert answer.status in expected, (route, answer.body)
                else:
                    assert answer.status == 404, (route, answer.body)
        assert await state_of(by_name["ada"]) == before
        listed = (await by_name["viewer"].get("/v1/executions")).json["data"]
        assert {each["request_id"] for each in listed} == {"done", ANSWERED, "turn", "open"}


async def test_no_route_of_a_resource_answers_without_a_key(tmp_path: Path) -> None:
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        stranger = Caller(by_name["ada"].served, {})
        for route in {
            *with_id_in_path(),
            *LISTS,
            *LIVE,
            *NAMED_IN_BODY,
            PUT_DOCUMENT,
            SEARCH_MEMORY,
            MAKE_KEY,
            REVOKE_KEY,
            REVOKE_GRANT,
        }:
            for method, path in addressed(route):
                answer = await stranger.send(method, path, b"{}" if method in {"POST", "PATCH", "PUT"} else None)
                assert answer.status == 401, (route, answer.body)


async def test_an_interrupt_of_another_user_is_unknown(tmp_path: Path) -> None:
    interrupts = [f"{digits}/1" for digits in (ANSWERED.replace("-", ""), "0" * 32)]
    bodies = [
        {"threadId": "t", "runId": "r", "messages": [], "resume": [{"interruptId": each, "status": "resolved"}]}
        for each in interrupts
    ]
    async with callers(tmp_path, GRANTS) as (by_name, _):
        await begin(by_name["ada"])
        before = await state_of(by_name["ada"])
        for name in FOREIGN:
            found, unknown = [
                await by_name[name].send("POST", RUN.partition(" ")[2].format(agent="default"), orjson.dumps(body))
                for body in bodies
            ]
            assert (found.status, found.json["detail"]) == (404, unknown.json["detail"])
        assert await state_of(by_name["ada"]) == before


async def test_what_another_user_has_is_unknown_over_mcp(tmp_path: Path) -> None:
    tables = {"mcp": {"enabled": True, "expose": ["execute", "executions"], "wait": 0}}
    async with callers(tmp_path, GRANTS, **tables) as (by_name, _):
        await begin(by_name["ada"])
        before = await state_of(by_name["ada"])
        for name in FOREIGN:
            async with keyed_client(by_name[name], "auto") as mcp:
                for found in ("done", "turn", "open"):
                    named = {"request_id": found}
                    answer = {**named, "suspension_id": "1", "answer": "yes"}
                    for tool, arguments in (("get_execution", named), ("cancel", named), ("resume", answer)):
                        refused = await mcp.call_tool(tool, arguments)
                        unknown = await mcp.call_tool(tool, {**arguments, "request_id": "nothing"})
                        assert (refused.is_error, refused.content) == (True, unknown.content)
                    for part in ("", "/trace"):
                        with pytest.raises(MCPError):
                            await mcp.read_resource(f"portico://executions/{found}{part}")
                assert (await mcp.list_resources()).resources == []
                if name == "eve":  # Another tenant has a session of that name of its own.
                    refused = await mcp.call_tool("execute", {"message": "Who am I?", "session_id": "talk"})
                    assert "REQUEST_NOT_FOUND" in str(refused.content)
        assert await state_of(by_name["ada"]) == before
