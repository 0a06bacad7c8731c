"""Configured engines: the protocol of every URL scheme, and the effect of each setting."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from portico.adapters.engines.http.aiohttp_transport import open_session
from portico.bootstrap.engine_builders.build import EngineResources
from portico.bootstrap.engines import build_engine
from portico.domain.failures import ConfigurationFailure
from portico.entrypoints.http.app import create_app
from portico.settings import Secret, Settings
from tests.adapters.engines.engine_calls import chat_chunk
from tests.support.emulators import anthropic, gemini, ollama, openai_chat, openai_responses
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.server import KEY, EmulatedServer, Respond
from tests.support.http_server import RunningServer, running_server
from tests.support.upstream import ScriptedUpstream, event, event_stream, reply
from tests.support.virtual_time import VirtualClock

SPOKEN: Mapping[str, tuple[Respond, dict[str, Any], str]] = {
    "openai": (openai_chat.respond, {"model": "openai://some-model"}, "/chat/completions"),
    "responses by name": (openai_responses.respond, {"model": "openai://gpt-5-codex"}, "/responses"),
    "responses by choice": (openai_responses.respond, {"model": "openai://gpt-4.1", "api": "responses"}, "/responses"),
    "anthropic": (anthropic.respond, {"model": "anthropic://claude-haiku-4-5"}, "/v1/messages"),
    "gemini": (
        gemini.respond,
        {"model": "gemini://gemini-2.5-flash"},
        "/v1beta/models/gemini-2.5-flash:generateContent",
    ),
}
SCHEMA = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
CANARY = "canary-of-a-header"
HELD = EmulatedAnswer('{"size":3}')


@asynccontextmanager
async def portico(**engine: Any) -> AsyncIterator[RunningServer]:
    async with running_server(
        create_app(
            Settings.model_validate(
                {"storage": {"url": "sqlite://"}, "engines": {"only": {"api_key_env": Secret(KEY), **engine}}}
            )
        )
    ) as served:
        yield served


def chat(**changes: Any) -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": "Hi"}], "tools": [], **changes})


@pytest.mark.parametrize(("respond", "engine", "path"), SPOKEN.values(), ids=SPOKEN)
async def test_a_scheme_speaks_its_protocol(respond: Respond, engine: dict[str, Any], path: str) -> None:
    async with (
        EmulatedServer(respond, EmulatedAnswer("Hello.")) as upstream,
        portico(**engine, base_url=upstream.url) as served,
    ):
        answer = await served.post(chat())
    assert answer.json["content"] == "Hello."
    assert [request.path for request in upstream.requests] == [path]


async def test_ollama_is_reached_at_the_address_of_its_url() -> None:
    async with EmulatedServer(ollama.respond, EmulatedAnswer("Hello.")) as upstream:
        address = upstream.url.removeprefix("http://")
        async with portico(model=f"ollama://{address}/qwen3:8b") as served:
            answer = await served.post(chat())
    assert answer.json["content"] == "Hello."
    assert orjson.loads(upstream.requests[0].body)["model"] == "qwen3:8b"


async def test_parameters_that_a_model_does_not_support_are_named_in_the_answer() -> None:
    hints = {"temperature": 0.5, "max_tokens": 64, "seed": 7}
    async with (
        EmulatedServer(openai_chat.respond, EmulatedAnswer("Hello.")) as upstream,
        portico(model="openai://gpt-5", base_url=upstream.url) as served,
    ):
        answer = await served.post(chat(hints=hints))
    sent = orjson.loads(upstream.requests[0].body)
    assert answer.json["metadata"]["left_out"] == ["hints.temperature"]
    assert (sent.get("temperature"), sent["max_completion_tokens"], sent["seed"]) == (None, 64, 7)


@pytest.mark.parametrize(("capabilities", "way"), [({}, "contract"), ({"schema": True}, "schema")])
async def test_configured_capabilities_decide_how_a_format_is_enforced(capabilities: dict[str, bool], way: str) -> None:
    async with (
        EmulatedServer(anthropic.respond, HELD) as upstream,
        portico(model="anthropic://claude-haiku-4-5", base_url=upstream.url, capabilities=capabilities) as served,
    ):
        answer = await served.post(chat(mode="structured", output={"schema": SCHEMA}))
        (shown,) = (await served.get("/v1/engines")).json["data"]
    assert answer.json["structured_output"] == {"size": 3}
    assert answer.json["metadata"]["kept_by"] == way
    assert shown["capabilities"]["schema"] is bool(capabilities)


async def test_configured_headers_are_sent_and_shown_nowhere() -> None:
    headers = {"X-Team": CANARY, "authorization": f"Basic {CANARY}"}
    async with (
        EmulatedServer(openai_chat.respond, EmulatedAnswer("Hello.")) as upstream,
        portico(model="openai://some-model", base_url=upstream.url, headers=headers) as served,
    ):
        answer = await served.post(chat())
        engines = await served.get("/v1/engines")
    sent = upstream.requests[0].headers
    assert (sent["x-team"], sent["authorization"]) == (CANARY, f"Basic {CANARY}")
    assert CANARY not in f"{answer.body!r} {engines.body!r}"


async def test_a_certificate_file_without_a_certificate_is_refused_by_name(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    ca_file.write_text("not a certificate")
    settings = Settings.model_validate({"engines": {"only": {"model": "openai://x", "ca_file": str(ca_file)}}})
    async with open_session() as session, AsyncExitStack() as stack:
        with pytest.raises(ConfigurationFailure) as caught:
            build_engine("only", settings, EngineResources(VirtualClock(), session, stack, pytest.fail))
    assert caught.value.message.startswith("engines.only.ca_file: must be a file of certificates in PEM format")


async def test_usage_that_cannot_be_true_is_estimated_and_flagged() -> None:
    body = {"choices": [{"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": -40, "completion_tokens": 2}
    async with (
        ScriptedUpstream(reply(body | {"usage": usage})) as upstream,
        portico(model="openai://some-model", base_url=upstream.url) as served,
    ):
        answer = (await served.post(chat())).json
    assert answer["metadata"]["flags"] == ["usage_implausible"]
    assert answer["token_usage"]["estimated"]
    assert 0 < answer["token_usage"]["input_tokens"] < 100


async def test_frames_of_no_known_form_are_counted_by_provider() -> None:
    script = event_stream(event(chat_chunk("Hello.")), event({"object": "note"}), event(chat_chunk(finish="stop")))
    async with (
        ScriptedUpstream(script) as upstream,
        portico(model="openai://some-model", base_url=upstream.url) as served,
    ):
        assert (await served.post(chat())).json["content"] == "Hello."
        metrics = (await served.get("/metrics")).body.decode()
    assert 'portico_unknown_frames_total{provider="only"} 1.0' in metrics


async def test_only_the_beginning_of_a_very_long_partial_answer_is_stored_and_all_of_it_is_counted() -> None:
    pieces = [event(chat_chunk("word " * 100_000)) for _ in range(4)]
    async with (
        ScriptedUpstream(event_stream(*pieces, event(chat_chunk(finish="content_filter")))) as upstream,
        portico(model="openai://some-model", base_url=upstream.url, context_window=2_000_000) as served,
    ):
        answer = (await served.post(chat())).json
    assert answer["error"]["code"] == "INFERENCE_CONTENT_FILTERED"
    assert len(answer["content"]) == 2**20
    assert answer["token_usage"]["output_tokens"] > 300_000
