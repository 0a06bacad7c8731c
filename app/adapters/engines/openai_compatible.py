"""The chat completions dialect, as OpenAI and the many servers that follow it speak it.

Servers differ where OpenAI is silent, and each tolerance here was seen in the wild: contents made of parts, calls
without index or id, arguments that are an object, reasoning under two names, usage in a server's own corner, errors
with status 200. What differs in a request is one name only: OpenAI's own models know `max_completion_tokens`, and
the reasoning ones refuse `max_tokens`, which is what every other server knows; the model's name decides.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from app.adapters.engines.dialect import CallPiece, Delta, Encoded, loads, malformed
from app.adapters.engines.openai_errors import error_of, reason_of, status_of
from app.domain.boundary import ExecutionHints, NamedTool, TokenUsage
from app.domain.effects import EngineCall, Reason
from app.domain.messages import ImagePart, Message, Part, ToolCall
from app.domain.tools import ToolDefinition
from app.ports import EngineFault, EngineProfile

OWN_MODEL = re.compile(r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d)")
DONE = b"[DONE]"
FINISHES: Final[Mapping[str, str | Reason]] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": Reason.CONTENT_FILTERED,
    "error": Reason.SERVER_ERROR,
    "insufficient_system_resource": Reason.OVERLOADED,
}
CACHED: Final = (("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",), ("num_cached_tokens",))
REASONED: Final = (("completion_tokens_details", "reasoning_tokens"),)


class ChatCompletions:
    """Implements `Dialect`."""

    base_url = "https://api.openai.com/v1"
    probe = "/models"
    finishes = FINISHES

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> Encoded:
        hints = call.hints
        body: dict[str, Any] = {key: value for key, value in hints.options.items() if key in profile.options}
        body |= {"model": profile.model, "messages": [_message(message) for message in call.messages]}
        body |= _sampling(hints, profile.model)
        if call.tools:
            body["tools"] = [_tool(tool) for tool in call.tools]
            body |= _choice(hints)
        body["stream"] = stream
        if stream:
            body["stream_options"] = {"include_usage": True}
        return Encoded("/chat/completions", body)

    def decode(self, body: bytes) -> Delta:
        reply = _parsed(body)
        choice = _first_choice(reply)
        if choice is None:
            return Delta(usage=_usage(reply), model=_text(reply.get("model")))
        return _delta(reply, _mapping(choice.get("message")), finish=_text(choice.get("finish_reason")))

    def decode_chunk(self, data: bytes) -> Delta:
        if data == DONE:
            return Delta(done=True)
        chunk = _parsed(data)
        choice = _first_choice(chunk)
        if choice is None:
            return Delta(usage=_usage(chunk), model=_text(chunk.get("model")))
        finish = _text(choice.get("finish_reason")) or None
        return _delta(chunk, _mapping(choice.get("delta") or {}), finish=finish, streamed=True)

    def reason(self, status: int, body: bytes) -> Reason:
        return reason_of(status, error_of(body))


def _sampling(hints: ExecutionHints, model: str) -> dict[str, Any]:
    most = "max_completion_tokens" if OWN_MODEL.match(model) else "max_tokens"
    asked = {
        "temperature": hints.temperature,
        "top_p": hints.top_p,
        "stop": hints.stop,
        "seed": hints.seed,
        most: hints.max_tokens,
    }
    return {key: value for key, value in asked.items() if value is not None}


def _choice(hints: ExecutionHints) -> dict[str, Any]:
    choice = hints.tool_choice
    if isinstance(choice, NamedTool):
        return {"tool_choice": {"type": "function", "function": {"name": choice.name}}}
    return {"tool_choice": choice} if choice else {}


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _message(message: Message) -> dict[str, Any]:
    content = message.content
    body: dict[str, Any] = {
        "role": message.role,
        "content": content if isinstance(content, str) else [_part(part) for part in content],
    }
    if message.tool_calls:
        body["content"] = body["content"] or None
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role == "tool":
        body["tool_call_id"] = message.tool_call_id
    elif message.name:
        body["name"] = message.name
    return body


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}
    return {"type": "text", "text": part.text}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    return {"id": call.id, "type": "function", "function": function}


def _parsed(data: bytes) -> dict[str, Any]:
    """The JSON object of a reply or chunk. Raises: EngineFault, also when it reports an error."""
    try:
        reply = loads(data)
    except ValueError as cause:
        raise malformed("the reply is not JSON") from cause
    reply = _mapping(reply)
    if reply.get("error"):
        raise _reported(reply["error"])
    return reply


def _reported(error: Any) -> EngineFault:
    """An error that came where a reply was expected."""
    return EngineFault(reason_of(status_of(error), error), "the provider reported an error in its reply")


def _first_choice(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """The only choice we ask for; None where there is none or where it is another."""
    choices = reply.get("choices")
    if not choices:
        return None
    if not isinstance(choices, list):
        raise malformed("the reply's choices are not a list")
    choice = _mapping(choices[0])
    if choice.get("error"):
        raise _reported(choice["error"])
    return None if choice.get("index") else choice


def _delta(
    reply: Mapping[str, Any], message: Mapping[str, Any], *, finish: str | None, streamed: bool = False
) -> Delta:
    content = message.get("content")
    text, thought = (content, "") if isinstance(content, str) else _from_parts(content)
    return Delta(
        text=text,
        reasoning=thought or _text(message.get("reasoning_content")) or _text(message.get("reasoning")),
        calls=_calls(message, streamed=streamed),
        finish=finish,
        usage=_usage(reply),
        model=_text(reply.get("model")),
        refused=bool(message.get("refusal")),
    )


def _from_parts(content: Any) -> tuple[str, str]:
    """Text and reasoning of a content that is missing, or a list of parts as Mistral sends it."""
    if content is None:
        return "", ""
    if not isinstance(content, list):
        raise malformed("the reply's content is neither text nor a list")
    parts = [_mapping(part) for part in content]
    text = "".join(_text(part.get("text")) for part in parts if part.get("type") == "text")
    return text, "".join(_thinking(part.get("thinking")) for part in parts if part.get("type") == "thinking")


def _thinking(value: Any) -> str:
    return "".join(_text(_mapping(part).get("text")) for part in value) if isinstance(value, list) else _text(value)


def _calls(message: Mapping[str, Any], *, streamed: bool) -> tuple[CallPiece, ...]:
    calls = message.get("tool_calls")
    if calls:
        if not isinstance(calls, list):
            raise malformed("the reply's tool calls are not a list")
        return tuple(_pieces(calls, streamed=streamed))
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and (legacy.get("name") or legacy.get("arguments")):
        return (_piece({"function": legacy}, 0),)
    return ()


def _pieces(calls: list[Any], *, streamed: bool) -> Iterable[CallPiece]:
    """In a stream the server says which call a piece belongs to, or does not; in a whole reply each is one call."""
    for position, value in enumerate(calls):
        call = _mapping(value)
        index = call.get("index") if streamed else position
        yield _piece(call, index if isinstance(index, int) else None)


def _piece(call: Mapping[str, Any], index: int | None) -> CallPiece:
    function = _mapping(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        arguments = orjson.dumps(arguments).decode()
    return CallPiece(index, _text(call.get("id")), _text(function.get("name")), _text(arguments))


def _usage(reply: Mapping[str, Any]) -> TokenUsage | None:
    """What was used; Groq's streams tell it in a corner of their own."""
    usage = reply.get("usage")
    if not usage and isinstance(reply.get("x_groq"), dict):
        usage = reply["x_groq"].get("usage")
    if not isinstance(usage, dict):
        return None
    read, written = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    return TokenUsage(
        input_tokens=read,
        output_tokens=written,
        reasoning_tokens=_first_count(usage, REASONED),
        cached_tokens=_first_count(usage, CACHED),
        total_tokens=_count(usage.get("total_tokens")) or read + written,
    )


def _first_count(usage: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> int:
    for path in paths:
        value: Any = usage
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if _count(value):
            return _count(value)
    return 0


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed("the reply holds something else where text belongs")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed("the reply holds something else where an object belongs")
    return value
