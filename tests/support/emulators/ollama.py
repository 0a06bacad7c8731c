"""Ollama's server: `/api/chat`, `/api/embed`, `/api/tags` as its Go types and handlers take and answer them.

Unknown members are ignored there, as Go does it; a member of the wrong type refuses the whole request.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import orjson

from tests.support.emulators.answers import EmulatedAnswer, EmulatedResponse, text_pieces

JSON: Final = MappingProxyType({"Content-Type": "application/json; charset=utf-8"})
LINES: Final = MappingProxyType({"Content-Type": "application/x-ndjson"})
CREATED: Final = "2026-08-21T18:48:22.123456789Z"
DIMENSIONS: Final = 3
DURATION: Final = re.compile(r"-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
ESCAPED: Final = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"), ("\u2028".encode(), b"\\u2028"))
"""Go's escapes of characters that could be HTML."""
Check: TypeAlias = Callable[[Any], bool]


class OllamaRefusedError(Exception):
    """The server takes no such request."""


def respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    """Return the server's response."""
    if path == "/api/tags":
        return _json({"models": [{"name": answer.model, "model": answer.model, "size": 1, "digest": "0"}]})
    if headers.get("content-type") != "application/json" or path not in HANDLERS:
        return _json({"error": "404 page not found"}, 404)
    try:
        request = orjson.loads(body)
        return HANDLERS[path](request, answer)
    except (orjson.JSONDecodeError, OllamaRefusedError) as refusal:
        return _json({"error": str(refusal)}, 400)


def _chat(request: Any, answer: EmulatedAnswer) -> EmulatedResponse:
    _are(request, REQUEST, "ChatRequest")
    if not request.get("model"):
        raise OllamaRefusedError("model is required")
    for message in request.get("messages") or ():
        _are(message, MESSAGE, "Message")
        for call in message.get("tool_calls") or ():
            _are(call, CALL, "ToolCall")
            _are(call.get("function"), FUNCTION, "ToolCallFunction")
    for tool in request.get("tools") or ():
        _tool(tool)
    _are(request.get("options") or {}, OPTIONS, "Options")
    if not request.get("messages"):
        return _json(_chunk(answer, {}, done_reason="load"))
    if request.get("stream") is False:
        return _json(_chunk(answer, _said(answer, range(len(answer.calls))), **_end(answer)))
    return EmulatedResponse(200, LINES, tuple(_dumped(chunk) + b"\n" for chunk in _chunks(answer)))


def _chunks(answer: EmulatedAnswer) -> Iterator[dict[str, Any]]:
    for piece in text_pieces(answer.reasoning):
        yield _chunk(answer, {"content": "", "thinking": piece}, done=False)
    for piece in text_pieces(answer.text):
        yield _chunk(answer, {"content": piece}, done=False)
    for number in range(len(answer.calls)):
        yield _chunk(answer, {"content": "", "tool_calls": [_call(answer, number)]}, done=False)
    yield _chunk(answer, {"content": ""}, **_end(answer))


def _said(answer: EmulatedAnswer, numbers: range) -> dict[str, Any]:
    said: dict[str, Any] = {"content": answer.text}
    if answer.reasoning:
        said["thinking"] = answer.reasoning
    if answer.calls:
        said["tool_calls"] = [_call(answer, number) for number in numbers]
    return said


def _chunk(answer: EmulatedAnswer, said: Mapping[str, Any], *, done: bool = True, **members: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "", **said}
    return {"model": answer.model, "created_at": CREATED, "message": message, "done": done, **members}


def _end(answer: EmulatedAnswer) -> dict[str, Any]:
    if answer.finish == "filtered":
        raise OllamaRefusedError("nothing is filtered here")
    counts = {"prompt_eval_count": answer.usage.input, "eval_count": answer.usage.output}
    times = {"total_duration": 5, "load_duration": 1, "prompt_eval_duration": 2, "eval_duration": 2}
    return {"done_reason": answer.finish} | times | {key: count for key, count in counts.items() if count}


