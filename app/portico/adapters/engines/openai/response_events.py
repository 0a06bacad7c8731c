"""Decoder of the Responses API's answers, whole and in events.

An answer is a list of items: reasoning, messages, function calls. A stream sends the fragments of each item with its
position in that list, and the whole item once more when it is done: only then is its encrypted reasoning final.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from portico.adapters.engines.openai.errors import parse_reply, reported_fault
from portico.adapters.engines.wire.deltas import NO_DELTA, Delta, OpaqueFragment, ToolCallFragment
from portico.adapters.engines.wire.error_frames import unknown_frame
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import (
    as_object,
    as_objects,
    as_text,
    check_nesting,
    detail,
)
from portico.adapters.engines.wire.usage import TokenCounts

CHAT_END_MARKER: Final = b"[DONE]"
SUMMARY_SEPARATOR: Final = "\n\n"
FINAL_STATUSES = frozenset({"completed", "incomplete", "failed", "cancelled"})


def decode_reply(body: bytes) -> Delta:
    """Decode a whole reply. Raises: EngineError."""
    response = parse_reply(body)
    items = list(enumerate(as_objects(response.get("output"))))
    messages = [item for _, item in items if item.get("type") == "message"]
    return _ending(response)._replace(
        text="".join(_message_text(message) for message in messages),
        reasoning="".join(_reasoning(item) for _, item in items if item.get("type") == "reasoning"),
        calls=tuple(_call(item, position) for position, item in items if item.get("type") == "function_call"),
        refused=any(part.get("type") == "refusal" for item in messages for part in as_objects(item.get("content"))),
        opaque=tuple(piece for position, item in items for piece in _opaque_fragments(item, position)),
    )


def _created(data: Mapping[str, Any]) -> Delta:
    return Delta(model=as_text(as_object(data.get("response")).get("model")))


def _text_delta(data: Mapping[str, Any]) -> Delta:
    return Delta(as_text(data.get("delta")))


def _reasoning_delta(data: Mapping[str, Any]) -> Delta:
    return Delta(reasoning=as_text(data.get("delta")))


def _summary_added(data: Mapping[str, Any]) -> Delta:
    return Delta(reasoning=SUMMARY_SEPARATOR if data.get("summary_index") else "")


def _refused(_data: Mapping[str, Any]) -> Delta:
    return Delta(refused=True)


def _item_added(data: Mapping[str, Any]) -> Delta:
    item = as_object(data.get("item"))
    if item.get("type") != "function_call":
        return Delta()
    return Delta(calls=(_call(item, _position(data)),))


def _arguments_delta(data: Mapping[str, Any]) -> Delta:
    return Delta(calls=(ToolCallFragment(_position(data), "", "", as_text(data.get("delta"))),))


def _item_done(data: Mapping[str, Any]) -> Delta:
    return Delta(opaque=tuple(_opaque_fragments(as_object(data.get("item")), _position(data))))


def _ended(data: Mapping[str, Any]) -> Delta:
    ending = _ending(as_object(data.get("response")))
    if ending.finish is None:
        raise malformed_reply("the stream ends without saying how")
    return ending._replace(done=True)


def _failed(data: Mapping[str, Any]) -> Delta:
    raise reported_fault(as_object(data.get("response")).get("error"))


def _error(data: Mapping[str, Any]) -> Delta:
    raise reported_fault(data)


EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Delta]]] = {
    "response.created": _created,
    "response.output_item.added": _item_added,
    "response.output_text.delta": _text_delta,
    "response.refusal.delta": _refused,
    "response.refusal.done": _refused,
    "response.reasoning_summary_part.added": _summary_added,
    "response.reasoning_summary_text.delta": _reasoning_delta,
    "response.reasoning_text.delta": _reasoning_delta,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.output_item.done": _item_done,
    "response.completed": _ended,
    "response.incomplete": _ended,
    "response.failed": _failed,
    "error": _error,
}


def decode_event(data: bytes) -> Delta:
    """Decode one event of a stream; events that add nothing to the answer are ignored. Raises: EngineError.

    Some servers add the end marker of chat completions, which completes nothing here.
    """
    if data == CHAT_END_MARKER:
        return NO_DELTA
    event = parse_reply(data)
    kind = event.get("type")
    if not isinstance(kind, str):
        return unknown_frame(event, reported_fault)
    decode = EVENTS.get(kind)
    if decode is not None:
        return decode(event)
    return NO_DELTA if kind.startswith("response.") else unknown_frame(event, reported_fault)


def _ending(response: Mapping[str, Any]) -> Delta:
    """Return the finish reason and usage of an answer; an answer in progress has no finish reason."""
    if response.get("error"):
        raise reported_fault(response["error"])
    status = as_text(response.get("status"))
    details = as_object(response.get("incomplete_details") or {})
    return Delta(
        finish=as_text(details.get("reason")) or status if status in FINAL_STATUSES else None,
        usage=_usage(response.get("usage")),
        model=as_text(response.get("model")),
    )


def _usage(usage: Any) -> TokenCounts | None:
    if not isinstance(usage, dict):
        return None
    return TokenCounts(
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
        reasoning_tokens=detail(usage, "output_tokens_details", "reasoning_tokens"),
        cached_tokens=detail(usage, "input_tokens_details", "cached_tokens"),
        total_tokens=usage.get("total_tokens") or 0,
        cache_write_tokens=detail(usage, "input_tokens_details", "cache_write_tokens"),
    )


def _message_text(item: Mapping[str, Any]) -> str:
    """Return the text of a message."""
    parts = as_objects(item.get("content"))
    return "".join(as_text(part.get("text")) for part in parts if part.get("type") == "output_text")


def _reasoning(item: Mapping[str, Any]) -> str:
    """Return readable reasoning: its summaries, or the reasoning itself of an open model."""
    summaries = SUMMARY_SEPARATOR.join(as_text(part.get("text")) for part in as_objects(item.get("summary")))
    return summaries + "".join(as_text(part.get("text")) for part in as_objects(item.get("content")))


def _call(item: Mapping[str, Any], position: int) -> ToolCallFragment:
    return ToolCallFragment(
        position, as_text(item.get("call_id")), as_text(item.get("name")), as_text(item.get("arguments"))
    )


def _position(data: Mapping[str, Any]) -> int:
    position = data.get("output_index")
    if type(position) is not int:
        raise malformed_reply("the stream has an item without its position")
    return position


def _opaque_fragments(item: Mapping[str, Any], position: int) -> Iterator[OpaqueFragment]:
    """Yield reasoning that can be sent back, and the positions of texts and calls after the first item."""
    match item.get("type"):
        case "reasoning":
            encrypted, content = as_text(item.get("encrypted_content")), as_objects(item.get("content"))
            reasoning = {"encrypted_content": encrypted} if encrypted else {"content": content} if content else None
            if reasoning:
                about = {
                    "type": "reasoning",
                    "id": as_text(item.get("id")),
                    "summary": as_objects(item.get("summary")),
                }
                yield OpaqueFragment(position, check_nesting(about | reasoning))
        case "message" if position or item.get("phase"):
            phase = {"phase": as_text(item["phase"])} if item.get("phase") else {}
            yield OpaqueFragment(position, {"type": "message", "characters": len(_message_text(item)), **phase})
        case "function_call" if position:
            yield OpaqueFragment(position, {"type": "function_call", "call_id": as_text(item.get("call_id"))})
