"""Decoder of the replies of Bedrock's Converse API, whole and in events.

An event of a stream is an object with one member, whose name is the type of its frame. The usage comes in the last
event, after the reason why the model stopped. Reasoning that is signed or encrypted is stored as it came, with its
number among the blocks unless it is the first.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.bedrock.errors import reported_fault
from portico.adapters.engines.wire.deltas import NO_DELTA, Delta, OpaqueFragment, ToolCallFragment
from portico.adapters.engines.wire.error_frames import unknown_frame
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import as_object, as_objects, as_text, parse_object
from portico.adapters.engines.wire.usage import TokenCounts, sum_counts
from portico.domain.model_call import AttemptFailureReason

FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "guardrail_intervened": AttemptFailureReason.CONTENT_FILTERED,
        "content_filtered": AttemptFailureReason.CONTENT_FILTERED,
        "refusal": AttemptFailureReason.CONTENT_FILTERED,
        "malformed_model_output": AttemptFailureReason.MALFORMED,
        "malformed_tool_use": AttemptFailureReason.MALFORMED,
    }
)
REASONING: Final = "reasoningText"
REDACTED: Final = "redactedContent"
POSITION: Final = "index"
"""The member of stored reasoning with the number of blocks before it; absent where there were none."""


def decode_reply(body: bytes) -> Delta:
    """Decode a whole reply. Raises: EngineError."""
    reply = parse_object(body)
    message = as_object(as_object(reply.get("output")).get("message"))
    finish = as_text(reply.get("stopReason")) or None
    blocks = as_objects(message.get("content"))
    if blocks and "toolUse" in blocks[-1] and FINISH_REASONS.get(finish or "") == "length":
        raise malformed_reply("the reply was cut within a tool call")
    deltas = [_block(number, block) for number, block in enumerate(blocks)]
    return Delta(
        text="".join(delta.text for delta in deltas),
        reasoning="".join(delta.reasoning for delta in deltas),
        calls=tuple(call for delta in deltas for call in delta.calls),
        opaque=tuple(fragment for delta in deltas for fragment in delta.opaque),
        finish=finish,
        usage=_usage(reply.get("usage")),
    )


def decode_event(data: bytes) -> Delta:
    """Decode one event of a stream; events that add nothing to the answer are ignored. Raises: EngineError."""
    event = parse_object(data)
    for kind, content in event.items():
        decode = EVENTS.get(kind)
        if decode is not None:
            return decode(as_object(content))
    return unknown_frame(event, reported_fault)


def _block(number: int, block: Mapping[str, Any]) -> Delta:
    """Decode a block of a whole reply; blocks of other kinds are ignored."""
    if "toolUse" in block:
        call = as_object(block["toolUse"])
        return Delta(calls=(_call_fragment(number, call, _arguments(call.get("input"))),))
    if "reasoningContent" in block:
        content = as_object(block["reasoningContent"])
        return _reasoning(number, {**as_object(content.get(REASONING) or {}), **content})
    if "citationsContent" in block:
        parts = as_objects(as_object(block["citationsContent"]).get("content"))
        return Delta("".join(as_text(part.get("text")) for part in parts))
    return Delta(as_text(block.get("text")))


def _block_started(event: Mapping[str, Any]) -> Delta:
    start = as_object(event.get("start") or {})
    if "toolUse" not in start:
        return NO_DELTA
    return Delta(calls=(_call_fragment(_number(event), as_object(start["toolUse"]), ""),))


def _block_continued(event: Mapping[str, Any]) -> Delta:
    delta = as_object(event.get("delta"))
    if "text" in delta:
        return Delta(as_text(delta["text"]))
    if "toolUse" in delta:
        piece = as_text(as_object(delta["toolUse"]).get("input"))
        return Delta(calls=(ToolCallFragment(_number(event), "", "", piece),))
    if "reasoningContent" in delta:
        return _reasoning(_number(event), as_object(delta["reasoningContent"]))
    return NO_DELTA


def _call_fragment(number: int, call: Mapping[str, Any], arguments: str) -> ToolCallFragment:
    is_providers = bool(call.get("type"))
    return ToolCallFragment(
        number, as_text(call.get("toolUseId")), as_text(call.get("name")), arguments, runs_at_provider=is_providers
    )


def _reasoning(number: int, content: Mapping[str, Any]) -> Delta:
    """Decode reasoning, whole or a piece of it. It is stored only with what proves that the model wrote it."""
    text = as_text(content.get("text"))
    proofs = {"signature": as_text(content.get("signature")), REDACTED: as_text(content.get(REDACTED))}
    stored: dict[str, Any] = {name: value for name, value in {REASONING: text, **proofs}.items() if value}
    if not stored:
        return NO_DELTA
    position = {POSITION: number} if number else {}
    return Delta(reasoning=text, opaque=(OpaqueFragment(number, stored | position),))


def _stopped(event: Mapping[str, Any]) -> Delta:
    return Delta(finish=as_text(event.get("stopReason")) or None)


def _metadata(event: Mapping[str, Any]) -> Delta:
    return Delta(usage=_usage(event.get("usage")), done=True)


def _no_delta(_event: Mapping[str, Any]) -> Delta:
    return NO_DELTA


EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Delta]]] = MappingProxyType(
    {
        "contentBlockDelta": _block_continued,
        "contentBlockStart": _block_started,
        "contentBlockStop": _no_delta,
        "messageStart": _no_delta,
        "messageStop": _stopped,
        "metadata": _metadata,
        "initial-response": _no_delta,
    }
)


def _arguments(value: Any) -> str:
    if not value:
        return ""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as cause:
        raise malformed_reply("the reply has a tool call that is nested too deeply") from cause


def _usage(usage: Any) -> TokenCounts | None:
    """Return the token usage. The API's input tokens exclude those read from a cache or written to one."""
    if not isinstance(usage, dict):
        return None
    cached, written = usage.get("cacheReadInputTokens") or 0, usage.get("cacheWriteInputTokens") or 0
    read = sum_counts(usage.get("inputTokens") or 0, cached, written)
    return TokenCounts(read, usage.get("outputTokens") or 0, 0, cached, cache_write_tokens=written)


def _number(event: Mapping[str, Any]) -> int:
    number = event.get("contentBlockIndex")
    if type(number) is not int or number < 0:
        raise malformed_reply("the stream has a block without its number")
    return number
