"""Decoder of the replies of Ollama, whole and in lines, which have one form. Calls come whole, often without ids."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.adapters.engines.ollama.errors import UNKNOWN_STATUS, reason_of
from app.adapters.engines.wire.deltas import Delta, OpaqueFragment, ToolCallFragment
from app.adapters.engines.wire.faults import malformed_reply
from app.adapters.engines.wire.json_fields import as_object, as_text, as_token_count, parse_json
from app.adapters.engines.wire.usage import TokenCounts
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError

FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = {
    "stop": "stop",
    "length": "length",
    "load": AttemptFailureReason.MALFORMED,
    "unload": AttemptFailureReason.MALFORMED,
}
"""The last two report that a model was loaded or unloaded, without an answer."""


def decode_reply(data: bytes) -> Delta:
    """Decode a whole reply or one line of a stream. Raises: EngineError."""
    reply = _parsed(data)
    message = _object(reply.get("message"))
    reasoning, calls = as_text(message.get("thinking")), message.get("tool_calls")
    done = reply.get("done") is True
    return Delta(
        text=as_text(message.get("content")),
        reasoning=reasoning,
        calls=() if calls is None else _calls(calls),
        finish=as_text(reply.get("done_reason")) or None if done else None,
        usage=_usage(reply),
        model=as_text(reply.get("model")),
        done=done,
        opaque=(OpaqueFragment(0, {"thinking": reasoning}),) if reasoning else (),
    )


def _parsed(data: bytes) -> dict[str, Any]:
    """Parse the JSON object of a reply or line. Raises: EngineError, also when it reports an error."""
    reply = _object(parse_json(data))
    if reply.get("error"):
        status = reply.get("StatusCode")
        reason = reason_of(status if isinstance(status, int) else UNKNOWN_STATUS, reply["error"])
        raise EngineError(reason, "the provider reported an error in its reply")
    return reply


def _calls(calls: Any) -> tuple[ToolCallFragment, ...]:
    if not isinstance(calls, list):
        raise malformed_reply("the reply's tool calls are not a list")
    return tuple(_call_fragment(_object(call)) for call in calls)


def _call_fragment(call: Mapping[str, Any]) -> ToolCallFragment:
    function = _object(call.get("function"))
    arguments = orjson.dumps(_object(function.get("arguments"))).decode()
    return ToolCallFragment(None, as_text(call.get("id")), as_text(function.get("name")), arguments, is_complete=True)


def _usage(reply: Mapping[str, Any]) -> TokenCounts | None:
    """Return the usage, which comes with the end. The server leaves out a count of zero."""
    if "prompt_eval_count" not in reply and "eval_count" not in reply:
        return None
    read, written = as_token_count(reply.get("prompt_eval_count")), as_token_count(reply.get("eval_count"))
    return TokenCounts(input_tokens=read, output_tokens=written, total_tokens=read + written)


def _object(value: Any) -> dict[str, Any]:
    return {} if value is None else as_object(value)
