"""Reads what the Responses API answers, whole and in events.

An answer is a list of items: reasoning, messages, function calls. A stream tells each item's pieces under its place in
that list, and the item once more when it is done, which is where reasoning is whole and its encryption is final.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from app.adapters.engines.openai.errors import parse_reply, reported_fault
from app.adapters.engines.wire.deltas import Delta, OpaqueFragment, ToolCallFragment
from app.adapters.engines.wire.faults import malformed_reply
from app.adapters.engines.wire.json_fields import (
    as_object,
    as_objects,
    as_text,
    as_token_count,
    check_nesting,
    first_token_count,
)
from app.adapters.engines.wire.usage import TokenCounts

CACHED: Final = ("input_tokens_details", "cached_tokens")
REASONED: Final = ("output_tokens_details", "reasoning_tokens")
BETWEEN_SUMMARIES: Final = "\n\n"
ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})


def whole(response: Mapping[str, Any]) -> Delta:
    """A reply in one piece."""
    items = list(enumerate(as_objects(response.get("output"))))
    messages = [item for _, item in items if item.get("type") == "message"]
    return _ending(response)._replace(
        text="".join(_texts(message) for message in messages),
        reasoning="".join(_reasoning(item) for _, item in items if item.get("type") == "reasoning"),
        calls=tuple(_call(item, place) for place, item in items if item.get("type") == "function_call"),
        refused=any(part.get("type") == "refusal" for item in messages for part in as_objects(item.get("content"))),
        opaque=tuple(piece for place, item in items for piece in _kept(item, place)),
    )


def _created(data: Mapping[str, Any]) -> Delta:
    return Delta(model=as_text(as_object(data.get("response")).get("model")))


def _text_delta(data: Mapping[str, Any]) -> Delta:
    return Delta(as_text(data.get("delta")))


def _thought_delta(data: Mapping[str, Any]) -> Delta:
    return Delta(reasoning=as_text(data.get("delta")))


def _summary_begun(data: Mapping[str, Any]) -> Delta:
    return Delta(reasoning=BETWEEN_SUMMARIES if data.get("summary_index") else "")


def _refused(_data: Mapping[str, Any]) -> Delta:
    return Delta(refused=True)


def _item_begun(data: Mapping[str, Any]) -> Delta:
    item = as_object(data.get("item"))
    if item.get("type") != "function_call":
        return Delta()
    return Delta(calls=(_call(item, _place(data)),))


def _arguments_delta(data: Mapping[str, Any]) -> Delta:
    return Delta(calls=(ToolCallFragment(_place(data), "", "", as_text(data.get("delta"))),))


def _item_done(data: Mapping[str, Any]) -> Delta:
    return Delta(opaque=tuple(_kept(as_object(data.get("item")), _place(data))))


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
    "response.output_item.added": _item_begun,
    "response.output_text.delta": _text_delta,
    "response.refusal.delta": _refused,
    "response.refusal.done": _refused,
    "response.reasoning_summary_part.added": _summary_begun,
    "response.reasoning_summary_text.delta": _thought_delta,
    "response.reasoning_text.delta": _thought_delta,
    "response.function_call_arguments.delta": _arguments_delta,
    "response.output_item.done": _item_done,
    "response.completed": _ended,
    "response.incomplete": _ended,
    "response.failed": _failed,
    "error": _error,
}


def event(data: bytes) -> Delta:
    """One event of a stream; what says nothing of the answer, or nothing new, is passed over. Raises: EngineFault."""
    told = parse_reply(data)
    kind = told.get("type")
    read = EVENTS.get(kind) if isinstance(kind, str) else None
    return read(told) if read else Delta()


def _ending(response: Mapping[str, Any]) -> Delta:
    """How an answer ended and what it used; one that still goes on has no ending."""
    if response.get("error"):
        raise reported_fault(response["error"])
    status = as_text(response.get("status"))
    details = as_object(response.get("incomplete_details") or {})
    return Delta(
        finish=as_text(details.get("reason")) or status if status in ENDED else None,
        usage=_usage(response.get("usage")),
        model=as_text(response.get("model")),
    )


def _usage(usage: Any) -> TokenCounts | None:
    if not isinstance(usage, dict):
        return None
    read, written = as_token_count(usage.get("input_tokens")), as_token_count(usage.get("output_tokens"))
    return TokenCounts(
        input_tokens=read,
        output_tokens=written,
        reasoning_tokens=first_token_count(usage, REASONED),
        cached_tokens=first_token_count(usage, CACHED),
        total_tokens=as_token_count(usage.get("total_tokens")) or read + written,
    )


def _texts(item: Mapping[str, Any]) -> str:
    """The text of a message."""
    parts = as_objects(item.get("content"))
    return "".join(as_text(part.get("text")) for part in parts if part.get("type") == "output_text")


def _reasoning(item: Mapping[str, Any]) -> str:
    """What was thought in the clear: summaries of it, or the thoughts themselves where the model is an open one."""
    summaries = BETWEEN_SUMMARIES.join(as_text(part.get("text")) for part in as_objects(item.get("summary")))
    return summaries + "".join(as_text(part.get("text")) for part in as_objects(item.get("content")))


def _call(item: Mapping[str, Any], place: int) -> ToolCallFragment:
    return ToolCallFragment(
        place, as_text(item.get("call_id")), as_text(item.get("name")), as_text(item.get("arguments"))
    )


def _place(data: Mapping[str, Any]) -> int:
    place = data.get("output_index")
    if type(place) is not int:
        raise malformed_reply("the stream tells of an item without its place")
    return place


def _kept(item: Mapping[str, Any], place: int) -> Iterator[OpaqueFragment]:
    """Reasoning that can be told again, and where texts and calls stood, unless at the beginning."""
    match item.get("type"):
        case "reasoning":
            sealed, content = as_text(item.get("encrypted_content")), as_objects(item.get("content"))
            thoughts = {"encrypted_content": sealed} if sealed else {"content": content} if content else None
            if thoughts:
                about = {
                    "type": "reasoning",
                    "id": as_text(item.get("id")),
                    "summary": as_objects(item.get("summary")),
                }
                yield OpaqueFragment(place, check_nesting(about | thoughts))
        case "message" if place or item.get("phase"):
            phase = {"phase": as_text(item["phase"])} if item.get("phase") else {}
            yield OpaqueFragment(place, {"type": "message", "characters": len(_texts(item)), **phase})
        case "function_call" if place:
            yield OpaqueFragment(place, {"type": "function_call", "call_id": as_text(item.get("call_id"))})
