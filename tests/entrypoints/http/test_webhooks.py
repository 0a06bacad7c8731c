"""Webhooks of a whole service: what a receiver hears of executions, and what happens if it does not take it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from standardwebhooks import Webhook

from tests.support.http_server import request_bytes
from tests.support.portico import ASK_PERSON, chat, portico, resume
from tests.support.webhook_receiver import SECRET, Receiver, file_endpoint, webhook_receiver


def tables(folder: Path, receiver: Receiver, **changes: Any) -> dict[str, Any]:
    endpoints = {"orders": file_endpoint(folder, receiver.url, **changes)}
    return {"storage": {"url": f"sqlite:///{folder}/portico.db"}, "webhooks": {"endpoints": endpoints}}


async def test_the_end_of_a_chat_in_memory_is_announced_with_the_facts_and_without_the_conversation(
    tmp_path: Path,
) -> None:
    async with webhook_receiver() as receiver, portico(**tables(tmp_path, receiver)) as (served, _):
        answer = await served.post(chat("Hello", request_id="q", metadata={"order": "7"}))
        (message,) = await receiver.wait_for(1)
    assert answer.status == 200
    assert message.json["type"] == "execution.completed"
    data = message.json["data"]
    assert {name: data[name] for name in ("request_id", "tenant", "user", "agent", "mode", "state", "code")} == {
        "request_id": "q",
        "tenant": "local",
        "user": "local",
        "agent": None,
        "mode": "chat",
        "state": "COMPLETE",
        "code": None,
    }
    assert (data["metadata"], data["suspensions"], data["url"]) == ({"order": "7"}, [], None)
    assert data["tokens"] == answer.json["token_usage"]["total_tokens"]
    assert "response" not in data
    assert "Hello" not in message.body.decode()


async def test_suspensions_and_ends_are_announced_and_signed_as_standard_webhooks_says(tmp_path: Path) -> None:
    async with webhook_receiver() as receiver, portico(**tables(tmp_path, receiver)) as (served, _):
        asked = (await served.post(chat(ASK_PERSON, request_id="q"))).json
        await receiver.wait_for(1)
        await resume(served)
        messages = await receiver.wait_for(2)
    assert [each.json["type"] for each in messages] == ["execution.suspended", "execution.completed"]
    (question,) = messages[0].json["data"]["suspensions"]
    assert question == {
        name: asked["suspensions"][0][name] for name in ("suspension_id", "kind", "tool_id", "asked_at", "expires_at")
    }
    for each in messages:
        at = datetime.fromtimestamp(int(each.headers["webhook-timestamp"]), UTC)
        signed = Webhook(SECRET).sign(each.headers["webhook-id"], at, each.body.decode())
        assert each.headers["webhook-signature"] == signed


async def test_the_answer_is_sent_only_to_an_endpoint_that_asks_for_it(tmp_path: Path) -> None:
    async with (
        webhook_receiver() as receiver,
        portico(**tables(tmp_path, receiver, content=True, events=["execution.completed"])) as (served, _),
    ):
        answer = (await served.post(chat("Please calculate 17*3", request_id="q"))).json
        (message,) = await receiver.wait_for(1)
    response = message.json["data"]["response"]
    assert response["content"] == answer["content"]
    assert response["state"] == "COMPLETE"


async def test_an_endpoint_that_hears_only_what_names_it_hears_of_requests_and_agents_that_do(tmp_path: Path) -> None:
    agents = {"clerk": {"description": "Answers.", "system_prompt": "Answer.", "webhooks": ["orders"]}}
    async with (
        webhook_receiver() as receiver,
        portico(**tables(tmp_path, receiver, always=False), agents=agents) as (served, _),
    ):
        for request_id, changes in (
            ("plain", {}),
            ("named", {"webhooks": ["orders"]}),
            ("agent", {"agent": "clerk"}),
            ("unstored", {"agent": "clerk", "store": False}),
        ):
            assert (await served.post(chat("Hello", request_id=request_id, **changes))).status == 200
        messages = await receiver.wait_for(2)
        await anyio.sleep(60)
    assert sorted(each.json["data"]["request_id"] for each in messages) == ["agent", "named"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"webhooks": ["orders", "x"]}, "webhooks.1"),
        ({"webhooks": ["orders"], "store": False}, "store"),
        ({"webhooks": ["orders"] * 5}, "webhooks"),
        ({"webhooks": ["https://example.com"]}, "webhooks.0"),
    ],
)
async def test_a_request_with_webhooks_that_cannot_be_used_is_refused(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    async with webhook_receiver() as receiver, portico(**tables(tmp_path, receiver)) as (served, _):
        answers = [await served.post(chat("Hello", **changes), path=path) for path in ("/v1/execute", "/v1/quote")]
    for answer in answers:
        assert (answer.status, answer.json["details"]["errors"][0]["field"]) == (422, field)
    assert not receiver.received


async def test_a_delivery_is_tried_with_longer_waits_until_it_is_dead_and_again_when_a_person_asks(
    tmp_path: Path,
) -> None:
    given = tables(tmp_path, Receiver("http://127.0.0.1:1/hook"))
    async with webhook_receiver(500, 302, 500) as receiver:
        given["webhooks"]["endpoints"]["orders"]["url"] = receiver.url
        given["webhooks"]["retry_seconds"] = [5, 10]
        async with portico(**given) as (served, _):
            await served.post(chat("Hello", request_id="q"))
            messages = await receiver.wait_for(3)
            await anyio.sleep(1)
            (dead,) = (await served.get("/v1/webhooks/deliveries?state=dead&request_id=q&endpoint=orders")).json["data"]
            metrics = (await served.get("/metrics")).body.decode()
            path = f"/v1/webhooks/deliveries/{dead['delivery_id']}/retry"
            again = await served.ask(request_bytes("POST", path, {}))
            messages = await receiver.wait_for(4)
            await anyio.sleep(1)
            (delivered,) = (await served.get("/v1/webhooks/deliveries")).json["data"]
    assert {each.headers["webhook-id"] for each in messages} == {dead["delivery_id"]}
    times = [int(each.headers["webhook-timestamp"]) for each in messages]
    assert times[1] - times[0] == pytest.approx(5, abs=1.6)
    assert times[2] - times[1] == pytest.approx(10, abs=2.1)
    assert (dead["attempts"], dead["last_status"], dead["next_at"]) == (3, 500, None)
    assert dead["last_error"] == "the receiver answered with status 500"
    assert 'portico_webhook_deliveries_total{result="failed"} 2.0' in metrics
    assert 'portico_webhook_deliveries_total{result="dead"} 1.0' in metrics
    assert (again.status, again.json) == (202, {"delivery_id": dead["delivery_id"]})
    assert (delivered["state"], delivered["attempts"], delivered["last_status"]) == ("delivered", 1, 204)


async def test_an_endpoint_that_is_gone_hears_nothing_more_until_a_test_arrives(tmp_path: Path) -> None:
    async with webhook_receiver(410) as receiver, portico(**tables(tmp_path, receiver)) as (served, _):
        await served.post(chat("Hello", request_id="first"))
        await receiver.wait_for(1)
        await anyio.sleep(1)
        disabled = (await served.get("/v1/webhooks/orders")).json
        await served.post(chat("Hello", request_id="unheard"))
        await served.ask(request_bytes("POST", "/v1/webhooks/orders/test", {}))
        await receiver.wait_for(2)
        await anyio.sleep(1)
        enabled = (await served.get("/v1/webhooks/orders")).json
        await served.post(chat("Hello", request_id="heard"))
        messages = await receiver.wait_for(3)
        states = (await served.get("/v1/webhooks/deliveries?state=dead")).json["data"]
    assert (disabled["disabled_because"], enabled["disabled_because"]) == ("gone", None)
    assert [each.json["data"].get("request_id") for each in messages] == ["first", None, "heard"]
    assert messages[1].json["type"] == "webhook.test"
    assert [each["request_id"] for each in states] == ["first"]


async def test_what_was_not_delivered_before_a_restart_is_delivered_after_it(tmp_path: Path) -> None:
    async with webhook_receiver(500) as receiver:
        given = tables(tmp_path, receiver)
        async with portico(**given) as (served, _):
            await served.post(chat("Hello", request_id="q"))
            await receiver.wait_for(1)
            await anyio.sleep(1)
        async with portico(**given) as (served, _):
            messages = await receiver.wait_for(2)
            await anyio.sleep(1)
            (delivery,) = (await served.get("/v1/webhooks/deliveries")).json["data"]
    assert messages[0].headers["webhook-id"] == messages[1].headers["webhook-id"]
    assert messages[0].body == messages[1].body
    assert (delivery["state"], delivery["attempts"]) == ("delivered", 2)


async def test_a_deleted_execution_leaves_no_delivery(tmp_path: Path) -> None:
    async with webhook_receiver() as receiver, portico(**tables(tmp_path, receiver)) as (served, _):
        await served.post(chat("Hello", request_id="q", metadata={"canary": "c4n4ry"}))
        await receiver.wait_for(1)
        await anyio.sleep(1)
        assert len((await served.get("/v1/webhooks/deliveries")).json["data"]) == 1
        assert (await served.ask(request_bytes("DELETE", "/v1/executions/q", {}))).status == 204
        left = (await served.get("/v1/webhooks/deliveries")).json["data"]
    assert left == []
