"""Embeddings: what is asked, what comes back, and what is none."""

import json
from typing import Any

import pytest

from app.adapters.engines.openai_compatible import ChatCompletions
from app.adapters.engines.openai_responses import Responses
from app.domain.effects import Reason
from app.ports import EngineFault

DIALECTS = pytest.mark.parametrize("dialect", [ChatCompletions(), Responses()], ids=["chat", "responses"])


def embedding(vector: Any, **members: Any) -> dict[str, Any]:
    return {"object": "embedding", "embedding": vector, **members}


@DIALECTS
def test_all_texts_are_asked_for_at_once(dialect: ChatCompletions | Responses):
    encoded = dialect.encode_embeddings(("one", "two"), "some-model")
    assert (encoded.path, encoded.body) == ("/embeddings", {"model": "some-model", "input": ["one", "two"]})


@DIALECTS
def test_vectors_come_in_the_order_of_the_texts(dialect: ChatCompletions | Responses):
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
def test_b1_18_embeddings_of_the_wrong_shape_are_malformed(dialect: ChatCompletions | Responses, body: Any):
    with pytest.raises(EngineFault) as caught:
        dialect.decode_embeddings(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert caught.value.reason is Reason.MALFORMED


@DIALECTS
def test_an_error_in_place_of_embeddings_is_that_error(dialect: ChatCompletions | Responses):
    with pytest.raises(EngineFault) as caught:
        dialect.decode_embeddings(b'{"error": {"code": "insufficient_quota", "message": "secret"}}')
    assert caught.value.reason is Reason.QUOTA
    assert "secret" not in caught.value.message
