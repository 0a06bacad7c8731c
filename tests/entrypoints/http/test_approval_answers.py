"""Approvals as people give them: with other arguments, by several users, for later calls too, and too late."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.callers import Caller, callers
from tests.support.http_server import HttpAnswer
from tests.support.portico import chat, events
from tests.support.server_state import wait_for_idle

USERS = {
    "ada": ("red", "ada", None),
    "boss": ("red", "boss", ["can_approve", "can_view_full_history"]),
    "chief": ("red", "chief", ["can_approve", "can_view_full_history"]),
    "eve": ("red", "eve", ["can_send_messages", "tool:*", "model:*"]),
    "bob": ("blue", "bob", None),
}
LARGE = {"properties": {"amount": {"exclusiveMinimum": 100}}}
HUGE = {"properties": {"amount": {"minimum": 1_000}}}
POLICY = {
    "deny": [{"tool": "refund", "arguments": HUGE}],
    "approve": [{"tool": "refund", "arguments": LARGE, "approvers": 2}, {"tool": "write_note", "grants": False}],
}
TABLES = {"tools": {"modules": ["tests.support.shop_tools"]}, "policy": POLICY}


@asynccontextmanager
async def shop(folder: Path, **tables: Any) -> AsyncIterator[tuple[dict[str, Caller], Any]]:
    async with callers(folder, USERS, **(TABLES | tables)) as (by_name, service):
        yield by_name, service


def refunds(*amounts: float, **fields: Any) -> bytes:
    """Return a request that makes these refunds one after the other."""
    steps = [
        {
            "name": f"s{number}",
            "type": "tool",
            "input": {"name": "refund", "arguments": {"amount": amount}},
            "depends_on": [f"s{number - 1}"] if number else [],
        }
        for number, amount in enumerate(amounts)
    ]
    return chat("refund", **({"mode": "plan", "plan": {"steps": steps}, "request_id": "q"} | fields))


async def decide(caller: Caller, decision: str = "approve", **payload: Any) -> HttpAnswer:
    body = {"tool_id": "refund", "payload": {"decision": decision, **payload}}
    return await caller.send("POST", "/v1/executions/q/resume", orjson.dumps(body))


async def calls_made(caller: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await caller.get("/v1/executions/q")).json["response"]["tool_calls_made"]
    return found


async def replays(caller: Caller, request_id: str = "q") -> bool:
    return bool((await caller.send("POST", f"/v1/executions/{request_id}/replay")).json["identical"])


async def test_a_person_changes_the_arguments_and_the_record_says_who_and_how(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, service):
        ada, boss = by_name["ada"], by_name["boss"]
        assert (await ada.execute(refunds(80))).status == 202
        assert (await decide(boss, arguments={"amount": 50}, reason="half")).status == 204
        await wait_for_idle(service)
        [call] = await calls_made(ada)
        assert (call["arguments"], call["asked_arguments"]) == ({"amount": 50}, {"amount": 80})
        assert call["result"] == '[A person changed the arguments to {"amount":50}.] refunded 50'
        decision = call["decision"]
        assert (decision["verdict"], decision["edited"], decision["grant_id"]) == ("approved", True, None)
        assert [(each["user"], each["reason"]) for each in decision["by"]] == [("boss", "half")]
        assert await replays(ada)


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"arguments": {"amount": "much"}}, "payload.arguments.amount"),
        ({"arguments": {}}, "payload.arguments.amount"),
        ({"arguments": {"amount": 5_000}}, "payload.arguments"),
        ({"arguments": []}, "payload.arguments"),
        ({"grant": {"for": "session", "seconds": 60}}, "payload.grant.for"),
        ({"grant": {"for": "execution", "seconds": 0}}, "payload.grant.seconds"),
        ({"grant": {"for": "execution", "seconds": 86_401}}, "payload.grant.seconds"),
        ({"grant": {"for": "execution"}}, "payload.grant.seconds"),
        ({"grant": {"for": "execution", "seconds": 1, "match": "all"}}, "payload.grant.match"),
        ({"grant": {"for": "execution", "seconds": 60}, "arguments": {"amount": 500}}, "payload.grant"),
        ({"reason": "x" * 4_097}, "payload.reason"),
    ],
)
async def test_an_answer_that_may_not_be_is_refused_and_nothing_changes(
    tmp_path: Path, payload: dict[str, Any], field: str
) -> None:
    async with shop(tmp_path) as (by_name, _):
        await by_name["ada"].execute(refunds(80))
        answer = await decide(by_name["boss"], **payload)
        assert (answer.status, answer.json["code"]) == (422, "REQUEST_INVALID")
        assert [each["field"] for each in answer.json["details"]["errors"]] == [field]
        [shown] = (await by_name["boss"].get("/v1/suspensions")).json["data"]
        assert "approvals" not in shown
        assert (await by_name["boss"].get("/v1/grants")).json == {"data": []}


async def test_edits_can_be_switched_off(tmp_path: Path) -> None:
    async with shop(tmp_path, policy={"edit_on_approve": False}) as (by_name, _):
        await by_name["ada"].execute(refunds(80))
        refused = await decide(by_name["ada"], arguments={"amount": 50})
        assert refused.json["details"]["errors"][0]["field"] == "payload.arguments"
        assert (await decide(by_name["ada"], arguments={"amount": 80})).status == 200


async def test_two_users_must_approve_the_same_arguments(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, service):
        ada, boss, chief = by_name["ada"], by_name["boss"], by_name["chief"]
        await ada.execute(refunds(500))
        [shown] = (await boss.get("/v1/suspensions")).json["data"]
        assert shown["approvals"] == {"needed": 2, "given": []}
        assert (await decide(boss, reason="ok")).status == 202
        again = await decide(boss)
        assert (again.status, again.json["code"]) == (409, "REQUEST_RESUME_MISMATCH")
        assert (await decide(chief, grant={"for": "execution", "seconds": 60})).status == 422
        # Another amount begins anew, so the first approval does not count for it.
        assert (await decide(chief, arguments={"amount": 400})).status == 202
        [shown] = (await boss.get("/v1/suspensions")).json["data"]
        assert [each["user"] for each in shown["approvals"]["given"]] == ["chief"]
        assert shown["approvals"]["arguments"] == {"amount": 400}
        assert (await decide(boss)).status == 202
        assert (await decide(chief)).status == 204
        await wait_for_idle(service)
        [call] = await calls_made(ada)
        assert (call["result"], [each["user"] for each in call["decision"]["by"]]) == (
            "refunded 500",
            ["boss", "chief"],
        )
        log = events(await ada.get("/v1/executions/q/events", Accept="text/event-stream"))
        given = [(each["user"], each["given"], each["needed"]) for each in log if each["type"] == "approval.given"]
        assert given == [("boss", 1, 2), ("chief", 1, 2), ("boss", 1, 2), ("chief", 2, 2)]
        assert await replays(ada)


async def test_an_edit_into_the_range_of_a_stricter_rule_is_the_first_answer_and_the_asker_may_be_one(
    tmp_path: Path,
) -> None:
    async with shop(tmp_path) as (by_name, service):
        ada, boss = by_name["ada"], by_name["boss"]
        await ada.execute(refunds(80))
        assert (await decide(boss, arguments={"amount": 300})).status == 202
        waiting = await ada.get("/v1/executions/q")
        assert waiting.json["suspensions"][0]["approvals"]["needed"] == 2
        assert (await decide(ada, arguments={"amount": 300})).status == 200
        await wait_for_idle(service)
        [call] = await calls_made(ada)
        assert call["result"].endswith("refunded 300")
        assert await replays(ada)


async def test_one_user_alone_does_not_lower_the_number_of_approvers_with_an_edit(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, _):
        await by_name["ada"].execute(refunds(500))
        assert (await decide(by_name["boss"], arguments={"amount": 50})).status == 202


async def test_one_denial_decides(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, service):
        await by_name["ada"].execute(refunds(500))
        await decide(by_name["boss"])
        assert (await decide(by_name["chief"], "deny", reason="no")).status == 204
        await wait_for_idle(service)
        [call] = await calls_made(by_name["ada"])
        assert (call["status"], call["result"]) == ("not_run", "not approved: no")
        assert (call["decision"]["verdict"], call["decision"]["by"][0]["user"]) == ("denied", "chief")


async def test_a_grant_covers_later_calls_until_it_is_revoked(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, service):
        ada, boss, eve, bob = (by_name[name] for name in ("ada", "boss", "eve", "bob"))
        await ada.execute(refunds(10, 20, session_id="s"))
        assert (await decide(boss, grant={"for": "session", "seconds": 600})).status == 204
        await wait_for_idle(service)
        first, second = await calls_made(ada)
        [grant] = (await boss.get("/v1/grants")).json["data"]
        assert {name: grant[name] for name in ("tool", "for", "request_id", "session_id", "match", "user")} == {
            "tool": "refund",
            "for": "session",
            "request_id": "q",
            "session_id": "s",
            "match": "tool",
            "user": "ada",
        }
        assert (grant["granted_by"], grant["uses"]) == ("boss", 1)
        assert (first["decision"]["verdict"], second["decision"]["verdict"]) == ("approved", "granted")
        assert (second["decision"]["grant_id"], second["result"]) == (grant["grant_id"], "refunded 20")
        assert await replays(ada)
        later = await ada.execute(refunds(30, session_id="s", request_id="r"))
        assert (later.status, await replays(ada, "r")) == (200, True)
        elsewhere = await ada.execute(refunds(30, request_id="other"))
        strict = await ada.execute(refunds(500, session_id="s", request_id="strict"))
        assert (elsewhere.status, strict.status) == (202, 202)
        for stranger in (eve, bob):
            assert (await stranger.get("/v1/grants")).json == {"data": []}
            assert (await stranger.send("DELETE", f"/v1/grants/{grant['grant_id']}")).status == 404
        assert (await ada.send("POST", "/v1/executions/strict/cancel")).status == 202
        assert (await ada.send("DELETE", f"/v1/grants/{grant['grant_id']}")).status == 204
        assert (await ada.send("DELETE", f"/v1/grants/{grant['grant_id']}")).status == 404
        await wait_for_idle(service)
        assert (await ada.execute(refunds(40, session_id="s", request_id="t"))).status == 202


async def test_a_rule_may_forbid_grants_and_a_repeated_call_is_asked_about_in_spite_of_one(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, service):
        ada = by_name["ada"]
        await ada.execute(refunds(10, 10))
        assert (await decide(by_name["boss"], grant={"for": "execution", "seconds": 60})).status == 204
        await wait_for_idle(service)
        [asked] = (await ada.get("/v1/executions/q")).json["suspensions"]
        assert asked["asked_because"] == "repeated"
        note = {"name": "n", "type": "tool", "input": {"name": "write_note", "arguments": {"text": "x"}}}
        await ada.execute(chat("note", mode="plan", plan={"steps": [note]}, request_id="note"))
        answer = {
            "tool_id": "write_note",
            "payload": {"decision": "approve", "grant": {"for": "execution", "seconds": 9}},
        }
        refused = await ada.send("POST", "/v1/executions/note/resume", orjson.dumps(answer))
        assert (refused.status, refused.json["details"]["errors"][0]["field"]) == (422, "payload.grant")


async def test_a_grant_for_the_same_arguments_covers_no_others(tmp_path: Path) -> None:
    async with shop(tmp_path) as (by_name, service):
        await by_name["ada"].execute(refunds(10, 20))
        grant = {"for": "execution", "seconds": 60, "match": "arguments"}
        await decide(by_name["ada"], grant=grant)
        await wait_for_idle(service)
        [asked] = (await by_name["ada"].get("/v1/executions/q")).json["suspensions"]
        assert asked["value"]["arguments"] == {"amount": 20}
