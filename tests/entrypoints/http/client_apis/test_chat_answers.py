"""Answers of chat completions: the frames of a stream fold to the JSON answer, however text was cut."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pytest

from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.wire.event_stream import EventStreamParser
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.domain.contract.messages import Message, ToolCall
from portico.domain.contract.response import (
    ResponseMetadata,
    SystemError,
    SystemResponse,
    TokenUsage,
    ToolCallMade,
    ToolCallStatus,
)
from portico.domain.failures import Code, InferenceFailure
from portico.domain.ids import RequestId, SpanId, ToolCallId, TraceId
from portico.domain.journal.events import (
    CorrelationContext,
    Event,
    ExecutionCompleted,
    ExecutionFailed,
    InferenceDelta,
    InferenceEnd,
    InferenceRetracted,
    InferenceStart,
    LiveDelta,
    StoredEvent,
    ToolStart,
)
from portico.domain.lifecycle import Mode, State
from portico.entrypoints.http.client_apis.chat_completions import CHAT_COMPLETIONS, ChatShown
from portico.entrypoints.http.client_apis.stream import TurnStream
from portico.entrypoints.http.client_apis.turn import DisplayTime, TurnReader, turn_of

REQUEST_ID = RequestId("01a2094c-1d1d-72d6-8e05-6d99ba442741")
HEX = "01a2094c1d1d72d68e056d99ba442741"
IDS = CorrelationContext(REQUEST_ID, None, TraceId("0" * 31 + "1"), SpanId("1" * 16), None)
FIRST, ANSWER = "I look it up. \U0001f50d", "Ulm has 130,000 people, 人口."
SHOWN = ChatShown(model="gpt-4o", is_stream=True, includes_usage=True, has_extension=True)
DIALECT = ChatCompletionsDialect()


def response(**changes: Any) -> SystemResponse:
    """Return a chat of two turns: a call that ran here, then the answer."""
    call = ToolCall(id=ToolCallId("c1"), name="search", arguments={"q": "Ulm"})
    made = ToolCallMade(
        id="c1",
        name="search",
        arguments={"q": "Ulm"},
        status=ToolCallStatus.DONE,
        result="130,000",
        is_error=False,
        attempts=1,
        duration_ms=1.0,
    )
    fields: dict[str, Any] = {
        "request_id": REQUEST_ID,
        "trace_id": IDS.trace_id,
        "mode": Mode.CHAT,
        "state": State.COMPLETE,
        "content": ANSWER,
        "messages": [
            Message(role="assistant", content=FIRST, tool_calls=[call]),
            Message(role="tool", content="130,000", tool_call_id=ToolCallId("c1")),
            Message(role="assistant", content=ANSWER),
        ],
        "tool_calls_made": [made],
        "token_usage": TokenUsage(input_tokens=7, output_tokens=5, total_tokens=12, cached_tokens=3),
        "metadata": ResponseMetadata(finish_reason="stop", provider="primary", model="m"),
    }
    return SystemResponse(**{**fields, **changes})


def stored(*events: Event) -> list[StoredEvent]:
    return [StoredEvent(number, 0.0, "0", IDS, event) for number, event in enumerate(events, 1)]


def started(segment: str) -> InferenceStart:
    return InferenceStart(
        segment, 1, 0, schema_present=False, grammar_present=False, temperature=None, provider="primary", model="m"
    )


def ended(segment: str, *calls: str) -> InferenceEnd:
    reason = "tool" if calls else "stop"
    return InferenceEnd(segment, 1.0, 1, 1, reason, len(calls), tuple(ToolCallId(call) for call in calls))


def deltas(segment: str, text: str, size: int) -> Iterator[LiveDelta]:
    for offset in range(0, len(text), size):
        yield LiveDelta(0.0, IDS, InferenceDelta(segment, offset, text=text[offset : offset + size]))


def run(size: int) -> list[StoredEvent | LiveDelta]:
    """Return the events of that chat, with its texts in pieces of this many code points."""
    search = ToolStart("search", ToolCallId("c1"), "")
    return [
        *stored(started("0/0")),
        *deltas("0/0", FIRST, size),
        *stored(ended("0/0", "c1"), search, started("2/0")),
        *deltas("2/0", ANSWER, size),
        *stored(ended("2/0"), ExecutionCompleted(response())),
    ]


def stream(delivery: DisplayTime = DisplayTime.LIVE, *, mode: Mode = Mode.CHAT, is_whole: bool = True) -> TurnStream:
    reader = TurnReader(mode, delivery, is_whole=is_whole)
    return TurnStream(reader, CHAT_COMPLETIONS.frames(REQUEST_ID, SHOWN), REQUEST_ID)


def frames(items: Sequence[StoredEvent | LiveDelta], **options: Any) -> bytes:
    """Return the stream of these events, read one by one."""
    encoder = stream(**options)
    return b"".join([*(encoder.encode([item]) for item in items[:-1]), encoder.end(items[-1:], is_stopping=False)])


def chunks(data: bytes) -> list[dict[str, Any]]:
    lines = [frame.removeprefix(b"data: ") for frame in data.split(b"\n\n") if frame]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def folded(data: bytes) -> dict[str, Any]:
    """Return the JSON answer that the chunks add up to."""
    found = chunks(data)
    message: dict[str, Any] = {"content": ""}
    calls: list[dict[str, Any]] = []
    for delta in (choice["delta"] for chunk in found for choice in chunk["choices"]):
        message["content"] += delta.get("content") or ""
        message |= {key: value for key, value in delta.items() if key in {"role", "refusal"}}
        for part in delta.get("tool_calls", ()):
            if "id" in part:
                calls.append({"id": part["id"], "type": part["type"], "function": dict(part["function"])})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    [last] = [chunk for chunk in found if chunk["choices"] and chunk["choices"][0]["finish_reason"]]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": last["choices"][0]["finish_reason"]}
    head = {"id": found[0]["id"], "created": found[0]["created"], "model": found[0]["model"]}
    body = {**head, "object": "chat.completion", "choices": [choice], "usage": found[-1]["usage"]}
    return {**body, "portico": last["portico"]}


def whole(answer: SystemResponse) -> dict[str, Any]:
    return json.loads(CHAT_COMPLETIONS.encode(turn_of(answer), SHOWN))


@pytest.mark.parametrize("delivery", DisplayTime)
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_the_frames_of_a_stream_fold_to_the_json_answer(size: int, delivery: DisplayTime) -> None:
    data = frames(run(size), delivery=delivery)
    assert folded(data) == whole(response())
    assert data.endswith(b"data: [DONE]\n\n")
    assert folded(data)["choices"][0]["message"]["content"] == f"{FIRST}\n\n{ANSWER}"
    assert folded(data)["id"] == f"chatcmpl-{HEX}"


def test_a_reader_that_comes_late_misses_nothing() -> None:
    items = run(3)
    for first in range(len(items)):
        late = folded(frames(items[first:], is_whole=False))
        assert late["choices"][0]["message"] == whole(response())["choices"][0]["message"], first
    no_deltas = stored(ended("0/0", "c1"), ended("2/0"), ExecutionCompleted(response()))
    assert folded(frames(no_deltas, is_whole=False)) == whole(response())


def test_client_calls_are_two_chunks_each_and_have_ids_of_the_execution() -> None:
    named = (("x", "weather", {"town": "Ulm"}), ("y", "time", {}))
    answer = _calling([ToolCall(id=ToolCallId(call), name=name, arguments=given) for call, name, given in named])
    data = frames(stored(started("0/0"), ended("0/0", "x", "y"), ExecutionCompleted(answer)))
    assert folded(data) == whole(answer)
    [choice] = folded(data)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["id"] for call in choice["message"]["tool_calls"]] == [f"call_{HEX}_0", f"call_{HEX}_1"]
    deltas_of_calls = [chunk for chunk in chunks(data) for c in chunk["choices"] if c["delta"].get("tool_calls")]
    assert len(deltas_of_calls) == 4


def test_the_dialect_reads_streams_and_answers_as_they_were_meant() -> None:
    calls = [ToolCall(id=ToolCallId("x"), name="weather", arguments={"town": "Ulm"})]
    for answer, items in ((response(), run(5)), (client := _calling(calls), _calling_events(client))):
        streamed, read = ReplyBuilder(DIALECT.finish_reasons), ReplyBuilder(DIALECT.finish_reasons)
        parser = EventStreamParser(1_000_000)
        for event in parser.feed(frames(items)):
            streamed.add(DIALECT.decode_chunk(event))
        read.add(DIALECT.decode(CHAT_COMPLETIONS.encode(turn_of(answer), SHOWN)))
        left, right = streamed.build(""), read.build("")
        assert (left.text, left.tool_calls, left.usage) == (right.text, right.tool_calls, right.usage)
        assert left.usage == answer.token_usage
        assert [call.arguments for call in left.tool_calls] == [call.arguments for call in answer.client_calls]


def _calling(calls: list[ToolCall]) -> SystemResponse:
    turn = Message(role="assistant", content="", tool_calls=calls)
    return response(content=None, messages=[turn], tool_calls_made=[], client_calls=calls)


def _calling_events(answer: SystemResponse) -> list[StoredEvent]:
    return stored(started("0/0"), ended("0/0", "x"), ExecutionCompleted(answer))


def test_the_text_of_two_attempts_is_never_joined() -> None:
    first, second = list(deltas("0/0", "It is w", 3)), list(deltas("0/1", ANSWER, 3))
    failed = InferenceEnd("0/0", 1.0, 1, 1, "error", 0)
    retracted = stored(failed, InferenceRetracted("0/0"), started("0/1"))
    end = stored(ended("0/1"), ExecutionCompleted(response(messages=[], tool_calls_made=[])))
    encoder = stream()
    data = b"".join(encoder.encode([item]) for item in [*stored(started("0/0")), *first, *retracted, *second])
    assert encoder.is_over
    assert chunks(data)[-1]["error"]["code"] == "INFERENCE_MALFORMED_RESPONSE"
    assert b"[DONE]" not in data
    settled = frames([*stored(started("0/0")), *first, *retracted, *second, *end], delivery=DisplayTime.COMMITTED)
    assert folded(settled)["choices"][0]["message"]["content"] == ANSWER


def test_texts_of_agents_and_judges_are_no_part_of_the_answer() -> None:
    inner = list(deltas("1/0/0/0/0", "thinking aloud", 4)) + list(deltas("guard/0/0/0", "fine", 4))
    items = run(9)
    assert frames([*items[:4], *inner, *items[4:]]) == frames(items)


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("failed", "INFERENCE_MODEL_UNAVAILABLE"),
        ("dropped", "REQUEST_OVERLOADED"),
        ("stopping", "REQUEST_IN_PROGRESS"),
        ("denied", "invalid_api_key"),
    ],
)
def test_a_stream_that_does_not_end_well_ends_with_an_error(last: str, code: str) -> None:
    encoder, items = stream(), run(4)[:5]
    data = encoder.encode(items)
    error = SystemError.of(InferenceFailure(Code.INFERENCE_MODEL_UNAVAILABLE, "no provider has answered"))
    match last:
        case "failed":
            broken = response(state=State.ERROR, error=error)
            data += encoder.end(stored(ExecutionFailed(broken)), is_stopping=False)
        case "denied":
            data += encoder.denied()
        case _:
            data += encoder.end([], is_stopping=last == "stopping")
    assert chunks(data)[-1]["error"]["code"] == code
    assert not data.endswith(b"data: [DONE]\n\n")
