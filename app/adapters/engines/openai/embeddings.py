"""Embeddings, which OpenAI and the servers that follow it offer in one form, whatever else they speak."""

from collections.abc import Sequence
from typing import Any

from app.adapters.engines.dialect import EncodedRequest
from app.adapters.engines.openai.errors import parse_reply
from app.adapters.engines.wire.faults import malformed_reply
from app.adapters.engines.wire.json_fields import as_objects


def encode_embeddings(texts: Sequence[str], model: str) -> EncodedRequest:
    return EncodedRequest("/embeddings", {"model": model, "input": list(texts)})


def decode_embeddings(body: bytes) -> list[list[float]]:
    """The vectors in the order of the texts. Raises: EngineFault."""
    entries = as_objects(parse_reply(body).get("data"))
    placed = {_index(entry, place): _vector(entry.get("embedding")) for place, entry in enumerate(entries)}
    if sorted(placed) != list(range(len(entries))):
        raise malformed_reply("the reply's embeddings are not numbered one by one")
    return [placed[index] for index in range(len(entries))]


def _index(entry: dict[str, Any], place: int) -> int:
    index = entry.get("index", place)
    if type(index) is not int:
        raise malformed_reply("the reply holds an embedding without a number")
    return index


def _vector(value: Any) -> list[float]:
    if not isinstance(value, list) or not value or not {type(number) for number in value} <= {float, int}:
        raise malformed_reply("the reply holds an embedding that is no list of numbers")
    return [float(number) for number in value]