def _call(answer: EmulatedAnswer, number: int) -> dict[str, Any]:
    call = answer.calls[number]
    return {"id": call.id, "function": {"index": number, "name": call.name, "arguments": call.arguments}}


def _tool(tool: Any) -> None:
    _are(tool, TOOL, "Tool")
    _are(tool.get("function"), TOOL_FUNCTION, "ToolFunction")
    parameters = tool["function"].get("parameters") or {}
    _are(parameters, {"type": _text, "required": _list_of(_text), "properties": _object}, "ToolFunctionParameters")
    for name, schema in (parameters.get("properties") or {}).items():
        _property(schema, name)


def _property(schema: Any, name: str) -> None:
    _are(schema, PROPERTY, f"ToolProperty {name}")
    for member in schema.get("anyOf") or ():
        _property(member, name)
    for inner, member in (schema.get("properties") or {}).items():
        _property(member, inner)


def _are(members: Any, checks: Mapping[str, Check], name: str) -> None:
    if not isinstance(members, dict):
        raise OllamaRefusedError(f"json: cannot unmarshal into Go value of type api.{name}")
    for key, value in members.items():
        if key in checks and value is not None and not checks[key](value):
            raise OllamaRefusedError(f"json: cannot unmarshal into Go struct field {name}.{key}")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _role(value: Any) -> bool:
    return value in {"system", "user", "assistant", "tool"}


def _image(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except binascii.Error:
        return False


def _thinking(value: Any) -> bool:
    return isinstance(value, bool) or value in {"low", "medium", "high", "max"}


def _duration(value: Any) -> bool:
    return _number(value) or (isinstance(value, str) and DURATION.fullmatch(value) is not None)


def _format(value: Any) -> bool:
    return value in ("", "json") or isinstance(value, dict)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _type(value: Any) -> bool:
    return _text(value) or _list_of(_text)(value)


# fmt: off
REQUEST: Final[Mapping[str, Check]] = {
    "model": _text, "messages": _list_of(_object), "stream": _flag, "format": _format, "keep_alive": _duration,
    "tools": _list_of(_object), "options": _object, "think": _thinking, "truncate": _flag, "shift": _flag,
}
MESSAGE: Final[Mapping[str, Check]] = {
    "role": _role, "content": _text, "thinking": _text, "images": _list_of(_image), "tool_calls": _list_of(_object),
    "tool_name": _text, "tool_call_id": _text,
}
CALL: Final[Mapping[str, Check]] = {"id": _text, "function": _object}
FUNCTION: Final[Mapping[str, Check]] = {"index": _whole, "name": _text, "arguments": _object}
TOOL: Final[Mapping[str, Check]] = {"type": _text, "function": _object}
TOOL_FUNCTION: Final[Mapping[str, Check]] = {"name": _text, "description": _text, "parameters": _object}
PROPERTY: Final[Mapping[str, Check]] = {
    "anyOf": _list_of(_object), "type": _type, "description": _text, "enum": _list_of(lambda _: True),
    "properties": _object, "required": _list_of(_text),
}
OPTIONS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict"), _number),
    **dict.fromkeys(("num_keep", "seed", "num_predict", "top_k", "repeat_last_n"), _number),
    **dict.fromkeys(("top_p", "min_p", "typical_p", "temperature", "repeat_penalty"), _number),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), _number),
    "use_mmap": _flag, "stop": _list_of(_text),
}
EMBEDDING: Final[Mapping[str, Check]] = {
    "model": _text, "input": _type, "truncate": _flag, "dimensions": _whole, "keep_alive": _duration,
    "options": _object,
}
# fmt: on
HANDLERS: Final[Mapping[str, Callable[[Any, EmulatedAnswer], EmulatedResponse]]] = {
    "/api/chat": _chat,
}


def _json(body: Any, status: int = 200) -> EmulatedResponse:
    return EmulatedResponse(status, JSON, (_dumped(body),))


def _dumped(value: Any) -> bytes:
    data = orjson.dumps(value)
    for plain, escaped in ESCAPED:
        data = data.replace(plain, escaped)
    return data
