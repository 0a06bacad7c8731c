"""Decoder of the replies of Anthropic's Messages API, whole and in events.

Content comes in numbered blocks. Thoughts are signed and stored as they came, with their number unless it is the first;
blocks of tools that the provider runs itself are ignored.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.anthropic.errors import reported_fault
from portico.adapters.engines.anthropic.turns import POSITION
from portico.adapters.engines.wire.deltas import NO_DELTA, Delta, OpaqueFragment, ToolCallFragment
from portico.adapters.engines.wire.error_frames import unknown_frame
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import as_object, as_text, detail, parse_object
from portico.adapters.engines.wire.usage import TokenCounts, sum_counts
from portico.domain.model_call import AttemptFailureReason

FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": AttemptFailureReason.CONTENT_FILTERED,
    }
)
"""`pause_turn` is missing on purpose: the word itself shows that a tool of the provider has not finished."""
THOUGHT_TEXTS: Final = ("thinking", "signature", "data")
"""The members of a thought that are text wherever they are present."""


def decode_reply(body: bytes) -> Delta:
    """Decode a whole reply. Raises: EngineError."""
    reply = parse_object(body)
    if reply.get("type") == "error" or reply.get("error"):
        raise reported_fault(reply.get("error"))
    content, finish = reply.get("content"), as_text(reply.get("stop_reason")) or None
    if not isinstance(content, list):
        raise malformed_reply("the reply's content is not a list")
    blocks = [as_object(block) for block in content]
    if blocks and blocks[-1].get("type") == "tool_use" and FINISH_REASONS.get(finish or "") == "length":
        raise malformed_reply("the reply was cut within a tool call")
    joined = _joined([_block(number, block) for number, block in enumerate(blocks)])
    return joined._replace(finish=finish, usage=_usage(reply), model=as_text(reply.get("model")))


def decode_event(data: bytes) -> Delta:
    """Decode one event of a stream; events that add nothing to the answer are ignored. Raises: EngineError."""
    event = parse_object(data)
    kind = event.get("type")
    if kind == "error" or event.get("error"):
        raise reported_fault(event.get("error"))
    decode = EVENTS.get(as_text(kind))
    return decode(event) if decode else unknown_frame(event, reported_fault)


def _message_started(event: Mapping[str, Any]) -> Delta:
    message = as_object(event.get("message"))
    return Delta(usage=_usage(message), model=as_text(message.get("model")))


def _block_started(event: Mapping[str, Any]) -> Delta:
    return _block(_number(event), as_object(event.get("content_block")))


def _block(number: int, block: Mapping[str, Any]) -> Delta:
    """Decode a block of content, whole or as it begins; a call that begins has no arguments yet.

    Any other block may be a tool that the provider runs itself, whose arguments follow as those of a call do.
    """
    match as_text(block.get("type")):
        case "text":
            return Delta(text=as_text(block.get("text")))
        case "tool_use":
            piece = ToolCallFragment(
                number, as_text(block.get("id")), as_text(block.get("name")), _arguments(block.get("input"))
            )
            return Delta(calls=(piece,))
        case "thinking" | "redacted_thinking":
            return Delta(
                reasoning=as_text(block.get("thinking")),
                opaque=(OpaqueFragment(number, _opaque_thought(block, number)),),
            )
        case _:
            return Delta(calls=(ToolCallFragment(number, "", "", "", runs_at_provider=True),))


def _opaque_thought(thought: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a thought in the form in which it is sent back: its text, its signature, and its position."""
    for member in THOUGHT_TEXTS:
        as_text(thought.get(member))
    thought_data: dict[str, Any] = {key: value for key, value in thought.items() if isinstance(value, str)}
    return thought_data | {POSITION: number} if number else thought_data


def _block_continued(event: Mapping[str, Any]) -> Delta:
    delta = as_object(event.get("delta"))
    match delta.get("type"):
        case "text_delta":
            return Delta(as_text(delta.get("text")))
        case "input_json_delta":
            return Delta(calls=(ToolCallFragment(_number(event), "", "", as_text(delta.get("partial_json"))),))
        case "thinking_delta":
            thinking = as_text(delta.get("thinking"))
            return Delta(reasoning=thinking, opaque=(OpaqueFragment(_number(event), {"thinking": thinking}),))
        case "signature_delta":
            return Delta(opaque=(OpaqueFragment(_number(event), {"signature": as_text(delta.get("signature"))}),))
        case _:
            return Delta()


def _message_delta(event: Mapping[str, Any]) -> Delta:
    finish = as_text(as_object(event.get("delta")).get("stop_reason")) or None
    return Delta(finish=finish, needs_done=True, usage=_usage(event))


def _message_stopped(_event: Mapping[str, Any]) -> Delta:
    return Delta(done=True)


def _no_delta(_event: Mapping[str, Any]) -> Delta:
    return NO_DELTA


EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Delta]]] = {
    "message_start": _message_started,
    "content_block_start": _block_started,
    "content_block_delta": _block_continued,
    "message_delta": _message_delta,
    "message_stop": _message_stopped,
    "content_block_stop": _no_delta,
    "ping": _no_delta,
}


def _joined(deltas: Iterable[Delta]) -> Delta:
    parts = tuple(deltas)
    return Delta(
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts),
        calls=tuple(piece for part in parts for piece in part.calls),
        opaque=tuple(piece for part in parts for piece in part.opaque),
    )


def _arguments(value: Any) -> str:
    if not value:
        return ""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as cause:
        raise malformed_reply("the reply has a tool call that is nested too deeply") from cause


def _usage(holder: Mapping[str, Any]) -> TokenCounts | None:
    """Return the token usage. The API's input tokens exclude those read from a cache or written to one."""
    usage = holder.get("usage")
    if not isinstance(usage, dict):
        return None
    cached = usage.get("cache_read_input_tokens") or 0
    cache_written = usage.get("cache_creation_input_tokens") or 0
    read = sum_counts(usage.get("input_tokens") or 0, cached, cache_written)
    thought = detail(usage, "output_tokens_details", "thinking_tokens")
    return TokenCounts(read, usage.get("output_tokens") or 0, thought, cached, cache_write_tokens=cache_written)


def _number(event: Mapping[str, Any]) -> int:
    number = event.get("index")
    if type(number) is not int or number < 0:
        raise malformed_reply("the stream has a block without its number")
    return number
