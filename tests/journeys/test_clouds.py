"""One engine over keys and clouds: no failure reaches a user, and what has a URL goes to each wire in its words."""

from base64 import b64encode
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import anyio
import orjson

from portico.settings import Secret
from tests.support.http_server import RunningServer
from tests.support.portico import JSON_BODY, chat, portico
from tests.support.scripted_provider import answered
from tests.support.upstream import Script, ScriptedUpstream, reply

EXECUTIONS = 500
AT_ONCE = 25
CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
PDF, PNG = b"%PDF-1.7\n", b"\x89PNG\r\n\x1a\n"
CONVERSED = reply(
    {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 5, "outputTokens": 1, "totalTokens": 6},
    }
)
SPOKEN = reply(
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 1},
    }
)
CHATTED = reply({"message": {"role": "assistant", "content": "Hello"}, "done": True, "done_reason": "stop"})


async def started(stack: AsyncExitStack, **scripts: list[Script]) -> dict[str, ScriptedUpstream]:
    return {name: await stack.enter_async_context(ScriptedUpstream(*script)) for name, script in scripts.items()}


async def answer_all(served: RunningServer, count: int, at_once: int) -> Counter[str]:
    """Ask so often, so many at the same time; return how often each deployment answered. None may fail."""
    answers: Counter[str] = Counter()
    room = anyio.Semaphore(at_once)

    async def run(number: int) -> None:
        async with room:
            answer = await served.post(chat(f"question {number}", tools=[]), JSON_BODY)
        assert (answer.status, answer.json["state"]) == (200, "COMPLETE"), answer.body
        answers[answer.json["metadata"]["deployment"]] += 1

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(run, number)
    return answers


async def test_all_executions_complete_over_a_revoked_key_a_limited_one_and_a_region_that_fails() -> None:
    async with AsyncExitStack() as stack:
        upstreams = await started(
            stack,
            first=[reply({"error": {"code": "invalid_api_key"}}, status=401)],
            second=[reply({"error": {"code": "rate_limit_exceeded"}}, status=429, headers={"Retry-After": "30"})],
            third=[answered("Hello")],
            azure=[reply({"error": {"code": "InternalServerError"}}, status=500)],
            bedrock=[CONVERSED],
        )
        tables: dict[str, Any] = {
            name: {"base_url": upstreams[name].url, "api_key_env": Secret(f"sk-secret-{name}")} for name in upstreams
        }
        tables["azure"]["model"] = "azure://example/gpt-of-ours"
        tables["bedrock"]["model"] = f"bedrock://eu-central-1/{CLAUDE}"
        engine = {"model": "openai://scripted", "vendor": "generic", "deployments": tables}
        failover = {"max_deployments": 4}
        served, _ = await stack.enter_async_context(portico(engines={"main": engine}, failover=failover))
        answers = await answer_all(served, EXECUTIONS, AT_ONCE)
        assert sum(answers.values()) == EXECUTIONS
        assert set(answers) == {"third", "bedrock"}
        refused = [len(upstreams[name].requests) for name in ("first", "second", "azure")]
        assert max(refused) < AT_ONCE, "only those of the first requests, before they were known as bad"
        assert upstreams["azure"].requests[0].headers["api-key"] == "sk-secret-azure"
        assert upstreams["bedrock"].requests[0].headers["authorization"] == "Bearer sk-secret-bedrock"
        seen = await served.get("/v1/engines")
        assert b"sk-secret" not in seen.body
        states = {each["name"]: (each["state"], each["reason"]) for each in seen.json["data"][0]["deployments"]}
        assert states["first"] == ("refused", "credentials")
        assert states["second"] == ("resting", "rate_limited")
        assert states["azure"][0] == "ejected"
        assert states["third"] == states["bedrock"] == ("available", None)


async def test_a_pdf_and_a_picture_by_url_go_to_three_wires_and_are_named_on_a_fourth() -> None:
    async with AsyncExitStack() as stack:
        upstreams = await started(
            stack,
            pdf=[reply(PDF, content_type="application/pdf")],
            png=[reply(PNG, content_type="image/png")],
            openai=[answered("Hello")],
            anthropic=[SPOKEN],
            bedrock=[CONVERSED],
            ollama=[CHATTED],
        )
        engines = {
            "openai": {"model": "openai://gpt-4.1", "vendor": "openai", "api": "chat_completions"},
            "anthropic": {"model": "anthropic://claude-haiku-4-5"},
            "bedrock": {"model": f"bedrock://eu-central-1/{CLAUDE}"},
            "ollama": {"model": f"ollama://{upstreams['ollama'].url.removeprefix('http://')}/qwen3:8b"},
        }
        tables: dict[str, Any] = {
            name: engine | {"base_url": upstreams[name].url, "api_key_env": Secret("k")}
            for name, engine in engines.items()
        }
        tables["ollama"] = {**engines["ollama"], "capabilities": {"images": False}}
        media = {"private_hosts": ["127.0.0.1"]}
        served, _ = await stack.enter_async_context(portico(engines=tables, media=media))
        parts = [
            {"type": "text", "text": "What is this?"},
            {"type": "document", "media_type": "application/pdf", "name": "a.pdf", "url": upstreams["pdf"].url},
            {"type": "image", "url": upstreams["png"].url},
        ]
        sent: dict[str, str] = {}
        left_out: dict[str, Any] = {}
        for name in engines:
            body = {"messages": [{"role": "user", "content": parts}], "model": name, "tools": []}
            answer = await served.post(orjson.dumps(body), JSON_BODY)
            assert answer.json.get("content") == "Hello", answer.body
            sent[name] = upstreams[name].requests[-1].body.decode()
            left_out[name] = answer.json["metadata"].get("left_out") or []
        for name in ("openai", "anthropic", "bedrock"):
            assert b64encode(PDF).decode() in sent[name]
            assert b64encode(PNG).decode() in sent[name]
            assert left_out[name] == []
        assert set(left_out["ollama"]) == {"messages.documents", "messages.images"}
        assert "[a document that this model cannot read: a.pdf]" in sent["ollama"]
        assert not any(upstreams["pdf"].url in each or upstreams["png"].url in each for each in sent.values())
