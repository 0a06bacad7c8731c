"""`POST /v1/messages` over HTTP: answers, streams, errors, credentials, and the count of tokens."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.callers import callers
from tests.support.http_server import HttpAnswer, RunningServer
from tests.support.portico import events
from tests.support.scripted_provider import answered, folded_message, scripted_service, streamed
from tests.support.upstream import UpstreamAction, reply

HELLO = {"role": "user", "content": "Hello"}
LOOK = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
VERSION = {"anthropic-version": "2023-06-01"}
LOOK_CALL = ("prov-1", "look", {"at": "ü"})


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "default", "max_tokens": 64, "messages": [HELLO], **fields})


async def post(served: RunningServer, path: str = "/v1/messages?beta=true", **fields: Any) -> HttpAnswer:
    return await served.post(body(**fields), VERSION, path=path)


async def test_a_message_has_text_calls_usage_and_the_model_of_the_request() -> None:
    async with scripted_service(answered("I look.", LOOK_CALL)) as scripted:
        answer = await post(scripted.served, tools=[LOOK], system="Be brief.", thinking={"type": "adaptive"})
    digits = answer.json["id"].removeprefix("msg_")
    assert answer.status == 200
    assert answer.json == {
        "id": f"msg_{digits}",
        "type": "message",
        "role": "assistant",
        "model": "default",
        "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": f"call_{digits}_0", "name": "look", "input": {"at": "ü"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 8,
            "output_tokens": 5,
        },
    }
    assert answer.headers["portico-ignored"] == "thinking"
    sent = scripted.provider.requests[0].json()
    assert sent["messages"] == [{"role": "system", "content": "Be brief."}, HELLO]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["look"]


@pytest.mark.parametrize(("finish", "reason"), [("stop", "end_turn"), ("length", "max_tokens")])
async def test_a_stream_folds_to_the_whole_answer(finish: str, reason: str) -> None:
    text = "Say it: ü, 東京 and \U0001f600."
    async with scripted_service(answered(text, finish=finish), streamed(text, finish=finish)) as scripted:
        whole = await post(scripted.served)
        stream = await post(scripted.served, stream=True)
    found = folded_message(events(stream))
    assert stream.headers["content-type"] == "text/event-stream"
    assert [each["type"] for each in events(stream)][-2:] == ["message_delta", "message_stop"]
    assert {**found, "id": ""} == {**whole.json, "id": ""}
    assert (found["stop_reason"], found["content"]) == (reason, [{"type": "text", "text": text}])


async def test_calls_in_a_stream_fold_to_the_whole_answer() -> None:
    script = ("I look.", LOOK_CALL, ("prov-2", "look", {}))
    async with scripted_service(answered(*script), streamed(*script)) as scripted:
        whole = await post(scripted.served, tools=[LOOK])
        stream = await post(scripted.served, tools=[LOOK], stream=True)
    found = folded_message(events(stream))
    assert [block.pop("id")[-2:] for block in found["content"][1:]] == ["_0", "_1"]
    assert found["content"] == [
        {name: value for name, value in block.items() if name != "id"} for block in whole.json["content"]
    ]
    assert found["stop_reason"] == "tool_use"


async def test_texts_of_several_turns_are_blocks_and_calls_that_ran_here_are_not_shown() -> None:
    scripts = [("Counting.", ("p1", "count_words", {"text": "a b"})), ("Two words.",)]
    agent = {"clerk": {"system_prompt": "Count.", "tools": ["count_words"], "description": "Counts."}}
    tables = {"agents": agent, "tools": {"modules": ["tests.support.shop_tools"]}}
    both = [kind(*script) for kind in (answered, streamed) for script in scripts]
    async with scripted_service(*both, **tables) as scripted:
        whole = await post(scripted.served, model="clerk")
        stream = await post(scripted.served, model="clerk", stream=True)
    texts = [{"type": "text", "text": "Counting."}, {"type": "text", "text": "Two words."}]
    assert (whole.json["content"], whole.json["stop_reason"]) == (texts, "end_turn")
    assert folded_message(events(stream))["content"] == texts


async def test_the_extension_is_answered_to_those_who_ask() -> None:
    async with scripted_service(answered("Hi."), streamed("Hi.")) as scripted:
        whole = await post(scripted.served, portico={})
        stream = folded_message(events(await post(scripted.served, portico={}, stream=True)))
        quote = await post(scripted.served, portico={"quote": True})
    assert whole.json["portico"]["provider"] == stream["portico"]["provider"] == "primary"
    assert (quote.json["content"], "quote" in quote.json["portico"]) == ([], True)
    assert len(scripted.provider.requests) == 2


async def test_a_refusal_names_the_field_in_the_shape_that_anthropics_clients_read() -> None:
    async with scripted_service(answered("Hi.")) as scripted:
        answer = await post(scripted.served, temperature=7)
        unknown = await post(scripted.served, model="gpt-9")
        bad = await scripted.served.post(b"{", VERSION, path="/v1/messages")
    assert answer.status == 400
    assert answer.json["type"] == "error"
    assert answer.json["error"] == {"type": "invalid_request_error", "message": answer.json["detail"]}
    assert answer.json["details"]["errors"][0]["field"] == "temperature"
    assert (answer.json["code"], answer.json["request_id"] != "") == ("REQUEST_INVALID", True)
    assert (unknown.status, unknown.json["error"]["type"]) == (404, "not_found_error")
    assert (bad.status, bad.json["error"]["type"]) == (400, "invalid_request_error")


async def test_a_stream_that_breaks_ends_with_an_error_and_never_looks_like_success() -> None:
    broken = streamed("One two three", broken=UpstreamAction.CLOSE)
    async with scripted_service(broken, failover={"max_retries": 0}) as scripted:
        stream = await post(scripted.served, stream=True)
    last = events(stream)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert b"message_stop" not in stream.body


async def test_a_provider_that_is_down_is_an_api_error() -> None:
    async with scripted_service(
        reply({"error": {"message": "no"}}, status=500), failover={"max_retries": 0}
    ) as scripted:
        answer = await post(scripted.served)
    assert answer.status >= 500
    assert answer.json["type"] == "error"


async def test_credentials_are_taken_from_either_header_but_not_from_two_that_differ(tmp_path: Path) -> None:
    grants = {"ada": ("red", "ada", None), "eve": ("red", "eve", None), "reader": ("red", "reader", [])}
    async with callers(tmp_path, grants) as (by_name, _):
        served = by_name["ada"].served
        ada, eve = (by_name[name].headers["Authorization"].removeprefix("Bearer ") for name in ("ada", "eve"))

        async def status(path: str, **headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()} | VERSION
            if path == "/v1/models":
                return (await served.get(path, named)).status
            return (await served.post(body(), named, path=path)).status

        for path in ("/v1/messages", "/v1/messages/count_tokens", "/v1/models"):
            assert await status(path, x_api_key=ada) == 200
            assert await status(path, Authorization=f"Bearer {ada}") == 200
            assert await status(path, Authorization=f"Bearer {ada}", x_api_key=ada) == 200
            assert await status(path, Authorization=f"Bearer {ada}", x_api_key=eve) == 401
            assert await status(path, x_api_key="ptk_no") == 401
            assert await status(path) == 401
        assert await status("/v1/execute", x_api_key=ada) == 401
        refused = await by_name["reader"].send("POST", "/v1/messages/count_tokens", body())
        assert (refused.status, refused.json["error"]["type"]) == (403, "permission_error")


async def test_tokens_are_counted_without_running_anything() -> None:
    async with scripted_service(answered("Hi.")) as scripted:
        path = "/v1/messages/count_tokens"
        small = await post(scripted.served, path)
        large = await post(scripted.served, path, system="word " * 400, tools=[LOOK])
        refused = await post(scripted.served, path, messages=[])
    assert list(small.json) == ["input_tokens"]
    assert 0 < small.json["input_tokens"] < 50
    assert large.json["input_tokens"] > small.json["input_tokens"] + 300
    assert refused.status == 400
    assert scripted.provider.requests == []
