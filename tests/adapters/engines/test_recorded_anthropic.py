"""Real exchanges with Anthropic: nothing of an answer is lost, and what we ask has the recorded shape.

What an answer holds is read a second time here, the naive way, from the recorded body alone.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import orjson
import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.anthropic.replies import FINISH_REASONS
from portico.domain.contract.messages import Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import EngineCall, Reply
from portico.domain.tools import ToolDefinition
from tests.adapters.engines.cases import IMAGE
from tests.adapters.engines.engine_calls import profile
from tests.adapters.engines.recorded_report import NO_RECORDED_TRAFFIC
from tests.adapters.engines.recordings import RecordedExchange, recordings, shape, without

FILES = recordings("anthropic-*.json")
pytestmark = pytest.mark.skipif(not FILES, reason=NO_RECORDED_TRAFFIC)

DIALECT = AnthropicDialect()
UNSENT = {"is_error", "cache_control", "caller", "strict", "defer_loading", "eager_input_streaming"}
"""Keys that clients sent and we do not: defaults, or extensions of messages and tools."""
OURS = {"model", "messages", "system", "stream", "tools", "tool_choice", "max_tokens", "temperature", "top_p"}
SPOKEN = {"text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result"}
THOUGHTS = {"thinking", "redacted_thinking"}
CHOICES = {"auto": "auto", "none": "none", "any": "required"}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def exchange(request: pytest.FixtureRequest) -> RecordedExchange:
    return RecordedExchange(request, DIALECT)


def message_of(exchange: RecordedExchange) -> dict[str, Any]:
    """The whole message, put together from the events of a stream."""
    events = exchange.chunks()
    if not exchange.streamed:
        return events[0]
    message = next(event["message"] for event in events if event["type"] == "message_start")
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "written": ""}
            case "content_block_delta":
                _extend(blocks[event["index"]], event["delta"])
            case "message_delta":
                message |= event["delta"] | {"usage": message["usage"] | event["usage"]}
    return message | {"content": [_closed(blocks[index]) for index in sorted(blocks)]}


def _extend(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, grown in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("signature", "signature"),
        ("partial_json", "written"),
    ):
        block[grown] = block.get(grown, "") + delta.get(key, "") if key in delta else block.get(grown, "")


def _closed(block: dict[str, Any]) -> dict[str, Any]:
    members = {"text": {"text"}, "thinking": {"thinking", "signature"}, "redacted_thinking": {"data"}}
    if block["type"] == "tool_use":
        return {**block, "input": orjson.loads(block["written"] or b"{}")}
    return {key: block[key] for key in block if key in members.get(block["type"], set()) | {"type"}}


def check(exchange: RecordedExchange, answer: Reply) -> None:
    message = message_of(exchange)
    said = message["content"]
    assert answer.text == "".join(block["text"] for block in said if block["type"] == "text")
    assert answer.reasoning == "".join(block["thinking"] for block in said if block["type"] == "thinking")
    calls = [(block["id"], block["name"], block["input"]) for block in said if block["type"] == "tool_use"]
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == calls
    assert [without(block, {"index"}) for block in answer.kept] == [
        block for block in said if block["type"] in THOUGHTS
    ]
    assert [block.get("index", 0) for block in answer.kept] == [
        place for place, block in enumerate(said) if block["type"] in THOUGHTS
    ]
    assert answer.model == message["model"]
    assert message["stop_reason"] in FINISH_REASONS
    assert answer.raw_finish == ""
    assert answer.finish_reason == ("tool" if calls else "stop")
    check_usage(answer, message["usage"])


def check_usage(answer: Reply, usage: Mapping[str, Any]) -> None:
    cached, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    details = usage.get("output_tokens_details") or {}
    assert answer.usage.input_tokens == usage["input_tokens"] + cached + written
    assert answer.usage.output_tokens == usage["output_tokens"]
    assert answer.usage.cached_tokens == cached
    assert answer.usage.reasoning_tokens == details.get("thinking_tokens", 0)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_a_recorded_answer_decodes_without_loss_in_one_piece_and_byte_by_byte(exchange: RecordedExchange):
    check(exchange, exchange.read())
    check(exchange, exchange.read_byte_by_byte())


def test_a_recorded_answer_decodes_without_loss_cut_at_many_places(exchange: RecordedExchange):
    exchange.check_cuts()


def test_a_recorded_answer_that_ends_early_is_whole_or_malformed_and_never_something_else(exchange: RecordedExchange):
    exchange.check_early_ends()


async def test_a_recorded_exchange_goes_over_a_socket(exchange: RecordedExchange):
    check(exchange, await exchange.over_a_socket())


def is_ours(request: Mapping[str, Any]) -> bool:
    """Tell whether a neutral call can express it: no documents, and no tools that the provider runs itself."""
    blocks = [block for turn in request["messages"] for block in _blocks(turn["content"])]
    tools = request.get("tools") or []
    return all(block["type"] in SPOKEN for block in blocks) and all("input_schema" in tool for tool in tools)


def asked_for(request: Mapping[str, Any]) -> EngineCall:
    """The call that a recorded request stands for."""
    config = request.get("output_config") or {}
    options = without(request, OURS | UNSENT) | ({"output_config": without(config, {"format"})} if config else {})
    opening = [Message(role="system", content=request["system"])] if "system" in request else []
    return EngineCall(
        [*opening, *(message for turn in request["messages"] for message in _messages(turn))],
        [
            ToolDefinition(tool["name"], tool["description"], tool["input_schema"])
            for tool in request.get("tools") or []
        ],
        ExecutionHints(
            max_tokens=request["max_tokens"],
            temperature=request.get("temperature"),
            top_p=request.get("top_p"),
            tool_choice=_choice(request.get("tool_choice")),
            options=options,
        ),
        schema=config["format"]["schema"] if "format" in config else None,
    )


def _choice(choice: Mapping[str, Any] | None) -> Any:
    if choice is None:
        return None
    return NamedTool(name=choice["name"]) if choice["type"] == "tool" else CHOICES[choice["type"]]


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _messages(turn: Mapping[str, Any]) -> Iterator[Message]:
    blocks = _blocks(turn["content"])
    if turn["role"] == "assistant":
        yield _answer(blocks)
        return
    for block in blocks:
        if block["type"] == "tool_result":
            content = block.get("content", "")
            result_content = content if isinstance(content, str) else [_part(part) for part in content]
            yield Message(role="tool", content=result_content, tool_call_id=block["tool_use_id"])
    parts = [_part(block) for block in blocks if block["type"] != "tool_result"]
    if parts:
        yield Message(role=turn["role"], content=parts)


def _answer(blocks: list[dict[str, Any]]) -> Message:
    calls = [
        ToolCall(id=block["id"], name=block["name"], arguments=block["input"])
        for block in blocks
        if block["type"] == "tool_use"
    ]
    kept = [{**block, "index": place} for place, block in enumerate(blocks) if block["type"] in THOUGHTS]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return ModelMessage(role="assistant", content=text, tool_calls=calls or None, provider="primary", kept=kept)


def _part(block: Mapping[str, Any]) -> Any:
    return TextPart(type="text", text=block["text"]) if block["type"] == "text" else IMAGE


def in_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with all that one side says in a row as one, as the API itself reads them."""
    return [
        {"role": role, "content": [block for turn in turns for block in _blocks(turn["content"])]}
        for role, turns in groupby(messages, lambda turn: turn["role"])
    ]


def test_an_equal_request_of_ours_has_the_recorded_shape(exchange: RecordedExchange):
    recorded = {**exchange.request, "messages": in_turns(exchange.request["messages"])}
    if not is_ours(recorded):
        return
    asked = asked_for(recorded)
    sent = DIALECT.encode(asked, profile(recorded["model"], frozenset(asked.hints.options)), stream=recorded["stream"])
    assert exchange.path.partition("?")[0] == sent.path
    assert shape(sent.body, UNSENT) == shape(recorded, UNSENT)
    assert without(sent.body, {"messages", "tools"}) == without(recorded, {"messages", "tools"} | UNSENT)
