"""Embeddings of OpenAI and of the many servers that follow it."""

from collections.abc import Sequence
from typing import Any

from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.openai.errors import parse_reply
from portico.adapters.engines.wire.embeddings import token_count, vector_of
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import as_objects, detail
from portico.ports.memory import Embeddings
from portico.ports.model import EngineProfile


def encode_embeddings(texts: Sequence[str], profile: EngineProfile, dimension: int | None) -> EncodedRequest:
    """Encode the request for the vectors of the texts."""
    body: dict[str, Any] = {"model": profile.model, "input": list(texts), "encoding_format": "float"}
    if dimension is not None:
        body["dimensions"] = dimension
    return EncodedRequest("/embeddings", body)


def decode_embeddings(body: bytes) -> Embeddings:
    """Decode the reply, whose vectors may be in any order. Raises: EngineError."""
    reply = parse_reply(body)
    found = as_objects(reply.get("data"))
    numbers = [each.get("index", number) for number, each in enumerate(found)]
    if not all(isinstance(number, int) for number in numbers) or set(numbers) != set(range(len(found))):
        raise malformed_reply("the reply numbers its vectors in another way than it should")
    vectors = {number: vector_of(each.get("embedding")) for number, each in zip(numbers, found, strict=True)}
    tokens = token_count(detail(reply, "usage", "total_tokens"))
    return Embeddings([vectors[number] for number in range(len(found))], tokens)
