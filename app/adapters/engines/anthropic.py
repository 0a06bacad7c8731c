"""Anthropic's Messages API.

Content comes in numbered blocks. Thoughts are signed and kept as they came, with their number where it is not the
first; blocks of tools that the provider runs itself are passed over.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import orjson

from app.adapters.engines.anthropic_errors import UNNUMBERED, error_of, reason_of
from app.adapters.engines.anthropic_request import COUNTED, WORDS, asked
from app.adapters.engines.anthropic_turns import PLACE
from app.adapters.engines.counts import Counts
from app.adapters.engines.dialect import Encoded, malformed
from app.adapters.engines.pieces import CallPiece, Delta, KeptPiece
from app.adapters.engines.texts import TextPlace
from app.adapters.engines.values import loaded, mapping_of, text_of
from app.adapters.engines.withheld import unsaid, untold
from app.domain.effects import EngineCall, Reason
from app.ports import EngineFault, EngineProfile

VERSION: Final = "2023-06-01"
"""The one that follows it, 2026-10-21, refuses temperature and top_p for every model."""
FINISHES: Final[Mapping[str, str | Reason]] = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": Reason.CONTENT_FILTERED,
    }
)
"""`pause_turn` is none of them: what a tool of the provider's own has left unsaid shows by the word itself."""
SHORT_BYTES: Final = 96
"""Of the longest event that is remembered: most of these say no more than what kind they are."""
SIGNED: Final = ("thinking", "signature", "data")
"""Members of a thought that are text wherever they are."""


class Messages:
    """Implements `Dialect`."""

    base_url = "https://api.anthropic.com"
    probe = "/v1/models"
    finishes = FINISHES
    texts = TextPlace("text")

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> Encoded:
        body = asked(call, profile) | {"stream": stream}
        return Encoded("/v1/messages", body, (*unsaid(call, WORDS, body), *untold(call.messages, ("system",))))

    def encode_count(self, call: EngineCall, profile: EngineProfile) -> Encoded:
        """The request that asks how many tokens the call would be."""
        body = asked(call, profile)
        return Encoded("/v1/messages/count_tokens", {key: body[key] for key in body if key in COUNTED})

    def decode(self, body: bytes) -> Delta:
        reply = _parsed(body)
        content, finish = reply.get("content"), text_of(reply.get("stop_reason")) or None
        if not isinstance(content, list):
            raise malformed("the reply's content is not a list")
        blocks = [mapping_of(block) for block in content]
        if blocks and blocks[-1].get("type") == "tool_use" and FINISHES.get(finish or "") == "length":
            raise malformed("the reply was cut within a tool call")
        said = _joined([_block(number, block) for number, block in enumerate(blocks)])
        return said._replace(finish=finish, usage=_usage(reply), model=text_of(reply.get("model")))

    def decode_chunk(self, data: bytes) -> Delta:
        return _event(data) if len(data) > SHORT_BYTES else _short_event(data)

    def decode_count(self, body: bytes) -> int:
        """The tokens that were counted. Raises: EngineFault."""
        tokens = _parsed(body).get("input_tokens")
        if type(tokens) is not int or tokens < 0:
            raise malformed("the reply tells no count of tokens")
        return tokens

    def reason(self, status: int, body: bytes) -> Reason:
        return reason_of(status, error_of(body))


def _parsed(data: bytes) -> dict[str, Any]:
    """The JSON object of a reply or event. Raises: EngineFault, also when it reports an error."""
    reply = mapping_of(loaded(data))
    if reply.get("type") == "error" or reply.get("error"):
        reason = reason_of(UNNUMBERED, reply.get("error"))
        raise EngineFault(reason, "the provider reported an error in its reply")
    return reply


def _started(event: Mapping[str, Any]) -> Delta:
    message = mapping_of(event.get("message"))
    return Delta(usage=_usage(message), model=text_of(message.get("model")))


