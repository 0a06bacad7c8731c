"""Answers of the Messages API: a turn as one message."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.domain.contract.quote import Quote
from portico.domain.contract.response import NO_USAGE, TokenUsage
from portico.domain.ids import RequestId
from portico.entrypoints.http.client_apis.api import Shown
from portico.entrypoints.http.client_apis.extension import EXTENSION, extension_of, extension_of_quote
from portico.entrypoints.http.client_apis.ids import digits
from portico.entrypoints.http.client_apis.turn import ClientCallItem, FinishReason, Item, TextItem, Turn

STOP_REASONS: Final[Mapping[FinishReason, str]] = MappingProxyType(
    {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
)
Block = dict[str, Any]


def block_of(item: Item) -> Block | None:
    """Return the block of an item; None for one that is not shown: calls that ran here, and reasoning."""
    match item:
        case TextItem(text=text):
            return {"type": "text", "text": text}
        case ClientCallItem(id=call_id, name=name, arguments=arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        case _:
            return None


def usage_of(usage: TokenUsage) -> dict[str, int]:
    """Return the usage of the whole execution. The API's input tokens exclude those of a cache."""
    cached, written = usage.cached_tokens, usage.cache_write_tokens
    return {
        "input_tokens": max(usage.input_tokens - cached - written, 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output_tokens,
    }


def encode(turn: Turn, shown: Shown) -> bytes:
    """Return the `message` of a turn."""
    blocks = [block for item in turn.items if (block := block_of(item)) is not None]
    extension = {EXTENSION: extension_of(turn.response)} if shown.has_extension else {}
    ended = {"content": blocks, "stop_reason": STOP_REASONS[turn.finish], "usage": usage_of(turn.usage)}
    return orjson.dumps({**begun_message(turn.request_id, shown), **ended, **extension})


def encode_quote(quote: Quote, request_id: RequestId, shown: Shown) -> bytes:
    """Return the `message` of a request for bounds only."""
    ended = {"stop_reason": STOP_REASONS["stop"], EXTENSION: extension_of_quote(quote, request_id)}
    return orjson.dumps({**begun_message(request_id, shown), **ended})


def begun_message(request_id: RequestId, shown: Shown) -> Block:
    """Return the message before anything of it is known."""
    return {
        "id": f"msg_{digits(request_id)}",
        "type": "message",
        "role": "assistant",
        "model": shown.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_of(NO_USAGE),
    }
