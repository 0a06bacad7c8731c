"""Embeddings of engines: what each dialect sends, and how it reads replies that are not what they should be."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import Dialect, EmbeddingDialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.http.engine import Endpoint, ReplyLimits
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.timeouts import Timeouts
from portico.domain.model_call import AttemptFailureReason
from portico.ports.memory import Embeddings
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import KEY, encode, profile
from tests.support.emulators.server import http_engine
from tests.support.upstream import Script, ScriptedUpstream, UpstreamAction, reply

DIALECTS = (ChatCompletionsDialect(), ResponsesDialect(), GeminiDialect(), OllamaDialect())
Rows = Sequence[Sequence[float]]


def floats(embeddings: Embeddings) -> list[list[float]]:
    return [array("f", vector).tolist() for vector in embeddings.vectors]


def body_of(dialect: EmbeddingDialect, rows: Rows, tokens: int | None = None) -> dict[str, Any]:
    """Return the reply of the dialect's provider with these vectors."""
    if isinstance(dialect, GeminiDialect):
        return {"embeddings": [{"values": row} for row in rows], "usageMetadata": {"promptTokenCount": tokens}}
    if isinstance(dialect, OllamaDialect):
        return {"model": "m", "embeddings": rows, "prompt_eval_count": tokens}
    data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
    return {"object": "list", "data": data[::-1], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def test_each_dialect_asks_in_the_words_of_its_provider() -> None:
    sent = [dialect.encode_embeddings(["a", "b"], profile("emb"), 64) for dialect in DIALECTS]
    openai = {"model": "emb", "input": ["a", "b"], "encoding_format": "float", "dimensions": 64}
    parts = [
        {"model": "models/emb", "content": {"parts": [{"text": text}]}, "outputDimensionality": 64} for text in "ab"
    ]
    assert [(each.path, each.body) for each in sent] == [
        ("/embeddings", openai),
        ("/embeddings", openai),
        ("/v1beta/models/emb:batchEmbedContents", {"requests": parts}),
        ("/api/embed", {"model": "emb", "input": ["a", "b"], "dimensions": 64}),
    ]
    for dialect in DIALECTS:
        assert b"imension" not in encode(dialect.encode_embeddings(["a"], profile("emb"), None).body)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: type(each).__name__)
def test_vectors_are_read_in_the_order_of_the_texts(dialect: EmbeddingDialect) -> None:
    rows = [[1.0, 0.5], [-2, 0], [3.25, 1e-3]]
    read = dialect.decode_embeddings(encode(body_of(dialect, rows, 7)))
    assert floats(read) == [array("f", row).tolist() for row in rows]
    assert read.tokens == 7
    assert dialect.decode_embeddings(encode(body_of(dialect, rows))).tokens == 0
    assert dialect.decode_embeddings(encode(body_of(dialect, rows, -3))).tokens == 0


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("row", ["text", ["1"], [None], [[1.0]], {"a": 1}, [10**400]], ids=str)
def test_other_values_than_vectors_are_malformed(dialect: EmbeddingDialect, row: Any) -> None:
    body = encode(body_of(dialect, [[1.0], row]))
    with pytest.raises(EngineError) as caught:
        dialect.decode_embeddings(body)
    assert caught.value.reason is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("numbers", [[0, 0], [1, 2], ["0", "1"], [0, None], [[], {}]], ids=str)
def test_vectors_without_a_place_are_malformed(numbers: list[Any]) -> None:
    data = [{"index": number, "embedding": [1.0]} for number in numbers]
    with pytest.raises(EngineError) as caught:
        ChatCompletionsDialect().decode_embeddings(encode({"data": data}))
    assert caught.value.reason is AttemptFailureReason.MALFORMED


async def embedded(
    script: Script, dialect: Dialect, timeouts: Timeouts | None = None
) -> tuple[ScriptedUpstream, Embeddings]:
    async with ScriptedUpstream(script) as upstream:
        endpoint = Endpoint(upstream.url, lambda: KEY, timeouts or Timeouts(), ReplyLimits(4_096))
        async with http_engine(profile("emb"), dialect, endpoint) as engine:
            return upstream, await engine.embed(["a", "b"], None)


async def test_an_engine_sends_one_request_with_its_key() -> None:
    dialect = ChatCompletionsDialect()
    upstream, read = await embedded(reply(body_of(dialect, [[1.0], [2.0]])), dialect)
    assert floats(read) == [[1.0], [2.0]]
    request = upstream.requests[0]
    assert (request.method, request.path, request.headers["authorization"]) == ("POST", "/embeddings", f"Bearer {KEY}")
    assert request.json()["input"] == ["a", "b"]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (reply({"error": {"message": "slow down"}}, status=429), AttemptFailureReason.RATE_LIMITED),
        (reply(b"<html>"), AttemptFailureReason.MALFORMED),
        (reply({"data": [{"embedding": [1.5] * 4_096}]}), AttemptFailureReason.MALFORMED),
        ((UpstreamAction.HANG,), AttemptFailureReason.TIMED_OUT),
        ((UpstreamAction.RESET,), AttemptFailureReason.BROKEN),
    ],
    ids=["429", "html", "large", "hang", "reset"],
)
async def test_a_provider_that_fails_gives_a_reason(script: Script, reason: AttemptFailureReason) -> None:
    with pytest.raises(EngineError) as caught:
        await embedded(script, ChatCompletionsDialect(), Timeouts(attempt_seconds=2))
    assert caught.value.reason is reason


async def test_a_provider_without_embeddings_is_not_asked() -> None:
    with pytest.raises(EngineError) as caught:
        await embedded(reply({}), AnthropicDialect())
    assert caught.value.reason is AttemptFailureReason.REFUSED
