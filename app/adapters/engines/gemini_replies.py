"""Reads what Gemini answers, whole and in chunks, which have one form.

A text or thought that is signed is kept as its part came; a call's signature stays with the call. Parts of the
provider's own tools, which are not asked for, are passed over.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from app.adapters.engines.counts import Counts
from app.adapters.engines.dialect import malformed
from app.adapters.engines.gemini_errors import reason_of, status_of
from app.adapters.engines.pieces import CallPiece, Delta, KeptPiece
from app.adapters.engines.values import count_of, list_of, loaded, mapping_of, text_of
from app.domain.effects import Reason
from app.ports import EngineFault

FINISHES: Final[Mapping[str, str | Reason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": Reason.CONTENT_FILTERED,
    "RECITATION": Reason.CONTENT_FILTERED,
    "LANGUAGE": Reason.CONTENT_FILTERED,
    "BLOCKLIST": Reason.CONTENT_FILTERED,
    "PROHIBITED_CONTENT": Reason.CONTENT_FILTERED,
    "SPII": Reason.CONTENT_FILTERED,
    "ESCALATION": Reason.CONTENT_FILTERED,
    "MODEL_ARMOR": Reason.CONTENT_FILTERED,
    "IMAGE_SAFETY": Reason.CONTENT_FILTERED,
    "IMAGE_PROHIBITED_CONTENT": Reason.CONTENT_FILTERED,
    "IMAGE_RECITATION": Reason.CONTENT_FILTERED,
    "MALFORMED_FUNCTION_CALL": Reason.MALFORMED,
    "MALFORMED_RESPONSE": Reason.MALFORMED,
    "UNEXPECTED_TOOL_CALL": Reason.MALFORMED,
    "TOO_MANY_TOOL_CALLS": Reason.MALFORMED,
    "MISSING_THOUGHT_SIGNATURE": Reason.REFUSED,
    "PUP_LIMITED_DISABLED": Reason.CREDENTIALS,
}
UNFINISHED: Final = frozenset({"", "FINISH_REASON_UNSPECIFIED"})


def whole(body: bytes) -> Delta:
    """A reply in one piece. Raises: EngineFault."""
    return _delta(_parsed(body), unfinished="")


def chunk(data: bytes) -> Delta:
    """One chunk of a stream. Raises: EngineFault."""
    return _delta(_parsed(data), unfinished=None)


def vectors(body: bytes) -> list[list[float]]:
    """The vectors of a batch. Raises: EngineFault."""
    return [_vector(mapping_of(embedding)) for embedding in list_of(_parsed(body).get("embeddings"))]


def tokens(body: bytes) -> int:
    """The number of tokens that were counted. Raises: EngineFault."""
    total = _parsed(body).get("totalTokens")
    if not isinstance(total, int) or total < 0:
        raise malformed("the reply holds no number of tokens")
    return total


def _parsed(data: bytes) -> dict[str, Any]:
    """The JSON object of a reply or chunk, which may be the only one of a list. Raises: EngineFault, also when it
    reports an error.
    """
    reply = loaded(data)
    reply = mapping_of(reply[0] if isinstance(reply, list) and len(reply) == 1 else reply)
    error = reply.get("error")
    if error:
        raise EngineFault(reason_of(status_of(error), error), "the provider reported an error in its reply")
    return reply


def _delta(reply: Mapping[str, Any], *, unfinished: str | None) -> Delta:
    """`unfinished` is the ending of a candidate that names none."""
    usage, model = _usage(reply.get("usageMetadata")), text_of(reply.get("modelVersion"))
    blocked = text_of(mapping_of(reply.get("promptFeedback") or {}).get("blockReason"))
    if blocked:
        return Delta(finish=blocked, refused=True, usage=usage, model=model)
    candidate = _first(list_of(reply.get("candidates")))
    if candidate is None:
        return Delta(usage=usage, model=model)
    content = mapping_of(candidate.get("content") or {})
    parts = [mapping_of(part) for part in list_of(content.get("parts"))]
    finish = text_of(candidate.get("finishReason"))
    return Delta(
        text="".join([text_of(part.get("text")) for part in parts if not part.get("thought")]),
        reasoning="".join([text_of(part.get("text")) for part in parts if part.get("thought")]),
        calls=tuple([_piece(part) for part in parts if "functionCall" in part]),
        finish=unfinished if finish in UNFINISHED else finish,
        usage=usage,
        model=model,
        kept=tuple([_kept(part) for part in parts if _is_kept(part)]),
    )


def _first(candidates: list[Any]) -> dict[str, Any] | None:
    """The only candidate we ask for; None where there is none or where it is another."""
    candidate = mapping_of(candidates[0]) if candidates else None
    return None if candidate is None or candidate.get("index") else candidate


def _piece(part: Mapping[str, Any]) -> CallPiece:
    call = mapping_of(part["functionCall"])
    name, call_id, arguments = text_of(call.get("name")), text_of(call.get("id")), call.get("args")
    if not name:
        raise malformed("the reply holds a tool call without a name")
    text = "{}" if arguments is None else orjson.dumps(arguments).decode()
    return CallPiece(None, call_id, name, text, text_of(part.get("thoughtSignature")), whole=True)


def _is_kept(part: Mapping[str, Any]) -> bool:
    """Whether it is a signed text; a signature may come alone, and its text is empty then."""
    return bool(part.get("thoughtSignature")) and ("text" in part or len(part) == 1)


def _kept(part: Mapping[str, Any]) -> KeptPiece:
    """A signed text or thought as a block of `part`, to be told again so. Chunks know no numbers of parts, so it has
    one by what it holds.
    """
    told = {"text": text_of(part.get("text")), "thoughtSignature": text_of(part["thoughtSignature"])}
    number = blake2b(orjson.dumps([*told.values(), bool(part.get("thought"))]), digest_size=8).digest()
    return KeptPiece(int.from_bytes(number), {"part": told | ({"thought": True} if part.get("thought") else {})})


def _usage(usage: Any) -> Counts | None:
    return _counted(usage) if isinstance(usage, dict) else None


def _counted(usage: Mapping[str, Any]) -> Counts:
    """What was used. Thoughts, and what the provider's own tools put in, are counted beside the rest."""
    read = count_of(usage.get("promptTokenCount")) + count_of(usage.get("toolUsePromptTokenCount"))
    thought = count_of(usage.get("thoughtsTokenCount"))
    written = count_of(usage.get("candidatesTokenCount")) + thought
    return Counts(
        input_tokens=read,
        output_tokens=written,
        reasoning_tokens=thought,
        cached_tokens=count_of(usage.get("cachedContentTokenCount")),
        total_tokens=count_of(usage.get("totalTokenCount")) or read + written,
    )


def counts(told: bytes) -> Counts:
    return _counted(mapping_of(loaded(told)))


def _vector(embedding: Mapping[str, Any]) -> list[float]:
    values = embedding.get("values")
    if not isinstance(values, list) or not all(type(value) in {int, float} for value in values):
        raise malformed("the reply holds something else where a vector belongs")
    return [float(value) for value in values]
