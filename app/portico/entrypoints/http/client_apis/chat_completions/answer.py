"""Answers of chat completions as one JSON object."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from portico.domain.contract.quote import Quote
from portico.domain.contract.response import NO_USAGE, TokenUsage
from portico.domain.ids import RequestId
from portico.entrypoints.http.client_apis.chat_completions.request import ChatShown
from portico.entrypoints.http.client_apis.extension import EXTENSION, extension_of, extension_of_quote
from portico.entrypoints.http.client_apis.ids import created_at, digits
from portico.entrypoints.http.client_apis.turn import ClientCallItem, FinishReason, Turn

BETWEEN_TURNS: Final = "\n\n"
"""What stands between the texts of two turns of the model."""


def encode(turn: Turn, shown: ChatShown) -> bytes:
    """Return the `chat.completion` of a turn."""
    text = BETWEEN_TURNS.join(turn.texts)
    calls = [whole_call(call) for call in turn.client_calls]
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
    if calls:
        message["tool_calls"] = calls
    body = _completion(turn.request_id, shown, message, turn.finish, turn.usage)
    if shown.has_extension:
        body[EXTENSION] = extension_of(turn.response)
    return orjson.dumps(body)


def encode_quote(quote: Quote, request_id: RequestId, shown: ChatShown) -> bytes:
    """Return the `chat.completion` of a request for bounds only."""
    message = {"role": "assistant", "content": "", "refusal": None}
    body = _completion(request_id, shown, message, "stop", NO_USAGE)
    return orjson.dumps({**body, EXTENSION: extension_of_quote(quote, request_id)})


def whole_call(call: ClientCallItem) -> Mapping[str, Any]:
    """Return a call as messages have it."""
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    return {"id": call.id, "type": "function", "function": function}


def completion_id(request_id: RequestId) -> str:
    """Return the id of a completion."""
    return f"chatcmpl-{digits(request_id)}"


def usage_of(usage: TokenUsage) -> Mapping[str, Any]:
    """Return the usage of the whole execution."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _completion(
    request_id: RequestId, shown: ChatShown, message: Mapping[str, Any], finish: FinishReason, usage: TokenUsage
) -> dict[str, Any]:
    return {
        "id": completion_id(request_id),
        "object": "chat.completion",
        "created": created_at(request_id),
        "model": shown.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": usage_of(usage),
    }
