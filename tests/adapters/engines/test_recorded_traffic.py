"""Real exchanges with real providers: nothing of an answer is lost, and what we ask has the recorded shape.

What an answer holds is read a second time here, the naive way, from the recorded body alone.
"""

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from app.adapters.engines.dialect import Answer
from app.adapters.engines.event_stream import EventStream
from app.adapters.engines.http_engine import Caps
from app.adapters.engines.openai_compatible import FINISHES, ChatCompletions
from app.domain.boundary import ExecutionHints, NamedTool
from app.domain.effects import EngineCall, Reason, Reply
from app.domain.messages import ImagePart, Message, TextPart, ToolCall
from app.domain.tools import ToolDefinition
from app.ports import EngineFault
from tests.adapters.engines.asking import Heard, engine, profile
from tests.support.upstream import Upstream, event_stream, reply

DIRECTORY = os.environ.get("RECORDED_TRAFFIC")
FILES = sorted(Path(DIRECTORY).glob("openai*-*.json")) if DIRECTORY else []
pytestmark = pytest.mark.skipif(not FILES, reason="RECORDED_TRAFFIC names no directory of recordings")

DIALECT = ChatCompletions()
PIXEL = ImagePart(type="image", media_type="image/png", data="iVBORw==")
UNSENT = {"n", "strict", "cache_control", "prompt_cache_breakpoint", "reasoning_content"}
"""Keys that clients sent and we do not: defaults, or a provider's own extensions of messages and tools."""
EXPECTED_ERRORS = {400: Reason.REFUSED, 404: Reason.MODEL_MISSING}
HINTS = {"temperature", "top_p", "stop", "seed"}
OURS = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "max_tokens", "max_completion_tokens"}


class Exchange:
    """One recording. A chunk is decoded once, however often it is cut: decoding it is a pure function."""

    def __init__(self, path: Path) -> None:
        recorded = json.loads(path.read_text())
        body, self.request = recorded["response"]["body"], recorded["request"]["body"]
        self.path: str = recorded["request"]["path"]
        self.status: int = recorded["response"]["status"]
        self.content_type: str = recorded["response"]["content_type"]
        self.body = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.decode_chunk = cache(DIALECT.decode_chunk)
        self.streamed = self.content_type.startswith("text/event-stream")

    def chunks(self) -> list[dict[str, Any]]:
        """The whole answer as a list of chunks; a JSON body is one."""
        if not self.streamed:
            return [json.loads(self.body)]
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def exchange(request: pytest.FixtureRequest) -> Exchange:
    return Exchange(request.param)


def read(exchange: Exchange, *pieces: bytes) -> Reply:
    answer = Answer(DIALECT.finishes)
    if not exchange.streamed:
        answer.add(DIALECT.decode(b"".join(pieces)))
        return answer.reply("")
    stream = EventStream(Caps().line)
    for piece in pieces:
        for data in stream.feed(piece):
            answer.add(exchange.decode_chunk(data))
    return answer.reply("")


def check(exchange: Exchange, answer: Reply) -> None:
    chunks = exchange.chunks()
    said = [choice.get("message") or choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert answer.text == "".join(_text(part, "text") for part in said)
    assert answer.reasoning == "".join(_text(part, "thinking") or _reasoning(part) for part in said)
    assert [(call.id, call.name, call.arguments) for call in answer.tool_calls] == list(_calls(said))
    assert answer.model == chunks[0]["model"]
    finishes = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert set(finishes) <= FINISHES.keys()
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


def test_a_recorded_answer_decodes_without_loss_in_one_piece_and_byte_by_byte(exchange: Exchange):
    if exchange.status == 200:
        check(exchange, read(exchange, exchange.body))
        check(exchange, read(exchange, *(exchange.body[index : index + 1] for index in range(len(exchange.body)))))


def test_a_recorded_answer_decodes_without_loss_cut_at_every_byte(exchange: Exchange):
    if exchange.status == 200 and exchange.streamed:
        expected = read(exchange, exchange.body)
        for cut in range(1, len(exchange.body)):
            assert read(exchange, exchange.body[:cut], exchange.body[cut:]) == expected


def test_a_recorded_answer_that_ends_early_is_whole_or_malformed_and_never_something_else(exchange: Exchange):
    if exchange.status != 200:
        return
    expected = read(exchange, exchange.body)
    reasons: set[Reason] = set()
    for end in range(0, len(exchange.body), 1 if exchange.streamed else 7):
        try:
            answer = read(exchange, exchange.body[:end])
        except EngineFault as fault:
            reasons.add(fault.reason)
        else:
            assert (answer.text, answer.tool_calls) == (expected.text, expected.tool_calls)
    assert reasons == {Reason.MALFORMED}


async def test_a_recorded_exchange_goes_over_a_socket(exchange: Exchange):
    asked = asked_for(exchange.request)
    half = len(exchange.body) // 2
    script = reply(exchange.body, status=exchange.status, content_type=exchange.content_type)
    if exchange.streamed:
        script = event_stream(exchange.body[:half], exchange.body[half:], content_type=exchange.content_type)
    async with Upstream(script) as upstream, engine(upstream.url) as asker:
        heard = Heard()
        if exchange.status == 200:
            check(exchange, await asker.attempt(asked, heard, stream=exchange.streamed))
            return
        with pytest.raises(EngineFault) as caught:
            await asker.attempt(asked, heard, stream=False)
        assert caught.value.reason is EXPECTED_ERRORS[exchange.status]


def asked_for(request: Mapping[str, Any]) -> EngineCall:
    """The call that a recorded request stands for."""
    choice = request.get("tool_choice")
    return EngineCall(
        [_message(message) for message in request["messages"]],
        [ToolDefinition(**_without(tool["function"], UNSENT)) for tool in request.get("tools") or []],
        ExecutionHints(
            max_tokens=request.get("max_completion_tokens", request.get("max_tokens")),
            tool_choice=NamedTool(name=choice["function"]["name"]) if isinstance(choice, dict) else choice,
            options=_without(request, OURS | HINTS | UNSENT),
            **{key: request[key] for key in HINTS if key in request},
        ),
    )


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content") or ""
    calls = [
        ToolCall(id=call["id"], name=call["function"]["name"], arguments=json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]
    return Message(
        role="system" if message["role"] == "developer" else message["role"],
        content=content if isinstance(content, str) else [_part(part) for part in content],
        tool_calls=calls or None,
        tool_call_id=message.get("tool_call_id"),
    )


def _part(part: Mapping[str, Any]) -> TextPart | ImagePart:
    return TextPart(type="text", text=part["text"]) if part["type"] == "text" else PIXEL


def _without(members: Mapping[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if key not in keys}


def shape(value: Any) -> Any:
    """Keys and nesting, without what means nothing: nulls, empty lists, keys of others."""
    match value:
        case dict():
            kept = {key: shape(member) for key, member in value.items() if key not in UNSENT}
            return {key: member for key, member in kept.items() if member not in (None, [])}
        case list():
            return [shape(member) for member in value]
        case None:
            return None
        case _:
            return type(value).__name__


def test_an_equal_request_of_ours_has_the_recorded_shape(exchange: Exchange):
    recorded = exchange.request
    for tool in recorded.get("tools") or []:
        tool.setdefault("type", "function")
    asked = asked_for(recorded)
    sent = DIALECT.encode(asked, profile(recorded["model"], frozenset(asked.hints.options)), stream=recorded["stream"])
    assert exchange.path.endswith(sent.path)
    assert shape(sent.body) == shape(recorded)
    assert _without(sent.body, {"messages", "tools"}) == _without(recorded, {"messages", "tools"} | UNSENT)
