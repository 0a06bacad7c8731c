"""Stateless clients continue the record: results of server tools survive, and edited texts are taken as sent."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from portico.adapters.runners.maintenance import MAINTENANCE_INTERVAL_S
from portico.settings import Secret
from tests.support.callers import callers
from tests.support.http_server import HttpAnswer, request_bytes
from tests.support.scripted_provider import ScriptedService, answered, scripted_service
from tests.support.upstream import ScriptedUpstream

VERSION = {"anthropic-version": "2023-06-01"}
ENVIRONMENT = {"role": "system", "content": "The directory is /tmp."}
ASKED = {"role": "user", "content": "Count and look."}
LOOK = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
MIXED = answered("Both.", ("p1", "count_words", {"text": "a b c"}), ("p2", "look", {"at": 1}))
AGENT: Mapping[str, Any] = {
    "agents": {"clerk": {"description": "Counts.", "system_prompt": "Count.", "tools": ["count_words"]}},
    "tools": {"modules": ["tests.support.shop_tools"]},
}


def body(turns: list[dict[str, Any]], **fields: Any) -> bytes:
    named = {"model": "clerk", "max_tokens": 64, "system": "Be brief.", "tools": [LOOK], "messages": turns}
    return orjson.dumps(named | fields)


async def ask(scripted: ScriptedService, turns: list[dict[str, Any]], **fields: Any) -> HttpAnswer:
    return await scripted.served.post(body(turns, **fields), VERSION, path="/v1/messages")


def follow_up(first: HttpAnswer, result: str = "seen") -> list[dict[str, Any]]:
    """Return the turns behind the first answer: that answer, and the results of its calls."""
    content = first.json["content"]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": result}
        for block in content
        if block["type"] == "tool_use"
    ]
    return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


async def test_after_a_mixed_reply_the_provider_sees_both_results_and_the_server_tool_ran_once() -> None:
    async with scripted_service(MIXED, answered("Done.", ("p3", "look", {})), answered("End."), **AGENT) as scripted:
        turns = [ASKED, ENVIRONMENT]
        first = await ask(scripted, turns)
        assert [block["type"] for block in first.json["content"]] == ["text", "tool_use"]
        turns += follow_up(first)
        second = await ask(scripted, turns, portico={})

        turns += follow_up(second, "again")
        third = await ask(scripted, turns)
        executions = (await scripted.served.get("/v1/executions")).json["data"]
    assert third.json["content"] == [{"type": "text", "text": "End."}]
    made = [[call["name"] for call in each["response"]["tool_calls_made"]] for each in executions]
    assert sorted(name for names in made for name in names).count("count_words") == 1
    sent = scripted.sent_messages(2)
    assert [(message["role"], message.get("tool_call_id")) for message in sent] == [
        *(("system", None), ("system", None), ("user", None), ("system", None)),
        *(("assistant", None), ("tool", "p1"), ("tool", "p2"), ("assistant", None), ("tool", "p3")),
    ]
    assert [message["content"] for message in sent if message["role"] == "tool"] == ["3", "seen", "again"]
    assert scripted.sent_messages(1) == sent[:7]


async def test_a_long_conversation_is_continued_whole() -> None:
    look = [answered(f"Turn {number}.", (f"q{number}", "look", {"n": number})) for number in range(30)]
    limits = {"history_messages": 4, "history_tokens": 100}
    async with scripted_service(*look, answered("End."), limits=limits, **AGENT) as scripted:
        turns = [ASKED]
        for _ in range(30):
            turns += follow_up(await ask(scripted, turns), "seen " * 20)
        assert (await ask(scripted, turns)).json["content"][0]["text"] == "End."
    sent = scripted.sent_messages()
    assert len(sent) == 2 + 1 + 2 * 30
    assert [message["tool_call_id"] for message in sent if message["role"] == "tool"] == [f"q{n}" for n in range(30)]


async def test_the_conversation_of_another_user_is_taken_as_sent(tmp_path: Path) -> None:
    grants = {"ada": ("red", "ada", None), "eve": ("red", "eve", None)}
    tables = {"storage": {"url": f"sqlite:///{tmp_path}/portico.db"}, "auth": {"mode": "keys"}}
    async with ScriptedUpstream(MIXED, answered("Done.")) as provider:
        engine = {"model": "openai://scripted", "base_url": provider.url, "api_key_env": Secret("k")}
        async with callers(tmp_path, grants, engines={"primary": engine}, **AGENT, **tables) as (by_name, _):
            turns = [ASKED]
            first = await by_name["ada"].send("POST", "/v1/messages", body(turns))
            turns += follow_up(first)
            for name, results in (("eve", ["seen"]), ("ada", ["3", "seen"])):
                assert (await by_name[name].send("POST", "/v1/messages", body(turns))).status == 200
                sent = provider.requests[-1].json()["messages"]
                assert [each["content"] for each in sent if each["role"] == "tool"] == results


def _edited(turns: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    first, answer, results = turns
    text, call = answer["content"]
    match what:
        case "question":
            return [{**first, "content": "Something else."}, answer, results]
        case "text":
            return [first, {**answer, "content": [{**text, "text": "Other."}, call]}, results]
        case "arguments":
            return [first, {**answer, "content": [text, {**call, "input": {"at": 2}}]}, results]
        case "compacted":
            return [{"role": "user", "content": "A summary."}, answer, results]
        case _:
            foreign = call["id"].replace("call_", "call_0")[:37] + "_0"
            renamed = {"role": "user", "content": [{**results["content"][0], "tool_use_id": foreign}]}
            return [first, {**answer, "content": [text, {**call, "id": foreign}]}, renamed]


@pytest.mark.parametrize("what", ["question", "text", "arguments", "compacted", "unknown id", "deleted"])
async def test_a_conversation_that_was_edited_or_is_not_stored_is_taken_as_sent(what: str) -> None:
    async with scripted_service(MIXED, answered("Done."), **AGENT) as scripted:
        first = await ask(scripted, [ASKED])
        turns = [ASKED, *follow_up(first)]
        if what == "deleted":
            [stored] = (await scripted.served.get("/v1/executions")).json["data"]
            deleted = request_bytes("DELETE", f"/v1/executions/{stored['request_id']}", {})
            assert (await scripted.served.ask(deleted)).status == 204
        else:
            turns = _edited(turns, what)
        answer = await ask(scripted, turns)
    sent = scripted.sent_messages()
    call_id = turns[2]["content"][0]["tool_use_id"]
    assert answer.json["content"] == [{"type": "text", "text": "Done."}]
    assert [(each["role"], each.get("tool_call_id")) for each in sent[2:]] == [
        ("user", None),
        ("assistant", None),
        ("tool", call_id),
    ]


async def test_a_conversation_that_has_expired_is_taken_as_sent() -> None:
    storage = {"url": "sqlite://", "answer_retention_days": 1e-9}
    async with scripted_service(MIXED, answered("Done."), storage=storage, **AGENT) as scripted:
        turns = [ASKED, *follow_up(await ask(scripted, [ASKED]))]
        await anyio.sleep(MAINTENANCE_INTERVAL_S * 2)
        assert (await scripted.served.get("/v1/executions")).json["data"] == []
        assert (await ask(scripted, turns)).status == 200
    assert [each["content"] for each in scripted.sent_messages() if each["role"] == "tool"] == ["seen"]


async def test_an_error_of_a_continued_request_names_the_place_in_the_body() -> None:
    async with scripted_service(MIXED, **AGENT) as scripted:
        [answer, results] = follow_up(await ask(scripted, [ASKED, ENVIRONMENT]))
        image = {"type": "image", "source": {"type": "url", "url": "http://example.org/a.png"}}
        seen = {**results, "content": [*results["content"], {"type": "text", "text": "This:"}, image]}
        refused = await ask(scripted, [ASKED, ENVIRONMENT, answer, seen])
    assert refused.status == 400
    assert refused.json["error"]["message"].startswith("messages.3.content.2.source.url: ")
