"""What stands for a value where the value itself must not or need not."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson
from pydantic import BaseModel, JsonValue

from app.domain.ids import ExecutionId, IdempotencyKey, SpanId, ToolCallId


def digest(*parts: object) -> str:
    """32 hex digits over the canonical JSON of the parts."""
    return blake2b(orjson.dumps(parts, default=_plain, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def question_digest(key: str, kind: str, tool_id: str, value: JsonValue) -> str:
    """What a journal knows a question, and so the answer to it, again by."""
    return digest("question", key, kind, tool_id, value)


def args_hash(key: str, arguments: Mapping[str, Any]) -> str:
    """A keyed hash of canonical arguments: equal arguments are seen as equal, and none can be guessed from it."""
    text = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, key=bytes.fromhex(key), digest_size=16).hexdigest()


def idempotency_key(execution_id: ExecutionId, step: str, tool_call_id: ToolCallId) -> IdempotencyKey:
    """What whoever acts for a tool may know one of its calls again by."""
    return IdempotencyKey(digest("tool", execution_id, step, tool_call_id))


def span_id(execution_id: ExecutionId, anchor: str) -> SpanId:
    """The 16 hex digits of the span at that step."""
    return SpanId(blake2b(f"{execution_id}:{anchor}".encode(), digest_size=8).hexdigest())


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.__pydantic_serializer__.to_python(value, exclude_none=True, by_alias=True)
    raise TypeError(f"{type(value).__name__} has no canonical form")
