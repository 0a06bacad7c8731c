"""The chat completions dialect of OpenAI and of the many servers that follow it.

Requests contain only what all of these servers take. Little differs by server: the name of an OpenAI model decides the
name of the token limit and whether sampling is left out, the engine's capabilities whether a stream's usage is
requested. `grammar` is llama.cpp's own parameter.

Reasoning that DeepSeek and others call `reasoning_content` is sent back in turns with tool calls, from the first such
call on: DeepSeek requires it there, in earlier turns too, and ignores it in all others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.dialect import EncodedRequest
from portico.adapters.engines.openai import chat_replies, schemas
from portico.adapters.engines.openai.embeddings import decode_embeddings, encode_embeddings
from portico.adapters.engines.openai.errors import error_of, reason_of, reported_fault
from portico.adapters.engines.openai.media import audio_data, file_data
from portico.adapters.engines.openai.models import is_openai_model, without_unsupported_sampling
from portico.adapters.engines.openai.vendor_level import put_level
from portico.adapters.engines.openai.vendors import GENERIC, VENDORS, Vendor
from portico.adapters.engines.unsupported import DEFAULT_NAMES, translated_hints, unsent_message_parts, unsent_options
from portico.domain.contract.messages import AudioPart, DocumentPart, ImagePart, Message, ModelMessage, Part, ToolCall
from portico.domain.contract.request import NamedTool
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile

FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": AttemptFailureReason.CONTENT_FILTERED,
    "error": AttemptFailureReason.SERVER_ERROR,
    "insufficient_system_resource": AttemptFailureReason.OVERLOADED,
}
OPENAI_NAMES: Final[Mapping[str, str]] = MappingProxyType({**DEFAULT_NAMES, "max_tokens": "max_completion_tokens"})
AUTHOR_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
"""A name that OpenAI takes. A message with any other name is sent without it."""


class ChatCompletionsDialect:
    """Implements `Dialect`."""

    probe_path = "/models"
    binds_kept = False
    finish_reasons = FINISH_REASONS

    def __init__(self, vendor: Vendor = VENDORS[GENERIC]) -> None:
        self._vendor = vendor

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        hints = call.hints
        body: dict[str, Any] = {key: value for key, value in hints.options.items() if key in profile.options}
        body |= {"model": profile.model, "messages": list(_messages(call.messages))}
        has_level = put_level(body, hints, profile, self._vendor.reasoning)
        names = OPENAI_NAMES if is_openai_model(profile.known_as or profile.model) else DEFAULT_NAMES
        parameters = translated_hints(hints, names)
        if parameters:
            body |= without_unsupported_sampling(parameters, profile.known_as or profile.model, _effort(body))
        if call.tools:
            body["tools"] = [_tool(tool) for tool in call.tools]
            if hints.tool_choice:
                body["tool_choice"] = _choice(hints.tool_choice)
        if call.schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": schemas.named_schema(call.schema)}
        if call.grammar is not None:
            body["grammar"] = call.grammar
        if call.cache_key is not None:
            body.setdefault("prompt_cache_key", call.cache_key)
        body["stream"] = stream
        if stream and profile.capabilities.streaming_usage:
            body["stream_options"] = {"include_usage": True}
        unusable = [message for message in call.messages if message.name and not AUTHOR_NAME.fullmatch(message.name)]
        withheld = (
            *unsent_options(call, names, body),
            *unsent_message_parts(unusable),
            *(() if has_level else ("hints.reasoning",)),
        )
        return EncodedRequest("/chat/completions", body, withheld)

    encode_embeddings = staticmethod(encode_embeddings)
    decode_embeddings = staticmethod(decode_embeddings)
    decode = staticmethod(chat_replies.decode_reply)
    decode_chunk = staticmethod(chat_replies.decode_event)
    reported_fault = staticmethod(reported_fault)

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))


def _effort(body: Mapping[str, Any]) -> Any:
    nested = body.get("reasoning")
    return body.get("reasoning_effort") or (nested.get("effort") if isinstance(nested, dict) else None)


def _choice(choice: str | NamedTool) -> str | dict[str, Any]:
    return {"type": "function", "function": {"name": choice.name}} if isinstance(choice, NamedTool) else choice


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    calling = False
    for message in messages:
        calling = message.role != "user" and (calling or bool(message.tool_calls))
        body = _message(message)
        if isinstance(message, ModelMessage):
            for block in message.kept:
                _restore_opaque(block, body, calling=calling)
        yield body


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
    elif message.name and AUTHOR_NAME.fullmatch(message.name):
        body["name"] = message.name
    return body


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}
    if isinstance(part, AudioPart):
        return {"type": "input_audio", "input_audio": audio_data(part)}
    if isinstance(part, DocumentPart):
        text = part.plain_text
        return {"type": "file", "file": file_data(part)} if text is None else {"type": "text", "text": text}
    return {"type": "text", "text": part.text}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": orjson.dumps(call.arguments).decode()}
    return {"id": call.id, "type": "function", "function": function}


def _restore_opaque(block: Mapping[str, Any], body: dict[str, Any], *, calling: bool) -> None:
    """Put an opaque block back where the server sent it. `calling`: this turn has called tools, up to this message."""
    match block:
        case {"reasoning_content": reasoning}:
            if calling:
                body["reasoning_content"] = reasoning
        case {"reasoning_detail": rest, **texts}:
            body.setdefault("reasoning_details", []).append({**rest, **texts})
        case {"extra_content": extra}:
            body["extra_content"] = extra
        case {"call": call_id, "signature": signature}:
            for call in body.get("tool_calls", ()):
                if call["id"] == call_id:
                    call["extra_content"] = {"google": {"thought_signature": signature}}
