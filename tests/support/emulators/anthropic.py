"""Anthropic's Messages API: what it refuses, and what it answers, whole or as a stream.

It refuses what the reference says is refused, with the reference's status and type of error. Thoughts it signs, and
takes back only as it said them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import orjson

from tests.support.emulators.answers import EVENTS, EmulatedAnswer, EmulatedResponse, json_response, text_pieces

FIELDS = {
    "model", "messages", "max_tokens", "system", "stream", "temperature", "top_p", "top_k", "stop_sequences", "tools",
    "tool_choice", "thinking", "output_config", "metadata", "service_tier", "cache_control", "container",
    "inference_geo",
}  # fmt: skip
BLOCKS = {
    "text": ({"type", "text"}, {"cache_control", "citations"}),
    "image": ({"type", "source"}, {"cache_control"}),
    "tool_use": ({"type", "id", "name", "input"}, {"cache_control", "caller"}),
    "tool_result": ({"type", "tool_use_id"}, {"content", "is_error", "cache_control"}),
    "thinking": ({"type", "thinking", "signature"}, set()),
    "redacted_thinking": ({"type", "data"}, set()),
}
"""The members that a block must have, and those that it may have."""
SIDES = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
    "system": {"text"},
}
THOUGHTS = {"thinking", "redacted_thinking"}
IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID = re.compile(r"[a-zA-Z0-9_-]+")
SCHEMA_KEYWORDS = {
    "type", "title", "description", "properties", "required", "additionalProperties", "items", "minItems", "enum",
    "const", "format", "anyOf", "allOf", "$ref", "$defs", "definitions",
}  # fmt: skip
TAKES_NO_SAMPLING = (
    "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5", "claude-fable-5", "claude-haiku-5-5",
)  # fmt: skip
TAKES_ONE_SAMPLING = ("claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-6")
TAKES_SYSTEM_TURNS = ("claude-opus-4-8", "claude-opus-5", "claude-fable-5", "claude-haiku-5-5")
BINDS_THOUGHTS = ("claude-opus-5-5", "claude-fable-5-1", "claude-haiku-5-5")
WRITES_AT_MOST = {
    "claude-opus-4-1": 32_000,
    "claude-3-7": 64_000,
    "claude-sonnet-4-5": 64_000,
    "claude-haiku-4-5": 64_000,
}
SAMPLING = {"temperature", "top_p", "top_k"}
VERSIONS = ("2023-06-01", "2026-10-21")
"""The second knows no sampling any more."""
MESSAGE_ID = "msg_01XFDUDYJgAACzvnptvVoYEL"


class AnthropicRefusedError(Exception):
    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.response = json_response(
            {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}, status
        )


def respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    try:
        return _answered(path, headers, json.loads(body), answer)
    except AnthropicRefusedError as refusal:
        return refusal.response


def signature(thinking: str, asked: Mapping[str, Any] | None = None) -> str:
    """Sign a thought: by its text, and in newer models also by the request without its older thoughts."""
    if asked is None or not asked["model"].startswith(BINDS_THOUGHTS):
        return sha256(thinking.encode()).hexdigest()
    sent_turns = [
        [turn["role"], [block for block in turn["content"] if block["type"] not in THOUGHTS]]
        for turn in asked["messages"]
    ]
    bound = [thinking, asked.get("system"), asked.get("tools"), sent_turns]
    return sha256(orjson.dumps(bound)).hexdigest()


def _require(holds: object, message: str) -> None:
    if not holds:
        raise AnthropicRefusedError(message)


def _answered(path: str, headers: Mapping[str, str], asked: dict[str, Any], answer: EmulatedAnswer) -> EmulatedResponse:
    _check_headers(headers)
    if headers["anthropic-version"] == VERSIONS[1]:
        _require(not SAMPLING & asked.keys(), "temperature, top_p, top_k: Extra inputs are not permitted")
    if path != "/v1/messages":
        raise AnthropicRefusedError("Not Found", 404, "not_found_error")
    _check(asked, FIELDS)
    _check_limits(asked)
    content = _content(answer, asked)
    if asked.get("stream"):
        return EmulatedResponse(200, EVENTS, tuple(_events(answer, content)))
    ending = {"content": content, "stop_reason": _stop_reason(answer), "usage": _usage(answer)}
    return json_response(_head(answer) | ending)


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _check_headers(headers: Mapping[str, str]) -> None:
    _require(headers.get("anthropic-version") in VERSIONS, "anthropic-version: header is required")
    if not headers.get("x-api-key") and not headers.get("authorization", "").startswith("Bearer "):
        raise AnthropicRefusedError("x-api-key header is required", 401, "authentication_error")


def _check(asked: dict[str, Any], fields: set[str]) -> None:
    for field in asked.keys() - fields:
        raise AnthropicRefusedError(f"{field}: Extra inputs are not permitted")
    _require(isinstance(asked.get("model"), str), "model: Field required")
    _require(asked.get("messages"), "messages: at least one message is required")
    asked["messages"] = [{**turn, "content": _blocks(turn["content"])} for turn in asked["messages"]]
    _require(asked.get("system", "x"), "system: text content blocks must be non-empty")
    _check_turns(asked["messages"], asked["model"])
    _check_thoughts(asked)
    _check_tools(asked)
    _check_thinking(asked)
    effort = asked.get("output_config", {}).get("effort", "low")
    _require(effort in {"low", "medium", "high", "xhigh", "max"}, "output_config.effort: Input should be 'low', …")
    if "format" in asked.get("output_config", {}):
        _require(asked["output_config"]["format"].keys() == {"type", "schema"}, "output_config.format: wrong fields")
        _check_schema(asked["output_config"]["format"]["schema"])


def _check_limits(asked: Mapping[str, Any]) -> None:
    model, most = asked["model"], asked.get("max_tokens")
    _require(isinstance(most, int) and most >= 1, "max_tokens: Field required")
    for family, limit in WRITES_AT_MOST.items():
        _require(not model.startswith(family) or most <= limit, f"max_tokens: {most} > {limit}")
    sampling = SAMPLING & asked.keys()
    for name in sampling if model.startswith(TAKES_NO_SAMPLING) else ():
        raise AnthropicRefusedError(f"`{name}` is deprecated for this model.")
    if model.startswith(TAKES_ONE_SAMPLING) and {"temperature", "top_p"} <= sampling:
        raise AnthropicRefusedError(
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        )
    _require(0 <= asked.get("temperature", 0) <= 1, "temperature: range: 0..1")
    _require(
        all(stop.strip() for stop in asked.get("stop_sequences", ())), "stop_sequences: must contain non-whitespace"
    )
    if asked.get("thinking", {}).get("type") in {"enabled", "adaptive"}:
        _require(asked.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled.")
        _require(
            asked.get("top_p", 1) >= 0.95, "`top_p` must be greater than or equal to 0.95 when thinking is enabled"
        )
        _require("top_k" not in asked, "`top_k` must be unset when thinking is enabled.")
        _require(asked["thinking"].get("budget_tokens", 0) < most, "`max_tokens` must be greater than the budget")


def _check_turns(turns: Sequence[Mapping[str, Any]], model: str) -> None:
    seen: set[str] = set()
    open_calls: set[str] = set()
    for number, turn in enumerate(turns):
        where, role, blocks = f"messages.{number}", turn["role"], turn["content"]
        _require(turn.keys() == {"role", "content"} and role in SIDES, f"{where}: unknown field or role")
        _require(blocks, f"{where}: all messages must have non-empty content")
        for block in blocks:
            _check_block(block, role, where)
        if role == "system":
            _check_system(turns, number, model)
            continue
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        first = [block["type"] for block in blocks[: len(results)]]
        _require(set(first) <= {"tool_result"}, f"{where}: tool_result blocks must come first")
        _require(set(results) <= open_calls, f"{where}: unexpected `tool_use_id` found in `tool_result` blocks")
        _require(open_calls <= set(results), f"{where}: `tool_use` ids were found without `tool_result` blocks")
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        _require(len({*calls} - seen) == len(calls), f"{where}: `tool_use` ids must be unique")
        open_calls, seen = set(calls), seen | set(calls)
    _require(not open_calls, "messages: `tool_use` ids were found without `tool_result` blocks immediately after")


def _check_system(turns: Sequence[Mapping[str, Any]], number: int, model: str) -> None:
    _require(model.startswith(TAKES_SYSTEM_TURNS), "role 'system' is not supported on this model")
    _require(number and turns[number - 1]["role"] == "user", "a system message must follow a user message")
    after = turns[number + 1 : number + 2]
    _require(
        not after or after[0]["role"] == "assistant", "a system message must end the array or precede an assistant"
    )


def _check_block(block: Mapping[str, Any], role: str, where: str) -> None:
    kind = block["type"]
    _require(kind in SIDES[role], f"{where}: `{kind}` blocks are not permitted in `{role}` messages")
    needed, allowed = BLOCKS[kind]
    _require(needed <= block.keys() <= needed | allowed, f"{where}: {kind}: Extra inputs are not permitted")
    match kind:
        case "text":
            _require(block["text"].strip(), f"{where}: text content blocks must contain non-whitespace text")
        case "image":
            source = block["source"]
            _require(
                source.keys() == {"type", "media_type", "data"} and source["media_type"] in IMAGES, f"{where}: image"
            )
        case "tool_use":
            _require(ID.fullmatch(block["id"]), f"{where}: tool_use.id: String should match pattern")
            _require(NAME.fullmatch(block["name"]), f"{where}: tool_use.name: String should match pattern")
            _require(isinstance(block["input"], dict), f"{where}: tool_use.input: Input should be a valid dictionary")
        case "tool_result":
            content = block.get("content", [])
            for part in _blocks(content):
                _check_block(part, "user", where)


def _check_thoughts(asked: Mapping[str, Any]) -> None:
    for number, turn in enumerate(asked["messages"]):
        for block in turn["content"]:
            if block["type"] == "thinking":
                signed = signature(block["thinking"], {**asked, "messages": asked["messages"][:number]})
                _require(signed == block["signature"], f"messages.{number}: Invalid `signature` in `thinking` block")


def _check_tools(asked: Mapping[str, Any]) -> None:
    tools, choice = asked.get("tools", []), asked.get("tool_choice")
    for tool in tools:
        _require(tool.keys() <= {"name", "description", "input_schema", "type", "cache_control"}, "tools: Extra inputs")
        _require(NAME.fullmatch(tool["name"]), "tools.name: String should match pattern")
        _require(tool["input_schema"].get("type") == "object", "tools.input_schema.type: Field required")
    if choice is not None:
        _require(tools, "tool_choice may only be specified while providing tools")
        _require(choice["type"] in {"auto", "any", "none", "tool"}, "tool_choice: unknown type")
        named = choice["type"] != "tool" or choice["name"] in {tool["name"] for tool in tools}
        _require(named, "tool_choice: Tool not found in provided tools")


def _check_thinking(asked: Mapping[str, Any]) -> None:
    for turn in asked["messages"]:
        _require(
            turn["content"][-1]["type"] not in THOUGHTS, "The final block in an assistant message cannot be `thinking`."
        )
    thinking, forced = asked.get("thinking", {}), asked.get("tool_choice", {}).get("type") in {"any", "tool"}
    if asked["model"].startswith(BINDS_THOUGHTS):
        _require(thinking.get("type", "adaptive") == "adaptive", "`thinking.type` is not supported for this model.")
        _require(not forced, "tool_choice forces tool use, which is not supported for this model.")
    if thinking.get("type") != "enabled":
        return
    _require(thinking["budget_tokens"] >= 1024, "thinking.budget_tokens: Input should be greater than or equal to 1024")
    _require(not forced, "Thinking may not be enabled when tool_choice forces tool use.")
    first = None
    for turn in reversed(asked["messages"]):
        if turn["role"] == "assistant":
            first = turn["content"][0]["type"]
        elif turn["content"][0]["type"] != "tool_result":
            break
    _require(first is None or first in THOUGHTS, f"Expected `thinking` or `redacted_thinking`, but found `{first}`.")


def _check_schema(schema: Any) -> None:
    _require(isinstance(schema, dict), "output_config.format.schema: Invalid schema")
    for keyword in schema.keys() - SCHEMA_KEYWORDS:
        raise AnthropicRefusedError(f"output_config.format.schema: property '{keyword}' is not supported")
    if schema.get("type") == "object":
        _require(schema.get("additionalProperties") is False, "'additionalProperties' must be explicitly set to false")
    _require(schema.get("minItems", 0) in (0, 1), "'minItems' values other than 0 or 1 are not supported")
    named = [
        member for keyword in ("properties", "$defs", "definitions") for member in schema.get(keyword, {}).values()
    ]
    listed = [member for keyword in ("anyOf", "allOf") for member in schema.get(keyword, [])]
    for member in (*named, *listed, *([schema["items"]] if "items" in schema else [])):
        _check_schema(member)


def _content(answer: EmulatedAnswer, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if answer.reasoning:
        thought = {"type": "thinking", "thinking": answer.reasoning, "signature": signature(answer.reasoning, asked)}
        blocks.append(thought)
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in answer.calls]
    return blocks + calls


def _head(answer: EmulatedAnswer) -> dict[str, Any]:
    head = {"id": MESSAGE_ID, "type": "message", "role": "assistant", "model": answer.model, "content": []}
    return head | {"stop_reason": None, "stop_sequence": None, "usage": _usage(answer) | {"output_tokens": 1}}


def _stop_reason(answer: EmulatedAnswer) -> str:
    if answer.finish == "stop":
        return "tool_use" if answer.calls else "end_turn"
    return {"length": "max_tokens", "filtered": "refusal"}[answer.finish]


def _usage(answer: EmulatedAnswer) -> dict[str, Any]:
    used = answer.usage
    return {
        "input_tokens": used.input - used.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
        "output_tokens_details": {"thinking_tokens": used.reasoning},
    }


def _events(answer: EmulatedAnswer, content: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    yield _event("message_start", message=_head(answer))
    for index, block in enumerate(content):
        empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
        yield _event("content_block_start", index=index, content_block=block | empty[block["type"]])
        if not index:
            yield _event("ping")
        for delta in _deltas(block):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage=_usage(answer))
    yield _event("message_stop")


def _deltas(block: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    match block["type"]:
        case "text":
            yield from ({"type": "text_delta", "text": piece} for piece in text_pieces(block["text"]))
        case "thinking":
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in text_pieces(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            written = orjson.dumps(block["input"]).decode() if block["input"] else ""
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *text_pieces(written)))


def _event(kind: str, **members: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **members}))
