"""Decoder of chat completions, whole and in events, from OpenAI and the many servers that follow it loosely.

Each tolerance was seen in practice: contents made of parts, calls without index or id, arguments that are an object,
reasoning under two names, usage in a vendor's own member or without reasoning, errors with status 200.

Data that has to be sent back comes in four forms, each stored as a block of its own: the reasoning of DeepSeek and
servers that name it alike, OpenRouter's reasoning details, and Google's signatures of a call or of the text.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from portico.adapters.engines.openai.errors import parse_reply, reported_fault
from portico.adapters.engines.wire.deltas import Delta, OpaqueFragment, ToolCallFragment
from portico.adapters.engines.wire.error_frames import unknown_frame
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import (
    as_object,
    as_objects,
    as_text,
    check_nesting,
    detail,
    parse_object,
)
from portico.adapters.engines.wire.usage import TokenCounts, sum_counts

END_MARKER: Final = b"[DONE]"
TEXT_MEMBERS: Final = frozenset({"role", "content"})
"""The members of a message that adds a text and nothing else, as most messages of a stream do."""
DETAIL_KINDS: Final = ("reasoning.text", "reasoning.summary", "reasoning.encrypted")
DETAIL_TEXTS: Final = frozenset({"text", "summary", "data", "signature"})
"""The members of a detail that continue in its next fragment; the others are the same in each."""


def decode_reply(body: bytes) -> Delta:
    """Decode a whole reply. Raises: EngineError."""
    reply = parse_reply(body)
    choice = _first_choice(reply)
    if choice is None:
        return _without_choice(reply)
    return _delta(reply, as_object(choice.get("message")), finish=as_text(choice.get("finish_reason")))


def decode_event(data: bytes) -> Delta:
    """Decode one event of a stream. Raises: EngineError."""
    if data == END_MARKER:
        return Delta(done=True)
    reply = parse_object(data)
    if reply.get("error"):
        raise reported_fault(reply["error"])
    match reply:
        case {
            "model": str(model),
            "choices": [{"index": 0, "delta": {"content": str(text)} as message, "finish_reason": None} as choice],
        } if (
            TEXT_MEMBERS.issuperset(message)
            and "error" not in choice
            and "x_groq" not in reply
            and reply.get("usage") is None
        ):  # most events add a text and nothing else
            return Delta(text, model=model)
    choice = _first_choice(reply)
    if choice is None:
        return _without_choice(reply)
    finish, message = choice.get("finish_reason"), choice.get("delta") or {}
    return _delta(reply, as_object(message), finish=as_text(finish) or None if finish else None, streamed=True)


def _first_choice(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the first choice, the only one we request; None without it."""
    choices = reply.get("choices")
    if not choices:
        return None
    if not isinstance(choices, list):
        raise malformed_reply("the reply's choices are not a list")
    choice = as_object(choices[0])
    if choice.get("error"):
        raise reported_fault(choice["error"])
    return None if choice.get("index") else choice


def _without_choice(reply: Mapping[str, Any]) -> Delta:
    """Decode a reply that has another choice than the first one, or none, as one that reports usage does."""
    usage = _usage(reply)
    if not reply.get("choices"):
        unknown = unknown_frame(reply, reported_fault)
        if usage is None and "choices" not in reply:
            return unknown
    return Delta(usage=usage, model=as_text(reply.get("model")))


def _delta(
    reply: Mapping[str, Any], message: Mapping[str, Any], *, finish: str | None, streamed: bool = False
) -> Delta:
    content = message.get("content")
    text, reasoning = (content or "", "") if isinstance(content, str | None) else _from_parts(content)
    usage, model = _usage(reply), as_text(reply.get("model"))
    if TEXT_MEMBERS.issuperset(message):
        return Delta(text, reasoning, (), finish, usage, model)
    return Delta(
        text=text,
        reasoning=reasoning or as_text(message.get("reasoning_content")) or as_text(message.get("reasoning")),
        calls=_calls(message, streamed=streamed),
        finish=finish,
        usage=usage,
        model=model,
        refused=bool(message.get("refusal")),
        opaque=tuple(_opaque_fragments(message)),
    )