def _block_started(event: Mapping[str, Any]) -> Delta:
    return _block(_number(event), mapping_of(event.get("content_block")))


def _block(number: int, block: Mapping[str, Any]) -> Delta:
    """A block of content, whole or as it begins; a call that begins has no arguments yet.

    Any other block may be a tool that the provider runs itself, whose arguments then come as those of a call do.
    """
    match text_of(block.get("type")):
        case "text":
            return Delta(text=text_of(block.get("text")))
        case "tool_use":
            piece = CallPiece(
                number, text_of(block.get("id")), text_of(block.get("name")), _arguments(block.get("input"))
            )
            return Delta(calls=(piece,))
        case "thinking" | "redacted_thinking":
            return Delta(reasoning=text_of(block.get("thinking")), kept=(KeptPiece(number, _kept(block, number)),))
        case _:
            return Delta(calls=(CallPiece(number, "", "", "", elsewhere=True),))


def _kept(thought: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A thought as it will be told again: all its text, signed or sealed, and where it stood."""
    for member in SIGNED:
        text_of(thought.get(member))
    kept: dict[str, Any] = {key: value for key, value in thought.items() if isinstance(value, str)}
    return kept | {PLACE: number} if number else kept


def _block_went_on(event: Mapping[str, Any]) -> Delta:
    delta = mapping_of(event.get("delta"))
    match text_of(delta.get("type")):
        case "text_delta":
            return Delta(text=text_of(delta.get("text")))
        case "input_json_delta":
            return Delta(calls=(CallPiece(_number(event), "", "", text_of(delta.get("partial_json"))),))
        case "thinking_delta":
            thinking = text_of(delta.get("thinking"))
            return Delta(reasoning=thinking, kept=(KeptPiece(_number(event), {"thinking": thinking}),))
        case "signature_delta":
            return Delta(kept=(KeptPiece(_number(event), {"signature": text_of(delta.get("signature"))}),))
        case _:
            return Delta()


def _ended(event: Mapping[str, Any]) -> Delta:
    finish = text_of(mapping_of(event.get("delta")).get("stop_reason")) or None
    return Delta(finish=finish, unclosed=True, usage=_usage(event))


def _stopped(_event: Mapping[str, Any]) -> Delta:
    return Delta(done=True)


EVENTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Delta]]] = MappingProxyType(
    {
        "message_start": _started,
        "content_block_start": _block_started,
        "content_block_delta": _block_went_on,
        "message_delta": _ended,
        "message_stop": _stopped,
    }
)


def _event(data: bytes) -> Delta:
    event = _parsed(data)
    read = EVENTS.get(text_of(event.get("type")))
    return read(event) if read else Delta()


@lru_cache(256)
def _short_event(data: bytes) -> Delta:
    return _event(data)


def _joined(deltas: Iterable[Delta]) -> Delta:
    parts = tuple(deltas)
    return Delta(
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts),
        calls=tuple(piece for part in parts for piece in part.calls),
        kept=tuple(piece for part in parts for piece in part.kept),
    )


def _arguments(value: Any) -> str:
    if not value:
        return ""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as cause:
        raise malformed("the reply holds a tool call that is nested too deeply") from cause


def _usage(holder: Mapping[str, Any]) -> Counts | None:
    """What was used. Here input excludes what was read from a cache or written to one."""
    usage = holder.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("output_tokens_details")
    cached = _count(usage.get("cache_read_input_tokens"))
    read = _count(usage.get("input_tokens")) + cached + _count(usage.get("cache_creation_input_tokens"))
    written = _count(usage.get("output_tokens"))
    thought = _count(details.get("thinking_tokens")) if isinstance(details, dict) else 0
    return Counts(read, written, thought, cached, read + written)


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


def _number(event: Mapping[str, Any]) -> int:
    number = event.get("index")
    if type(number) is not int or number < 0:
        raise malformed("the stream holds a block without its number")
    return number
