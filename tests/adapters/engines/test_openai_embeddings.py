"""Embeddings: what is asked, what comes back, and what is none."""

import json
from typing import Any

import pytest

from app.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from app.adapters.engines.openai.responses import ResponsesDialect
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError

DIALECTS = pytest.mark.parametrize("dialect", [ChatCompletionsDialect(), ResponsesDialect()], ids=["chat", "responses"])


def embedding(vector: Any, **members: Any) -> dict[str, Any]:
    return {"object": "embedding", "embedding": vector, **members}


@DIALECTS
def test_all_texts_are_asked_for_at_once(dialect: ChatCompletionsDialect | ResponsesDialect):
    encoded = dialect.encode_embeddings(("one", "two"), "some-model")
    assert (encoded.path, encoded.body) == ("/embeddings", {"model": "some-model", "input": ["one", "two"]})


@DIALECTS
def test_vectors_come_in_the_order_of_the_texts(dialect: ChatCompletionsDialect | ResponsesDialect):
    def decoded(*data: Any) -> list[list[float]]:
        return dialect.decode_embeddings(json.dumps({"object": "list", "data": data}).encode())

    first, second = embedding([1, 2.5], index=0), embedding([-3e-9], index=1)
    assert decoded(first, second) == decoded(second, first) == [[1.0, 2.5], [-3e-9]]
    assert decoded(embedding([1.0]), embedding([2.0])) == [[1.0], [2.0]]
    assert decoded() == []
    assert all(type(number) is float for vector in decoded(first) for number in vector)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"data": [{"index": 0, "embedding": [NaN]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999]}]}',
        {"data": {}},
        {"data": [3]},
        {"data": [embedding(None)]},
        {"data": [embedding([])]},
        {"data": [embedding("AACAPw==")]},
        {"data": [embedding(["1.0"])]},
        {"data": [embedding([True])]},
        {"data": [embedding([None])]},
        {"data": [embedding([[1.0]])]},
        {"data": [embedding([1.0], index=0), embedding([1.0], index=0)]},
        {"data": [embedding([1.0], index=1)]},
        {"data": [embedding([1.0], index=-1)]},
        {"data": [embedding([1.0], index=True)]},
        {"data": [embedding([1.0], index="0")]},
    ],
)
@DIALECTS
def test_b1_18_embeddings_of_the_wrong_shape_are_malformed(
    dialect: ChatCompletionsDialect | ResponsesDialect, body: Any
):
    with pytest.raises(EngineError) as caught:
        dialect.decode_embeddings(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert caught.value.reason is AttemptFailureReason.MALFORMED


@DIALECTS
def test_an_error_in_place_of_embeddings_is_that_error(dialect: ChatCompletionsDialect | ResponsesDialect):
    with pytest.raises(EngineError) as caught:
        dialect.decode_embeddings(b'{"error": {"code": "insufficient_quota", "message": "secret"}}')
    assert caught.value.reason is AttemptFailureReason.QUOTA
    assert "secret" not in caught.value.message
