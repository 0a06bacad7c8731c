"""Amazon Bedrock's Converse API: what it refuses, and what it answers, whole or as an event stream.

The form of a body is checked by botocore's own model of the API. Beyond that it refuses what the reference says that
models refuse: cache points of those without caches, and thinking of Claude outside its range.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import orjson
from botocore.model import OperationModel
from botocore.session import Session
from botocore.validate import ParamValidator

from tests.support.emulators.answers import EmulatedAnswer, EmulatedResponse, json_response, text_pieces
from tests.support.emulators.aws_frames import event
from tests.support.emulators.server import KEY

FRAMES: Final = MappingProxyType({"Content-Type": "application/vnd.amazon.eventstream"})
PATH: Final = re.compile(r"/model/([^/]+)/(converse|converse-stream)")
FINISHES: Final[Mapping[str, str]] = {"stop": "end_turn", "length": "max_tokens", "filtered": "content_filtered"}
CACHES: Final = re.compile(r"claude|nova")
"""Models that take cache points."""
WRITES_AT_MOST: Final[Mapping[str, int]] = {"claude-opus-4-1": 32_000, "claude": 64_000}
ADAPTIVE: Final = re.compile(r"claude-[a-z]+-(4-[6-9]|[5-9])")
SIGNATURE: Final = base64.b64encode(b"a thought that no other can read").decode()


class BedrockRefusedError(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.response = json_response({"message": message}, status)


@cache
def converse() -> OperationModel:
    return Session().get_service_model("bedrock-runtime").operation_model("Converse")


def respond(path: str, headers: Mapping[str, str], body: bytes, answer: EmulatedAnswer) -> EmulatedResponse:
    try:
        return _answered(path, headers, orjson.loads(body), answer)
    except BedrockRefusedError as refusal:
        return refusal.response


def with_bytes(value: Any, name: str = "") -> Any:
    """The value with bytes for what is base64 in JSON, as botocore takes it."""
    if isinstance(value, dict):
        return {key: with_bytes(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [with_bytes(each) for each in value]
    return base64.b64decode(value) if name in {"bytes", "redactedContent"} else value


def _require(holds: object, message: str) -> None:
    if not holds:
        raise BedrockRefusedError(message)


def _answered(path: str, headers: Mapping[str, str], asked: dict[str, Any], answer: EmulatedAnswer) -> EmulatedResponse:
    if headers.get("authorization") != f"Bearer {KEY}":
        raise BedrockRefusedError("The security token included in the request is invalid.", 403)
    method = PATH.fullmatch(path)
    if method is None:
        raise BedrockRefusedError("Not found", 404)
    model = unquote(method[1])
    report = ParamValidator().validate({**with_bytes(asked), "modelId": model}, converse().input_shape)
    _require(not report.has_errors(), report.generate_report())
    _check_turns(asked)
    _check_caches(model, asked)
    if "claude" in model:
        _check_claude(model, asked)
    if method[2] == "converse":
        return json_response(_whole(answer))
    return EmulatedResponse(200, FRAMES, tuple(_frames(answer)))


def _check_turns(asked: Mapping[str, Any]) -> None:
    turns, open_calls = asked["messages"], set[str]()
    _require(turns and turns[0]["role"] == "user", "A conversation must start with a user message.")
    for number, turn in enumerate(turns):
        blocks = turn["content"]
        _require(number == 0 or turns[number - 1]["role"] != turn["role"], "messages: roles must alternate")
        _require(blocks, "The content field in the Message object is empty.")
        _require(all(block.get("text", "x").strip() for block in blocks), "The text field is blank.")
        results = {block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block}
        _require(results == open_calls, "Expected toolResult blocks for the toolUse blocks of the previous turn.")
        open_calls = {block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block}
        _require("toolConfig" in asked or not (results or open_calls), "The toolConfig field must be defined.")
    _require(not open_calls, "Expected toolResult blocks.")


def _check_caches(model: str, asked: Mapping[str, Any]) -> None:
    blocks = [*asked.get("system", ()), *(block for turn in asked["messages"] for block in turn["content"])]
    if any("cachePoint" in block for block in blocks) and not CACHES.search(model):
        raise BedrockRefusedError("You invoked an unsupported model or your request did not allow prompt caching.", 403)
    _require(not any("cachePoint" in block for block in blocks[:1]), "cachePoint: nothing to cache before it")


def _check_claude(model: str, asked: Mapping[str, Any]) -> None:
    extra, config = asked.get("additionalModelRequestFields", {}), asked.get("inferenceConfig", {})
    most = config.get("maxTokens", 4_096)
    limit = next(limit for family, limit in WRITES_AT_MOST.items() if family in model)
    _require(most <= limit, f"max_tokens: {most} > {limit}")
    thinking = extra.get("thinking", {"type": "disabled"})
    if thinking["type"] == "disabled":
        return
    _require(thinking["type"] == "enabled" or ADAPTIVE.search(model), "thinking.type: adaptive is not supported")
    _require(thinking["type"] == "adaptive" or not ADAPTIVE.search(model), "thinking.type: enabled is not supported")
    budget = thinking.get("budget_tokens", 0)
    in_range = 1_024 <= budget < most
    _require(
        in_range or thinking["type"] == "adaptive",
        "thinking.budget_tokens: greater than or equal to 1024, and less than max_tokens",
    )
    _require(config.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled.")
    forced = {"any", "tool"} & asked.get("toolConfig", {}).get("toolChoice", {}).keys()
    _require(not forced, "Thinking may not be enabled when tool_choice forces tool use.")


def _blocks(answer: EmulatedAnswer) -> list[dict[str, Any]]:
    thought = {"reasoningText": {"text": answer.reasoning, "signature": SIGNATURE}}
    return [
        *([{"reasoningContent": thought}] if answer.reasoning else ()),
        *([{"text": answer.text}] if answer.text else ()),
        *({"toolUse": {"toolUseId": id_, "name": name, "input": dict(given)}} for id_, name, given in answer.calls),
    ]


def _stop(answer: EmulatedAnswer) -> str:
    return "tool_use" if answer.calls else FINISHES[answer.finish]


def _usage(answer: EmulatedAnswer) -> dict[str, int]:
    used = answer.usage
    counts = {"inputTokens": used.input - used.cached, "outputTokens": used.output}
    return counts | {"totalTokens": used.input + used.output, "cacheReadInputTokens": used.cached}


def _whole(answer: EmulatedAnswer) -> dict[str, Any]:
    message = {"role": "assistant", "content": _blocks(answer)}
    return {"output": {"message": message}, "stopReason": _stop(answer), "usage": _usage(answer), "metrics": {}}


def _frames(answer: EmulatedAnswer) -> Iterator[bytes]:
    yield event("messageStart", {"role": "assistant"})
    for number, block in enumerate(_blocks(answer)):
        place = {"contentBlockIndex": number}
        if "toolUse" in block:
            call = block["toolUse"]
            start = {"toolUseId": call["toolUseId"], "name": call["name"]}
            yield event("contentBlockStart", {**place, "start": {"toolUse": start}})
        for delta in _deltas(block):
            yield event("contentBlockDelta", {**place, "delta": delta})
        yield event("contentBlockStop", place)
    yield event("messageStop", {"stopReason": _stop(answer)})
    yield event("metadata", {"usage": _usage(answer), "metrics": {"latencyMs": 1}})


def _deltas(block: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    if "toolUse" in block:
        text = orjson.dumps(block["toolUse"]["input"]).decode()
        return [{"toolUse": {"input": piece}} for piece in text_pieces(text)]
    if "text" in block:
        return [{"text": piece} for piece in text_pieces(block["text"])]
    thought = block["reasoningContent"]["reasoningText"]
    pieces = [{"text": piece} for piece in text_pieces(thought["text"])]
    return [{"reasoningContent": each} for each in (*pieces, {"signature": thought["signature"]})]
