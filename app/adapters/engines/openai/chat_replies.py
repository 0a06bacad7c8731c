"""Reads chat completions, whole and in chunks, as OpenAI and the many servers that follow it loosely send them.

Each tolerance here was seen in the wild: contents made of parts, calls without index or id, arguments that are an
object, reasoning under two names, usage in a server's own corner or with reasoning left out, errors with status 200.

What a server wants to be told again comes in four forms, and each is kept as a block of its own: the reasoning of
DeepSeek and those that name it alike, OpenRouter's details of it, and Google's signatures of a call or of the text.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

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

CACHED: Final = (("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",), ("num_cached_tokens",))
REASONED: Final = ("completion_tokens_details", "reasoning_tokens")
DETAIL_KINDS: Final = ("reasoning.text", "reasoning.summary", "reasoning.encrypted")
DETAIL_TEXTS: Final = frozenset({"text", "summary", "data", "signature"})
"""What of a detail goes on in its next piece; all else of it is the same in each."""


def whole(reply: Mapping[str, Any]) -> Delta:
    """A reply in one piece."""
    choice = _first_choice(reply)
    if choice is None:
        return Delta(usage=_usage(reply), model=as_text(reply.get("model")))
    return _delta(reply, as_object(choice.get("message")), finish=as_text(choice.get("finish_reason")))


def chunk(data: bytes) -> Delta:
    """One chunk of a stream. Raises: EngineFault."""
    reply = parse_reply(data)
    choice = _first_choice(reply)
    if choice is None:
        return Delta(usage=_usage(reply), model=as_text(reply.get("model")))
    finish = as_text(choice.get("finish_reason")) or None
    return _delta(reply, as_object(choice.get("delta") or {}), finish=finish, streamed=True)


def _first_choice(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """The only choice we ask for; None where there is none or where it is another."""
    choices = reply.get("choices")
    if not choices:
        return None
    if not isinstance(choices, list):
        raise malformed_reply("the reply's choices are not a list")
    choice = as_object(choices[0])
    if choice.get("error"):
        raise reported_fault(choice["error"])
    return None if choice.get("index") else choice


def _delta(
    reply: Mapping[str, Any], message: Mapping[str, Any], *, finish: str | None, streamed: bool = False
) -> Delta:
    content = message.get("content")
    text, thought = (content, "") if isinstance(content, str) else _from_parts(content)
    return Delta(
        text=text,
        reasoning=thought or as_text(message.get("reasoning_content")) or as_text(message.get("reasoning")),
        calls=_calls(message, streamed=streamed),
        finish=finish,
        usage=_usage(reply),
        model=as_text(reply.get("model")),
        refused=bool(message.get("refusal")),
        opaque=tuple(_kept(message)),
    )


def _from_parts(content: Any) -> tuple[str, str]:
    """Text and reasoning of a content that is missing, or a list of parts as Mistral sends it."""
    parts = as_objects(content)
    text = "".join(as_text(part.get("text")) for part in parts if part.get("type") == "text")
    return text, "".join(_thinking(part.get("thinking")) for part in parts if part.get("type") == "thinking")


def _thinking(value: Any) -> str:
    return (
        "".join(as_text(part.get("text")) for part in as_objects(value)) if isinstance(value, list) else as_text(value)
    )


def _calls(message: Mapping[str, Any], *, streamed: bool) -> tuple[ToolCallFragment, ...]:
    calls = message.get("tool_calls")
    if calls:
        return tuple(_pieces(as_objects(calls), streamed=streamed))
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and (legacy.get("name") or legacy.get("arguments")):
        return (_piece({"function": legacy}, 0),)
    return ()


def _pieces(calls: list[dict[str, Any]], *, streamed: bool) -> Iterator[ToolCallFragment]:
    """In a stream the server says which call a piece belongs to, or does not; in a whole reply each is one call."""
    for position, call in enumerate(calls):
        index = call.get("index") if streamed else position
        yield _piece(call, index if isinstance(index, int) else None)


def _piece(call: Mapping[str, Any], index: int | None) -> ToolCallFragment:
    function = as_object(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = orjson.dumps(check_nesting(arguments)).decode()
    signature = _signature(call.get("extra_content"))
    return ToolCallFragment(
        index, as_text(call.get("id")), as_text(function.get("name")), as_text(arguments), signature
    )


def _signature(extra: Any) -> str:
    """Google's signature of a call."""
    google = extra.get("google") if isinstance(extra, dict) else None
    return as_text(google.get("thought_signature")) if isinstance(google, dict) else ""


def _kept(message: Mapping[str, Any]) -> Iterator[OpaqueFragment]:
    """What is to be told again. Reasoning may be empty: who sends it that way misses it when it is not there."""
    thought = message.get("reasoning_content")
    if thought is not None:
        yield OpaqueFragment(0, {"reasoning_content": as_text(thought)})
    extra = message.get("extra_content")
    if extra:
        yield OpaqueFragment(1, {"extra_content": check_nesting(as_object(extra))})
    for place, detail in enumerate(as_objects(message.get("reasoning_details"))):
        yield _kept_detail(detail, place)


def _kept_detail(detail: Mapping[str, Any], place: int) -> OpaqueFragment:
    """A detail or the next piece of one: those of one kind and index belong together."""
    kind, index = detail.get("type"), detail.get("index")
    number = index if isinstance(index, int) else place
    rank = DETAIL_KINDS.index(kind) if kind in DETAIL_KINDS else len(DETAIL_KINDS)
    texts = {key: value for key, value in detail.items() if key in DETAIL_TEXTS and isinstance(value, str)}
    rest = {key: check_nesting(value) for key, value in detail.items() if key not in texts}
    return OpaqueFragment(2 + number * (len(DETAIL_KINDS) + 1) + rank, {"reasoning_detail": rest, **texts})


def _usage(reply: Mapping[str, Any]) -> TokenCounts | None:
    """What was used; Groq's streams tell it in a corner of their own.

    Some servers leave reasoning out of the completion; where the total says so, it is added.
    """
    usage = reply.get("usage")
    if not usage and isinstance(reply.get("x_groq"), dict):
        usage = reply["x_groq"].get("usage")
    if not isinstance(usage, dict):
        return None
    read, written = as_token_count(usage.get("prompt_tokens")), as_token_count(usage.get("completion_tokens"))
    thought, total = first_token_count(usage, REASONED), as_token_count(usage.get("total_tokens"))
    if thought and total == read + written + thought:
        written += thought
    return TokenCounts(
        input_tokens=read,
        output_tokens=written,
        reasoning_tokens=thought,
        cached_tokens=first_token_count(usage, *CACHED),
        total_tokens=total or read + written,
    )
