"""Decoder of the replies of Ollama, whole and in lines, which have one form. Calls come whole, often without ids."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from portico.adapters.engines.ollama.errors import UNKNOWN_STATUS, reported_fault
from portico.adapters.engines.wire.deltas import Delta, OpaqueFragment, ToolCallFragment
from portico.adapters.engines.wire.error_frames import unknown_frame
from portico.adapters.engines.wire.faults import malformed_reply
from portico.adapters.engines.wire.json_fields import as_object, as_text, parse_object
from portico.adapters.engines.wire.usage import TokenCounts
from portico.domain.model_call import AttemptFailureReason

FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = {
    "stop": "stop",
    "length": "length",
    "load": AttemptFailureReason.MALFORMED,
    "unload": AttemptFailureReason.MALFORMED,
}
"""The last two report that a model was loaded or unloaded, without an answer."""


def decode_reply(data: bytes) -> Delta:
    """Decode a whole reply or one line of a stream. Raises: EngineError."""
    reply = parse_object(data)
    if reply.get("error"):
        status = reply.get("StatusCode")
        raise reported_fault(reply["error"], status if isinstance(status, int) else UNKNOWN_STATUS)
    if "done" not in reply and not isinstance(reply.get("message"), dict):
        return unknown_frame(reply, reported_fault)
    message, model, done = _object(reply.get("message")), as_text(reply.get("model")), reply.get("done") is True
    text, calls = as_text(message.get("content")), message.get("tool_calls")
    reasoning = as_text(message["thinking"]) if "thinking" in message else ""
    delta = Delta(text, reasoning, () if calls is None else _calls(calls), model=model)
    if reasoning:
        delta = delta._replace(opaque=(OpaqueFragment(0, {"thinking": reasoning}),))
    if done:
        delta = delta._replace(finish=as_text(reply.get("done_reason")) or None, usage=_usage(reply), done=True)
    return delta


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
    return TokenCounts(reply.get("prompt_eval_count") or 0, reply.get("eval_count") or 0)


def _object(value: Any) -> dict[str, Any]:
    return {} if value is None else as_object(value)
