"""Questions are answered by the user who asked, calls of tools by each user of the tenant who may approve."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer
from tests.support.portico import ASK_PERSON, chat
from tests.support.server_state import wait_for_idle
from tests.support.upstream import ScriptedUpstream, reply

GRANTS = {
    "ada": ("red", "ada", None),
    "asker": ("red", "ada", ["can_send_messages", "tool:*", "model:*"]),
    "boss": ("red", "boss", ["can_approve"]),
    "eve": ("red", "eve", ["can_send_messages", "tool:*", "model:*"]),
    "viewer": ("red", "viewer", ["can_view_tenant"]),
    "bob": ("blue", "bob", None),
}
APPROVE = {"tool_id": "order", "payload": {"decision": "approve"}}


@asynccontextmanager
async def shop(folder: Path, **tables: Any) -> AsyncIterator[tuple[dict[str, Caller], list[Any], Any]]:
    """Run a service with an external tool `order`; yield its callers, the orders that were sent, and the service."""
    async with ScriptedUpstream(reply({"id": 7})) as upstream:
        order = {"description": "Order.", "method": "POST", "url": upstream.url, "allow_private": True}
        async with callers(folder, GRANTS, tools={"http": {"order": order}}, **tables) as (by_name, service):
            yield by_name, upstream.requests, service


def an_order(request_id: str = "q") -> bytes:
    step = {"name": "buy", "type": "tool", "input": {"name": "order", "arguments": {}}}
    return chat("a secret wish", mode="plan", plan={"steps": [step]}, request_id=request_id)


async def resumed(caller: Caller, body: dict[str, Any], request_id: str = "q", **headers: str) -> HttpAnswer:
    return await caller.send("POST", f"/v1/executions/{request_id}/resume", orjson.dumps(body), **headers)


async def listed(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await caller.get(f"/v1/suspensions{query}")).json["data"]
    return found


async def test_another_user_who_may_approve_decides_and_sees_the_call_only(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, orders, service):
        assert (await by_name["ada"].execute(an_order())).status == 202
        [shown] = await listed(by_name["boss"])
        assert (shown["user"], shown["request_id"], shown["step_name"]) == ("ada", "q", "buy")
        assert (shown["value"], shown["asked_because"]) == ({"tool": "order", "arguments": {}}, "tool")
        assert (await by_name["boss"].get("/v1/executions/q")).status == 404
        for headers in ({}, {"Accept": "text/event-stream"}):
            answer = await resumed(by_name["boss"], APPROVE | {"payload": {"decision": "perhaps"}}, **headers)
            assert answer.status == 422
        answer = await resumed(by_name["boss"], APPROVE)
        assert (answer.status, answer.body) == (204, b"")
        await wait_for_idle(service)
        assert len(orders) == 1
        whole = await by_name["ada"].get("/v1/executions/q")
        assert whole.json["state"] == "COMPLETE"
        assert '"resumed_by":"boss"' in (await by_name["ada"].get("/v1/executions/q/events")).body.decode()


@pytest.mark.parametrize(("caller", "status"), [("eve", 404), ("viewer", 404), ("bob", 404), ("asker", 403)])
async def test_a_call_is_not_decided_without_the_right_to_approve(tmp_path: Path, caller: str, status: int) -> None:
    async with shop(tmp_path) as (by_name, orders, _):
        await by_name["ada"].execute(an_order())
        answer = await resumed(by_name[caller], APPROVE)
        assert answer.status == status
        if status == 403:
            assert answer.json["details"] == {"permission": "can_approve"}
            assert (
                answer.headers["www-authenticate"]
                == 'Bearer realm="portico", error="insufficient_scope", scope="can_approve"'
            )
        assert orders == []
        assert len(await listed(by_name["ada"])) == 1


async def test_a_question_is_answered_by_the_user_who_asked_only(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, _, _):
        await by_name["ada"].execute(chat(ASK_PERSON, request_id="q"))
        body = {"tool_id": "ask_person", "payload": "yes"}
        assert [(await resumed(by_name[name], body)).status for name in ("boss", "eve", "viewer", "bob")] == [404] * 4
        for malformed in ("boss", "eve"):
            assert (await resumed(by_name[malformed], {"payload": 1})).status == 404
        assert (await listed(by_name["boss"])) == (await listed(by_name["eve"])) == []
        assert [each["user"] for each in await listed(by_name["viewer"])] == ["ada"]
        assert (await resumed(by_name["asker"], body)).status == 200


async def test_with_self_approval_off_another_user_must_decide(tmp_path: Path) -> None:
    async with shop(tmp_path, policy={"self_approval": False}) as (by_name, orders, service):
        await by_name["ada"].execute(an_order())
        answer = await resumed(by_name["ada"], APPROVE)
        assert (answer.status, answer.json["code"], orders) == (403, "ACCESS_DENIED", [])
        assert (await resumed(by_name["boss"], APPROVE)).status == 204
        await wait_for_idle(service)
        assert len(orders) == 1


async def test_suspensions_are_filtered_and_paged(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, _, _):
        ada = by_name["ada"]
        for number in range(3):
            await ada.execute(an_order(f"q-{number}"))
        await ada.execute(chat(ASK_PERSON, request_id="q-3", session_id="s"))
        found, after = [], ""
        while after is not None:
            page = (await ada.get(f"/v1/suspensions?limit=3{after and f'&after={after}'}")).json
            found += [each["request_id"] for each in page["data"]]
            after = page["next"]
        assert found == ["q-0", "q-1", "q-2", "q-3"]
        assert [each["request_id"] for each in await listed(ada, "?session_id=s")] == ["q-3"]
        assert [each["request_id"] for each in await listed(ada, "?tool=order&request_id=q-1")] == ["q-1"]
        assert [each["request_id"] for each in await listed(ada, "?kind=question")] == ["q-3"]
        assert await listed(ada, "?user=eve") == await listed(ada, "?since=2090-01-01T00:00:00Z") == []
        for query in ("?kind=other", "?since=yesterday", "?after=x", "?state=SUSPENDED", "?limit=0"):
            assert (await ada.get(f"/v1/suspensions{query}")).status == 422


async def test_a_suspension_expires_after_the_configured_time(tmp_path: Path) -> None:
    async with shop(tmp_path, limits={"suspension_seconds": 60}) as (by_name, _, _):
        await by_name["ada"].execute(an_order())
        [shown] = await listed(by_name["ada"])
        asked_at, expires_at = (datetime.fromisoformat(shown[name]) for name in ("asked_at", "expires_at"))
        assert (expires_at - asked_at).total_seconds() == 60
