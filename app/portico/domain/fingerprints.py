"""Digests, fingerprints and derived ids."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Any

import orjson
from pydantic import BaseModel, JsonValue

from portico.domain.ids import ExecutionId, IdempotencyKey, SpanId, ToolCallId


def digest(*parts: object) -> str:
    """Return 32 hex digits over the canonical JSON of the parts."""
    return blake2b(orjson.dumps(parts, default=_canonical, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def received_digest(messages: Sequence[BaseModel]) -> str:
    """Return the digest of the messages that a client has sent, by which it is known that it sends them again.

    Transcripts are long. So the fields are written as they are, and hashed by what processors have instructions for.
    """
    fields = [vars(message) for message in messages]
    return sha256(orjson.dumps(fields, default=_canonical, option=orjson.OPT_SORT_KEYS)).hexdigest()


def question_digest(key: str, kind: str, tool_id: str, value: JsonValue) -> str:
    """Return the fingerprint of a question, by which a replay recognises the question and its answer."""
    return digest("question", key, kind, tool_id, value)


def args_hash(key: str, arguments: Mapping[str, Any]) -> str:
    """Return a keyed hash of canonical arguments. Equal arguments have equal hashes; without the key they cannot be
    guessed.
    """
    text = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, key=bytes.fromhex(key), digest_size=16).hexdigest()


def idempotency_key(execution_id: ExecutionId, step: str, tool_call_id: ToolCallId) -> IdempotencyKey:
    """Return the idempotency key of a tool call, equal for all its attempts."""
    return IdempotencyKey(digest("tool", execution_id, step, tool_call_id))


def fence_mark(execution_id: ExecutionId) -> str:
    """Return the 8 hex digits that mark the fences around untrusted text in the prompts of an execution."""
    return blake2b(f"fence:{execution_id}".encode(), digest_size=4).hexdigest()


def span_id(execution_id: ExecutionId, anchor: str) -> SpanId:
    """Return the 16 hex digits of the span at that step."""
    return SpanId(blake2b(f"{execution_id}:{anchor}".encode(), digest_size=8).hexdigest())


def _canonical(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.__pydantic_serializer__.to_python(value, exclude_none=True, by_alias=True)
    raise TypeError(f"{type(value).__name__} has no canonical form")