def _from_parts(content: Any) -> tuple[str, str]:
    """Return text and reasoning of a content that is a list of parts, as Mistral sends it."""
    parts = as_objects(content)
    text = "".join(as_text(part.get("text")) for part in parts if part.get("type") == "text")
    return text, "".join(_thinking_text(part.get("thinking")) for part in parts if part.get("type") == "thinking")


def _thinking_text(value: Any) -> str:
    return (
        "".join(as_text(part.get("text")) for part in as_objects(value)) if isinstance(value, list) else as_text(value)
    )


def _calls(message: Mapping[str, Any], *, streamed: bool) -> tuple[ToolCallFragment, ...]:
    calls = message.get("tool_calls")
    if calls:
        return tuple(_call_fragments(as_objects(calls), streamed=streamed))
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and (legacy.get("name") or legacy.get("arguments")):
        return (_call_fragment({"function": legacy}, 0),)
    return ()


def _call_fragments(calls: list[dict[str, Any]], *, streamed: bool) -> Iterator[ToolCallFragment]:
    """Yield the fragments of calls; in a stream the server may name the call that each continues."""
    for position, call in enumerate(calls):
        index = call.get("index") if streamed else position
        yield _call_fragment(call, index if isinstance(index, int) else None)


def _call_fragment(call: Mapping[str, Any], index: int | None) -> ToolCallFragment:
    function = as_object(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = orjson.dumps(check_nesting(arguments)).decode()
    signature = ""
    match call:
        case {"extra_content": {"google": {"thought_signature": google_signature}}}:
            signature = as_text(google_signature)
    return ToolCallFragment(
        index, as_text(call.get("id")), as_text(function.get("name")), as_text(arguments), signature
    )


def _opaque_fragments(message: Mapping[str, Any]) -> Iterator[OpaqueFragment]:
    """Yield the data to send back. Empty reasoning counts: a server that sends it requires it."""
    reasoning = message.get("reasoning_content")
    if reasoning is not None:
        yield OpaqueFragment(0, {"reasoning_content": as_text(reasoning)})
    extra = message.get("extra_content")
    if extra:
        yield OpaqueFragment(1, {"extra_content": check_nesting(as_object(extra))})
    details = message.get("reasoning_details")
    if details is not None:
        for place, fragment in enumerate(as_objects(details)):
            yield _reasoning_detail(fragment, place)


def _reasoning_detail(detail: Mapping[str, Any], place: int) -> OpaqueFragment:
    """Return a detail or the next fragment of one: those of one kind and index belong together."""
    kind, index = detail.get("type"), detail.get("index")
    number = index if isinstance(index, int) else place
    rank = DETAIL_KINDS.index(kind) if kind in DETAIL_KINDS else len(DETAIL_KINDS)
    texts = {key: value for key, value in detail.items() if key in DETAIL_TEXTS and isinstance(value, str)}
    rest = {key: check_nesting(value) for key, value in detail.items() if key not in texts}
    return OpaqueFragment(2 + number * (len(DETAIL_KINDS) + 1) + rank, {"reasoning_detail": rest, **texts})


def _usage(reply: Mapping[str, Any]) -> TokenCounts | None:
    """Return the token usage; Groq's streams report it in a member of their own.

    Some servers leave reasoning out of the completion tokens; where the total shows it, it is added.
    """
    usage = reply.get("usage")
    if not usage and isinstance(reply.get("x_groq"), dict):
        usage = reply["x_groq"].get("usage")
    return _token_counts(usage) if isinstance(usage, dict) else None


def _token_counts(usage: Mapping[str, Any]) -> TokenCounts:
    read, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    reasoning = cached = cache_written = 0
    if usage.get("completion_tokens_details"):
        reasoning = detail(usage, "completion_tokens_details", "reasoning_tokens")
    if usage.get("prompt_tokens_details"):
        cached = detail(usage, "prompt_tokens_details", "cached_tokens")
        cache_written = detail(usage, "prompt_tokens_details", "cache_write_tokens")
    total = usage.get("total_tokens") or 0
    if reasoning and total == sum_counts(read, written, reasoning):
        written += reasoning
    cached = cached or usage.get("prompt_cache_hit_tokens") or usage.get("num_cached_tokens") or 0
    return TokenCounts(read, written, reasoning, cached, total, cache_written)
