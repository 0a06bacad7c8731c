"""Prompt caches on the wires that refuse what others take: nothing is marked that a model would refuse."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.anthropic.vertex import VertexAnthropicDialect
from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.adapters.engines.dialect import Dialect
from portico.bootstrap.engines import engine_profile
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall
from portico.settings import Settings
from tests.adapters.engines.cases import DICE, HELLO, system
from tests.support.emulators import anthropic, bedrock
from tests.support.emulators.answers import ANSWERS, EmulatedAnswer, EmulatedResponse
from tests.support.emulators.server import KEY, Respond

MESSAGES = (system("Be brief."), HELLO)


def vertex_respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    """Answer as Vertex does: it refuses `cache_control` at top level, and takes the rest as Anthropic."""
    asked = orjson.loads(body)
    version = asked.pop("anthropic_version", "")
    if "cache_control" in asked or version != "vertex-2023-10-16":
        return EmulatedResponse(400, headers, (b"cache_control: Extra inputs are not permitted",))
    asked["model"] = "claude-sonnet-4-5"
    return anthropic.respond(
        "/v1/messages", {**headers, "anthropic-version": "2023-06-01"}, orjson.dumps(asked), answer
    )


@pytest.mark.parametrize(
    ("model", "dialect", "respond", "marks"),
    [
        ("anthropic://claude-haiku-4-5", AnthropicDialect(), anthropic.respond, 2),
        ("vertex://p/global/claude-sonnet-4-5", VertexAnthropicDialect("p", "global"), vertex_respond, 2),
        ("bedrock://eu-west-1/eu.anthropic.claude-sonnet-4-5-20250929-v1:0", BedrockDialect(), bedrock.respond, 2),
        ("bedrock://eu-west-1/amazon.nova-pro-v1:0", BedrockDialect(), bedrock.respond, 2),
        ("bedrock://eu-west-1/meta.llama3-3-70b-instruct-v1:0", BedrockDialect(), bedrock.respond, 0),
        ("bedrock://eu-west-1/acme.unknown-v1:0", BedrockDialect(), bedrock.respond, 0),
    ],
)
def test_no_wire_refuses_how_a_prompt_is_marked_for_its_cache(
    model: str, dialect: Dialect, respond: Respond, marks: int
) -> None:
    profile = engine_profile("a", Settings.model_validate({"engines": {"a": {"model": model}}}))
    key = "00" * 16 if profile.caches_prompts else None
    sent = dialect.encode(EngineCall(MESSAGES, (DICE,), ExecutionHints(), cache_key=key), profile, stream=False)
    body = orjson.dumps(sent.body)
    headers = {name.lower(): each for name, each in dialect.headers(KEY).items()}
    response = respond(sent.path, headers, body, ANSWERS["text"])
    assert response.status == 200, (sent.body, response)
    assert body.count(b'"cachePoint"') + body.count(b'"cache_control"') == marks


@pytest.mark.parametrize(
    ("respond", "dialect", "model", "refused"),
    [
        (bedrock.respond, BedrockDialect(), "bedrock://eu-west-1/meta.llama3-3-70b-instruct-v1:0", 403),
        (vertex_respond, AnthropicDialect(), "anthropic://claude-sonnet-4-5", 400),
    ],
)
def test_these_wires_do_refuse_other_marks(respond: Respond, dialect: Any, model: str, refused: int) -> None:
    profile = engine_profile("a", Settings.model_validate({"engines": {"a": {"model": model}}}))
    asked = EngineCall(MESSAGES, (DICE,), ExecutionHints(), cache_key="00" * 16)
    sent = dialect.encode(asked, profile, stream=False)
    headers = {name.lower(): each for name, each in dialect.headers(KEY).items()}
    assert respond(sent.path, headers, orjson.dumps(sent.body), ANSWERS["text"]).status == refused
