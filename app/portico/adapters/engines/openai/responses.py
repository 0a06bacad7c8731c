"""OpenAI's Responses API, which its newest models speak best and some of them exclusively.

Nothing is stored by the API: each request contains the whole conversation. Reasoning comes back encrypted, as items of
the answer, and is sent back in its place, since a reasoning item without the item that followed it is refused. So the
opaque blocks of an answer are its reasoning items and marks for the positions of its texts and calls.

The API has no stop texts, no seeds, and no limit below `MIN_TOKENS`. Its functions are strict unless the request says
otherwise, which would change the meaning of a tool's schema. It has no place for authors' names and for images in an
assistant's message.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import orjson

from portico.adapters.engines.dialect import EncodedRequest, opaque_blocks
from portico.adapters.engines.openai import response_events, schemas
from portico.adapters.engines.openai.embeddings import decode_embeddings, encode_embeddings
from portico.adapters.engines.openai.errors import error_of, reason_of, reported_fault
from portico.adapters.engines.openai.media import audio_data, file_data
from portico.adapters.engines.openai.models import may_reason, without_unsupported_sampling
from portico.adapters.engines.openai.vendor_level import put_level
from portico.adapters.engines.openai.vendors import ReasoningForm
from portico.adapters.engines.unsupported import translated_hints, unsent_message_parts, unsent_options
from portico.domain.contract.messages import AudioPart, DocumentPart, ImagePart, Message, Part, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.model import EngineProfile

PARAMETER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p", "tool_choice": "tool_choice"}
)
MIN_TOKENS: Final = 16
ENCRYPTED: Final = "reasoning.encrypted_content"
FINISH_REASONS: Final[Mapping[str, str | AttemptFailureReason]] = {
    "completed": "stop",
    "incomplete": "length",
    "max_output_tokens": "length",
    "content_filter": AttemptFailureReason.CONTENT_FILTERED,
    "failed": AttemptFailureReason.SERVER_ERROR,
    "cancelled": AttemptFailureReason.SERVER_ERROR,
}


class ResponsesDialect:
    """Implements `Dialect`."""

    probe_path = "/models"
    binds_kept = True
    finish_reasons = FINISH_REASONS

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        hints = call.hints
        body: dict[str, Any] = {key: value for key, value in hints.options.items() if key in profile.options}
        body |= {"model": profile.model, "input": [item for message in call.messages for item in _items(message)]}
        has_level = put_level(body, hints, profile, ReasoningForm.NESTED_EFFORT)
        if call.shows_reasoning and profile.capabilities.reasoning:
            body["reasoning"] = {"summary": "auto", **_object(body.get("reasoning"))}
        body |= _sampling(hints, profile.known_as or profile.model, body.get("reasoning"))
        if call.tools:
            body["tools"] = [_tool(tool) for tool in call.tools]
            body |= _choice(hints)
        if call.schema is not None:
            body["text"] = _object(body.get("text")) | {
                "format": {"type": "json_schema", **schemas.named_schema(call.schema)}
            }
        if may_reason(profile.known_as or profile.model):
            body["include"] = [ENCRYPTED]
        if call.cache_key is not None:
            body.setdefault("prompt_cache_key", call.cache_key)
        body |= {"store": False, "stream": stream}
        return EncodedRequest(
            "/responses",
            body,
            (
                *unsent_options(call, PARAMETER_NAMES, body),
                *unsent_message_parts(call.messages, ("assistant",)),
                *(() if has_level else ("hints.reasoning",)),
            ),
        )

    encode_embeddings = staticmethod(encode_embeddings)
    decode_embeddings = staticmethod(decode_embeddings)
    decode = staticmethod(response_events.decode_reply)
    decode_chunk = staticmethod(response_events.decode_event)
    reported_fault = staticmethod(reported_fault)

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))


def _sampling(hints: ExecutionHints, model: str, reasoning: Any) -> dict[str, Any]:
    asked = without_unsupported_sampling(
        translated_hints(hints, PARAMETER_NAMES), model, _object(reasoning).get("effort")
    )
    if hints.max_tokens is not None:
        asked["max_output_tokens"] = max(hints.max_tokens, MIN_TOKENS)
    return asked


def _choice(hints: ExecutionHints) -> dict[str, Any]:
    choice = hints.tool_choice
    if isinstance(choice, NamedTool):
        return {"tool_choice": {"type": "function", "name": choice.name}}
    return {"tool_choice": choice} if choice else {}


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", **about, "strict": False}


def _items(message: Message) -> Iterator[dict[str, Any]]:
    match message.role:
        case "assistant":
            yield from _answer(message)
        case "tool":
            yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": _content(message)}
        case role:
            yield {"role": role, "content": _content(message)}


def _answer(message: Message) -> list[dict[str, Any]]:
    """Return the items of an answer in their original order; items without a mark come first.

    Reasoning without a following item, because the answer was cut, is left out.
    """
    blocks, text = opaque_blocks(message), message.text
    calls = {call.id: _call(call) for call in message.tool_calls or ()}
    marked = {block["call_id"] for block in blocks if block.get("type") == "function_call"}
    lengths = [block["characters"] for block in blocks if block.get("type") == "message"]
    texts = _split_text(text, lengths)
    items = list(_text_items(next(texts), {}) if text or calls else [{"role": "assistant", "content": ""}])
    items += [item for call_id, item in calls.items() if call_id not in marked]
    for block in blocks:
        match block:
            case {"type": "reasoning"}:
                items.append(block)
            case {"type": "message"}:
                items.extend(_text_items(next(texts), block))
            case {"type": "function_call", "call_id": call_id} if call_id in calls:
                items.append(calls[call_id])
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _split_text(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """Yield the text in its original messages; all of it in the last one where it is shorter than they were."""
    first = len(text) - sum(lengths)
    sizes = [first, *lengths] if first >= 0 else [0] * len(lengths) + [len(text)]
    for size in sizes:
        yield text[:size]
        text = text[size:]


def _text_items(text: str, mark: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if text:
        yield {"role": "assistant", "content": text} | {key: mark[key] for key in ("phase",) if key in mark}


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = orjson.dumps(call.arguments).decode()
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def _content(message: Message) -> str | list[dict[str, Any]]:
    content = message.content
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"type": "input_image", "detail": "auto", "image_url": f"data:{part.media_type};base64,{part.data}"}
    if isinstance(part, AudioPart):
        return {"type": "input_audio", "input_audio": audio_data(part)}
    if isinstance(part, DocumentPart):
        text = part.plain_text
        return {"type": "input_file", **file_data(part)} if text is None else {"type": "input_text", "text": text}
    return {"type": "input_text", "text": part.text}


def _object(value: Any) -> dict[str, Any]:
    """Return an option that should be an object, empty for any other value."""
    return value if isinstance(value, dict) else {}
