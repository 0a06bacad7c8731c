"""Ollama's own chat dialect, for a local server and for its cloud.

Ollama gives a model a context of the server's choosing, often 4,096 tokens, and silently drops the oldest messages of a
longer conversation. Therefore every request names the context that we count with (`num_ctx`) and forbids dropping
(`truncate`), so that an overflow is an error. A server loads a model again for another `num_ctx`: an engine's
`context_window` should be what its server is set to.

No tool call can be demanded, and none of several forbidden: `tool_choice` either leaves the tools out or has no effect.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from portico.adapters.engines.dialect import EncodedRequest, opaque_blocks
from portico.adapters.engines.levels import OLLAMA_LEVELS, SentLevel, find_level
from portico.adapters.engines.ollama import replies
from portico.adapters.engines.ollama.errors import error_of, reason_of, reported_fault
from portico.adapters.engines.ollama.schemas import response_format, supported_schema
from portico.adapters.engines.unsupported import translated_hints, unsent_message_parts, unsent_options
from portico.adapters.engines.wire.embeddings import token_count, vector_of
from portico.adapters.engines.wire.json_fields import as_list, as_text, parse_object
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import AttemptFailureReason, EngineCall
from portico.domain.tools import ToolDefinition
from portico.ports.memory import Embeddings
from portico.ports.model import EngineProfile

TOP_LEVEL_OPTIONS: Final = frozenset({"think", "keep_alive", "truncate", "shift"})
"""Parameters that Ollama does not count among its `options`."""
PARAMETER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"max_tokens": "num_predict", "temperature": "temperature", "top_p": "top_p", "stop": "stop", "seed": "seed"}
)


class OllamaDialect:
    """Implements `Dialect`."""

    probe_path = "/api/tags"
    binds_kept = False
    finish_reasons = replies.FINISH_REASONS

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def encode(self, call: EngineCall, profile: EngineProfile, *, stream: bool) -> EncodedRequest:
        hints = call.hints
        allowed = {key: value for key, value in hints.options.items() if key in profile.options}
        top_level = {key: value for key, value in allowed.items() if key in TOP_LEVEL_OPTIONS}
        options = {key: value for key, value in allowed.items() if key not in TOP_LEVEL_OPTIONS}
        body: dict[str, Any] = {
            "model": profile.model,
            "messages": list(_messages(call.messages)),
            "options": {"num_ctx": profile.context_window} | options | _sampling(hints),
            "truncate": False,
            "stream": stream,
        } | top_level
        level = _level(hints, profile)
        if level is not None:
            body.setdefault("think", level.value)
        is_exact = hints.reasoning is None or (level is not None and level.is_exact and body["think"] == level.value)
        if call.tools and hints.tool_choice != "none":
            body["tools"] = [_tool(tool) for tool in call.tools]
        if call.schema is not None:
            body["format"] = response_format(call.schema)
        return EncodedRequest(
            "/api/chat",
            body,
            (
                *unsent_options(call, PARAMETER_NAMES, body, body["options"]),
                *unsent_message_parts(call.messages),
                *(() if is_exact else ("hints.reasoning",)),
            ),
        )

    def encode_embeddings(self, texts: Sequence[str], profile: EngineProfile, dimension: int | None) -> EncodedRequest:
        size = {} if dimension is None else {"dimensions": dimension}
        return EncodedRequest("/api/embed", {"model": profile.model, "input": list(texts), **size})

    def decode_embeddings(self, body: bytes) -> Embeddings:
        reply = parse_object(body)
        if reply.get("error"):
            raise reported_fault(reply["error"])
        vectors = [vector_of(each) for each in as_list(reply.get("embeddings"))]
        return Embeddings(vectors, token_count(reply.get("prompt_eval_count")))

    decode = staticmethod(replies.decode_reply)
    decode_chunk = staticmethod(replies.decode_reply)
    reported_fault = staticmethod(reported_fault)

    def failure_reason(self, status: int, body: bytes) -> AttemptFailureReason:
        return reason_of(status, error_of(body))


def _level(hints: ExecutionHints, profile: EngineProfile) -> SentLevel | None:
    if hints.reasoning is None:
        return None
    return find_level(hints.reasoning, OLLAMA_LEVELS, profile.known_as or profile.model)


def _sampling(hints: ExecutionHints) -> dict[str, Any]:
    stops = {"stop": [hints.stop]} if isinstance(hints.stop, str) else {}
    return translated_hints(hints, PARAMETER_NAMES) | stops


@lru_cache(maxsize=1024)
def _tool(tool: ToolDefinition) -> Mapping[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": supported_schema(tool.parameters)}
    return {"type": "function", "function": function}


def _messages(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """Yield the messages. Results name their tool; an id that is repeated in a later turn means the call before it."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls or ()}
        body = _message(message)
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            body |= {"tool_name": names.get(call_id) or message.name or "", "tool_call_id": call_id}
        yield body


def _message(message: Message) -> dict[str, Any]:
    """Return a message. Reasoning is sent back with every answer: the model's template drops what it does not need."""
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    reasoning = "".join(as_text(block.get("thinking")) for block in opaque_blocks(message))
    if reasoning:
        body["thinking"] = reasoning
    if message.images:
        body["images"] = [image.data for image in message.images]
    if message.tool_calls:
        body["tool_calls"] = [_call(call) for call in message.tool_calls]
    return body


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
