"""Claude on Vertex AI: the body that Anthropic's own client for Vertex sends, and where caches are marked."""

from dataclasses import replace
from typing import Any

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.anthropic.vertex import VertexAnthropicDialect
from portico.domain.model_call import AttemptFailureReason, EngineCall
from tests.adapters.engines.cases import DICE, HELLO, ROLL, ROLL_SIX, result, system
from tests.adapters.engines.engine_calls import call, profile

DIALECT = VertexAnthropicDialect("acme", "europe-west1")
MARK = {"type": "ephemeral"}


def encoded(asked: EngineCall, *, stream: bool = False) -> dict[str, Any]:
    return DIALECT.encode(asked, profile("claude-sonnet-4-5@20250929"), stream=stream).body


def test_the_path_names_the_model_and_the_body_the_version() -> None:
    model = "/projects/acme/locations/europe-west1/publishers/anthropic/models/claude-sonnet-4-5@20250929"
    for stream, verb in ((False, "rawPredict"), (True, "streamRawPredict")):
        sent = DIALECT.encode(call(tools=[DICE]), profile("claude-sonnet-4-5@20250929"), stream=stream)
        plain = AnthropicDialect().encode(call(tools=[DICE]), profile("claude-sonnet-4-5@20250929"), stream=stream)
        assert sent.path == f"{model}:{verb}"
        assert sent.body == {
            **{name: value for name, value in plain.body.items() if name != "model"},
            "anthropic_version": "vertex-2023-10-16",
        }
    assert DIALECT.headers("token") == {"Authorization": "Bearer token"}


def test_a_cache_ends_at_the_last_block_since_the_top_level_is_refused() -> None:
    asked = replace(call([system("Be brief."), HELLO], tools=[DICE]), cache_key="0" * 32)
    body = encoded(asked)
    assert "cache_control" not in body
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert body["messages"][-1]["content"][-1]["cache_control"] == MARK


def test_only_the_last_message_is_marked_and_the_call_is_left_as_it_was() -> None:
    asked = replace(call([HELLO, ROLL, result(ROLL_SIX, "4")], tools=[DICE]), cache_key="0" * 32)
    first, second = encoded(asked), encoded(asked)
    assert first == second
    marks = [block.get("cache_control") for message in first["messages"] for block in message["content"]]
    assert marks == [*[None] * (len(marks) - 1), MARK]


def test_googles_own_errors_are_known_by_their_status() -> None:
    quota = b'[{"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}}]'
    assert DIALECT.failure_reason(429, quota) is AttemptFailureReason.RATE_LIMITED
    assert DIALECT.failure_reason(403, b'{"error": {"code": 403, "status": "PERMISSION_DENIED"}}') is (
        AttemptFailureReason.CREDENTIALS
    )
