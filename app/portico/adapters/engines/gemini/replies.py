"""Decoder of Gemini's replies, whole and in events, which have one form.

A signed text or thought is stored as its part came; a call's signature stays with the call. Parts of the provider's own
tools, which are not requested, are ignored.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from portico.adapters.engines.gemini.errors import reported_fault
from portico.adapters.engines.wire.deltas import Delta, OpaqueFragment, ToolCallFragment
from portico.adapters.engines.wire.error_frames import unknown_frame
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import as_list, as_object, as_text, parse_json
from portico.adapters.engines.wire.usage import TokenCounts, sum_counts
from portico.domain.model_call import AttemptFailureReason

FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": AttemptFailureReason.CONTENT_FILTERED,
    "RECITATION": AttemptFailureReason.CONTENT_FILTERED,
    "LANGUAGE": AttemptFailureReason.CONTENT_FILTERED,
    "BLOCKLIST": AttemptFailureReason.CONTENT_FILTERED,
    "PROHIBITED_CONTENT": AttemptFailureReason.CONTENT_FILTERED,
    "SPII": AttemptFailureReason.CONTENT_FILTERED,
    "ESCALATION": AttemptFailureReason.CONTENT_FILTERED,
    "MODEL_ARMOR": AttemptFailureReason.CONTENT_FILTERED,
    "IMAGE_SAFETY": AttemptFailureReason.CONTENT_FILTERED,
    "IMAGE_PROHIBITED_CONTENT": AttemptFailureReason.CONTENT_FILTERED,
    "IMAGE_RECITATION": AttemptFailureReason.CONTENT_FILTERED,
    "MALFORMED_FUNCTION_CALL": AttemptFailureReason.MALFORMED,
    "MALFORMED_RESPONSE": AttemptFailureReason.MALFORMED,
    "UNEXPECTED_TOOL_CALL": AttemptFailureReason.MALFORMED,
    "TOO_MANY_TOOL_CALLS": AttemptFailureReason.MALFORMED,
    "MISSING_THOUGHT_SIGNATURE": AttemptFailureReason.REFUSED,
    "PUP_LIMITED_DISABLED": AttemptFailureReason.CREDENTIALS,
}
KNOWN_MEMBERS: Final = frozenset({"candidates", "promptFeedback", "usageMetadata"})
UNFINISHED: Final = frozenset({"", "FINISH_REASON_UNSPECIFIED"})


def decode_reply(body: bytes) -> Delta:
    """Decode a whole reply. Raises: EngineError."""
    return _delta(_parsed(body), unfinished="")


def decode_event(data: bytes) -> Delta:
    """Decode one event of a stream. Raises: EngineError."""
    return _delta(_parsed(data), unfinished=None)


def _parsed(data: bytes) -> dict[str, Any]:
    """Parse the JSON object of a reply or event, which may be the only one of a list.

    Raises: EngineError, also when it reports an error.
    """
    reply = parse_json(data)
    reply = as_object(reply[0] if isinstance(reply, list) and len(reply) == 1 else reply)
    if reply.get("error"):
        raise reported_fault(reply["error"])
    return reply


def _delta(reply: Mapping[str, Any], *, unfinished: str | None) -> Delta:
    """Decode a reply; `unfinished` is the finish reason of a candidate that names none."""
    usage, model = reply.get("usageMetadata"), as_text(reply.get("modelVersion"))
    usage = _token_counts(usage) if isinstance(usage, dict) else None
    feedback = reply.get("promptFeedback")
    if feedback and (blocked := as_text(as_object(feedback).get("blockReason"))):
        return Delta(finish=blocked, refused=True, usage=usage, model=model)
    candidate = _first(as_list(reply.get("candidates")))
    if candidate is None:
        return (
            unknown_frame(reply, reported_fault) if KNOWN_MEMBERS.isdisjoint(reply) else Delta(usage=usage, model=model)
        )
    finish = as_text(candidate.get("finishReason"))
    text, reasoning = "", ""
    calls: list[ToolCallFragment] = []
    opaque: list[OpaqueFragment] = []
    for each in as_list(as_object(candidate.get("content") or {}).get("parts")):
        part = as_object(each)
        piece = as_text(part.get("text"))
        if part.get("thought"):
            reasoning += piece
        else:
            text += piece
        if "functionCall" in part:
            calls.append(_call_fragment(part))
        if part.get("thoughtSignature") and _is_signed_text(part):
            opaque.append(_opaque_fragment(part))
    finish_reason = unfinished if finish in UNFINISHED else finish
    delta = Delta(text, reasoning, tuple(calls), finish_reason, usage, model)
    return delta._replace(opaque=tuple(opaque)) if opaque else delta


def _first(candidates: list[Any]) -> dict[str, Any] | None:
    """Return the first candidate, the only one we request; None without it."""
    candidate = as_object(candidates[0]) if candidates else None
    return None if candidate is None or candidate.get("index") else candidate


def _call_fragment(part: Mapping[str, Any]) -> ToolCallFragment:
    call = as_object(part["functionCall"])
    name, call_id, arguments = as_text(call.get("name")), as_text(call.get("id")), call.get("args")
    if not name:
        raise malformed_reply("the reply has a tool call without a name")
    text = "{}" if arguments is None else orjson.dumps(arguments).decode()
    return ToolCallFragment(None, call_id, name, text, as_text(part.get("thoughtSignature")), is_complete=True)


def _is_signed_text(part: Mapping[str, Any]) -> bool:
    """Tell whether a signed part is a text; a signature may come alone, and its text is empty then."""
    return "text" in part or len(part) == 1


def _opaque_fragment(part: Mapping[str, Any]) -> OpaqueFragment:
    """Return a signed text or thought as a block of `part`. Its number comes from its content."""
    part_data = {"text": as_text(part.get("text")), "thoughtSignature": as_text(part["thoughtSignature"])}
    number = blake2b(orjson.dumps([*part_data.values(), bool(part.get("thought"))]), digest_size=8).digest()
    return OpaqueFragment(
        int.from_bytes(number), {"part": part_data | ({"thought": True} if part.get("thought") else {})}
    )


def _token_counts(usage: Mapping[str, Any]) -> TokenCounts:
    """Return the token usage. Thoughts, and the input of the provider's own tools, are counted beside the rest."""
    read, written = usage.get("promptTokenCount") or 0, usage.get("candidatesTokenCount") or 0
    if "toolUsePromptTokenCount" in usage:
        read = sum_counts(read, usage["toolUsePromptTokenCount"] or 0)
    reasoning = usage.get("thoughtsTokenCount") or 0
    if reasoning:
        written = sum_counts(written, reasoning)
    cached, total = usage.get("cachedContentTokenCount") or 0, usage.get("totalTokenCount") or 0
    return TokenCounts(read, written, reasoning, cached, total)
