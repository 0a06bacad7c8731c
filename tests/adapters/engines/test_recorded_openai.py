"""Real exchanges with real chat completions servers: nothing of an answer is lost, and what we ask has their shape.

What an answer holds is read a second time here, the naive way, from the recorded body alone.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from portico.adapters.engines.openai.chat_completions import FINISH_REASONS, ChatCompletionsDialect
from portico.domain.contract.messages import ImagePart, Message, ModelMessage, TextPart, ToolCall
from portico.domain.contract.request import ExecutionHints, NamedTool
from portico.domain.model_call import AttemptFailureReason, EngineCall, Reply
from portico.domain.tools import ToolDefinition
from tests.adapters.engines.engine_calls import profile
from tests.adapters.engines.recorded_report import NO_RECORDED_TRAFFIC
from tests.adapters.engines.recordings import RecordedExchange, reason_over_a_socket, recordings, shape, without

FILES = recordings("openai*-*.json")
pytestmark = pytest.mark.skipif(not FILES, reason=NO_RECORDED_TRAFFIC)

DIALECT = ChatCompletionsDialect()
PIXEL = ImagePart(type="image", media_type="image/png", data="iVBORw==")
UNSENT = {"n", "strict", "cache_control", "prompt_cache_breakpoint"}
"""Keys that clients sent and we do not: defaults, or a provider's own extensions of messages and tools."""
EXPECTED_ERRORS = {400: AttemptFailureReason.REFUSED, 404: AttemptFailureReason.MODEL_MISSING}
HINTS = {"temperature", "top_p", "stop", "seed"}
OURS = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens", "max_completion_tokens"}


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def exchange(request: pytest.FixtureRequest) -> RecordedExchange:
    return RecordedExchange(request, DIALECT)


def check(exchange: RecordedExchange, answer: Reply) -> None:
    chunks = exchange.chunks()
    said = [choice.get("message") or choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert answer.text == "".join(_text(part, "text") for part in said)
    assert answer.reasoning == "".join(_text(part, "thinking") or _reasoning(part) for part in said)
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == list(_calls(said))
    assert answer.model == chunks[0]["model"]
    finishes = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert set(finishes) <= FINISH_REASONS.keys()
    assert answer.raw_finish == ""
    assert answer.finish_reason == ("tool" if answer.tool_calls else "stop")
    check_usage(answer, next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage")))


def check_usage(answer: Reply, usage: Mapping[str, Any]) -> None:
    prompt, completion = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    cached = prompt.get("cached_tokens") or usage.get("num_cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    assert answer.usage.input_tokens == usage["prompt_tokens"]
    assert answer.usage.output_tokens == usage["completion_tokens"]
    assert answer.usage.total_tokens == usage["total_tokens"]
    assert answer.usage.cached_tokens == cached
    assert answer.usage.reasoning_tokens == completion.get("reasoning_tokens", 0)


def _text(message: Mapping[str, Any], kind: str) -> str:
    content = message.get("content")
    if not isinstance(content, list):
        return (content or "") if kind == "text" else ""
    parts = [part[kind] for part in content if part["type"] == kind]
    return "".join(part if isinstance(part, str) else "".join(inner["text"] for inner in part) for part in parts)


def _reasoning(message: Mapping[str, Any]) -> str:
    return message.get("reasoning_content") or message.get("reasoning") or ""


def _calls(said: list[dict[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    """Recorded streams number their calls; recorded bodies list them."""
    calls: dict[int, list[str]] = {}
    for part in said:
        for position, call in enumerate(part.get("tool_calls") or []):
            known = calls.setdefault(call.get("index", position), ["", "", ""])
            known[0] += call.get("id") or ""
            known[1] += call["function"].get("name") or ""
            known[2] += call["function"].get("arguments") or ""
    for number, (call_id, name, arguments) in sorted(calls.items()):
        yield call_id or f"call_{number}", name, json.loads(arguments)


def test_a_recorded_answer_decodes_without_loss_in_one_piece_and_byte_by_byte(exchange: RecordedExchange):
    if exchange.status == 200:
        check(exchange, exchange.read())
        check(exchange, exchange.read_byte_by_byte())


def test_a_recorded_answer_decodes_without_loss_cut_at_many_places(exchange: RecordedExchange):
    if exchange.status == 200:
        exchange.check_cuts()


def test_a_recorded_answer_that_ends_early_is_whole_or_malformed_and_never_something_else(exchange: RecordedExchange):
    if exchange.status == 200:
        exchange.check_early_ends()


async def test_a_recorded_exchange_goes_over_a_socket(exchange: RecordedExchange):
    if exchange.status == 200:
        check(exchange, await exchange.over_a_socket())
    else:
        assert await reason_over_a_socket(exchange) is EXPECTED_ERRORS[exchange.status]


def asked_for(request: Mapping[str, Any]) -> EngineCall:
    """The call that a recorded request stands for."""
    choice = request.get("tool_choice")
    return EngineCall(
        [_message(message) for message in request["messages"]],
        [ToolDefinition(**without(tool["function"], UNSENT)) for tool in request.get("tools") or []],
        ExecutionHints(
            max_tokens=request.get("max_completion_tokens", request.get("max_tokens")),
            tool_choice=NamedTool(name=choice["function"]["name"]) if isinstance(choice, dict) else choice,
            options=without(request, OURS | HINTS | UNSENT),
            **{key: request[key] for key in HINTS if key in request},
        ),
    )


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content") or ""
    calls = [
        ToolCall(id=call["id"], name=call["function"]["name"], arguments=json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]
    said = Message(
        role="system" if message["role"] == "developer" else message["role"],
        content=content if isinstance(content, str) else [_part(part) for part in content],
        tool_calls=calls or None,
        tool_call_id=message.get("tool_call_id"),
    )
    thought = message.get("reasoning_content")
    kept = [{"reasoning_content": thought}]
    return said if thought is None else ModelMessage(**dict(said), provider="primary", kept=kept)


def _part(part: Mapping[str, Any]) -> TextPart | ImagePart:
    return TextPart(type="text", text=part["text"]) if part["type"] == "text" else PIXEL


def test_an_equal_request_of_ours_has_the_recorded_shape(exchange: RecordedExchange):
    recorded = exchange.request
    for tool in recorded.get("tools") or []:
        tool.setdefault("type", "function")
    asked = asked_for(recorded)
    sent = DIALECT.encode(asked, profile(recorded["model"], frozenset(asked.hints.options)), stream=recorded["stream"])
    assert exchange.path.endswith(sent.path)
    assert shape(sent.body, UNSENT) == shape(recorded, UNSENT)
    assert without(sent.body, {"messages", "tools"}) == without(recorded, {"messages", "tools"} | UNSENT)
