"""Anthropic's Messages API: what is answered, whole and in events."""

import json
from typing import Any

import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.wire.deltas import Delta
from portico.adapters.engines.wire.usage import TokenCounts
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason
from tests.adapters.engines.engine_calls import DialectReader, encode, fault_reason

DIALECT = AnthropicDialect()
READER = DialectReader(DIALECT)
whole, streamed = READER.whole, READER.streamed
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEALED = {"type": "redacted_thinking", "data": "c2VhbA=="}
STOP = {"type": "message_stop"}
FOREIGN = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "input": {}},
    {"type": "something_new", "text": "no"},
    {"text": "no"},
]


def message(*blocks: Any, stop: Any = "end_turn", **members: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": stop, **members}


def text(said: Any) -> dict[str, Any]:
    return {"type": "text", "text": said}


def asked_for(name: Any = "f", arguments: Any = None, call_id: Any = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {} if arguments is None else arguments}


def start(**members: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": message(stop=None) | members}


def begin(index: Any, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: Any, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def end(stop: Any = "end_turn", **members: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, **members}, STOP


def written(index: int, block: dict[str, Any], *pieces: str) -> list[dict[str, Any]]:
    """The events of a call whose arguments are written in these pieces."""
    return [begin(index, block), *(more(index, "input_json_delta", partial_json=piece) for piece in pieces)]


def test_text_comes_with_the_model_that_answered_or_the_one_that_was_asked():
    assert whole(message(text("Hi"), model="m-1")).model == "m-1"
    assert whole(message(text("Hi"))).model == "asked"
    assert streamed(start(model="m-1"), *end()).model == "m-1"


def test_a_stream_is_put_together_block_by_block():
    reply = streamed(
        start(),
        begin(0, text("")),
        {"type": "ping"},
        more(0, "text_delta", text="Hel"),
        more(0, "text_delta", text="lo"),
        {"type": "content_block_stop", "index": 0},
        begin(1, text("")),
        more(1, "text_delta", text="!"),
        {"type": "content_block_stop", "index": 1},
        *end(),
    )
    assert (reply.text, reply.finish_reason, reply.raw_finish) == ("Hello!", "stop", "")
    assert reply.kept == ()
    assert whole(message(text("Hello"), text("!"))).text == "Hello!"


def test_a_stream_without_an_end_is_malformed():
    assert (
        fault_reason(streamed, start(), begin(0, text("")), more(0, "text_delta", text="a"))
        is AttemptFailureReason.MALFORMED
    )
    assert (
        fault_reason(streamed, start(), more(0, "text_delta", text="a"), end(None)[0]) is AttemptFailureReason.MALFORMED
    )
    assert (
        fault_reason(streamed, start(), more(0, "text_delta", text="a"), end("end_turn")[0])
        is AttemptFailureReason.MALFORMED
    )
    assert fault_reason(whole, message(text("a"), stop=None)) is AttemptFailureReason.MALFORMED
    assert streamed(more(0, "text_delta", text="a"), STOP).text == "a"


def test_the_end_of_a_stream_is_its_last_event():
    assert [DIALECT.decode_chunk(encode(event)).done for event in end()] == [False, True]


@pytest.mark.parametrize(
    ("stop", "word", "raw"),
    [
        ("end_turn", "stop", ""),
        ("stop_sequence", "stop", ""),
        ("max_tokens", "length", ""),
        ("model_context_window_exceeded", "length", ""),
        ("pause_turn", "stop", "pause_turn"),
        ("something_new", "stop", "something_new"),
    ],
)
def test_an_ending_is_said_in_our_words_and_an_unknown_one_kept_in_the_providers(stop: str, word: str, raw: str):
    for reply in (whole(message(text("a"), stop=stop)), streamed(more(0, "text_delta", text="a"), *end(stop))):
        assert (reply.text, reply.finish_reason, reply.raw_finish) == ("a", word, raw)


@pytest.mark.parametrize("stop", ["tool_use", "end_turn", "stop_sequence"])
def test_a_reply_with_calls_ends_as_tool(stop: str):
    assert whole(message(asked_for(), stop=stop)).finish_reason == "tool"


def test_a_refusal_is_a_fault():
    assert fault_reason(whole, message(text("I can't"), stop="refusal")) is AttemptFailureReason.CONTENT_FILTERED
    details = {"type": "refusal", "category": "cyber", "explanation": "x"}
    refused = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}}
    assert fault_reason(streamed, start(), refused, STOP) is AttemptFailureReason.CONTENT_FILTERED


def test_parallel_calls_come_in_order_with_their_ids():
    calls = (
        ToolCall(id="toolu_1", name="f", arguments={"city": "Zürich", "n": [1, 2.5]}),
        ToolCall(id="toolu_2", name="g", arguments={}),
    )
    first, second = asked_for("f", calls[0].arguments), asked_for("g", call_id="toolu_2")
    assert whole(message(text("Both."), first, second, stop="tool_use")).tool_calls == calls
    pieces = written(1, asked_for(), "", '{"city": "Zür', 'ich", "n": [1, 2.5', "]}")
    reply = streamed(begin(0, text("Both.")), *pieces, *written(2, second, ""), *end("tool_use"))
    assert (reply.text, reply.tool_calls) == ("Both.", calls)


def test_fragments_of_calls_that_are_written_at_once_find_their_call():
    both = [*written(0, asked_for("f")), *written(1, asked_for("g", call_id="toolu_2"))]
    pieces = [more(index, "input_json_delta", partial_json=piece) for piece in ('{"a":', "1}") for index in (0, 1)]
    calls = streamed(*both, *pieces, *end("tool_use")).tool_calls
    assert [(call.name, call.arguments) for call in calls] == [("f", {"a": 1}), ("g", {"a": 1})]


def test_arguments_that_stand_at_the_beginning_of_a_block_are_taken():
    assert streamed(begin(0, asked_for(arguments={"a": 1})), *end("tool_use")).tool_calls[0].arguments == {"a": 1}


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "3", '{"a": NaN}', '{"a":1,"a":2}', '{"a":"\\ud800"}'])
def test_arguments_the_model_wrote_wrong_reach_the_tools_as_text(arguments: str):
    [call] = streamed(*written(0, asked_for(), arguments), *end("tool_use")).tool_calls
    assert call.arguments == {UNREADABLE_ARGUMENTS: arguments}


@pytest.mark.parametrize("arguments", [[1], "text", 3])
def test_arguments_that_are_no_object_reach_the_tools_as_text(arguments: Any):
    [call] = whole(message(asked_for(arguments=arguments), stop="tool_use")).tool_calls
    assert json.loads(call.arguments[UNREADABLE_ARGUMENTS]) == arguments


@pytest.mark.parametrize("stop", ["max_tokens", "model_context_window_exceeded"])
def test_a_call_that_was_cut_is_malformed(stop: str):
    for arguments in ("", '{"a":', '{"a":1'):
        assert fault_reason(streamed, *written(0, asked_for(), arguments), *end(stop)) is AttemptFailureReason.MALFORMED
    assert (
        fault_reason(whole, message(text("a"), asked_for(arguments={"a": 1}), stop=stop))
        is AttemptFailureReason.MALFORMED
    )


def test_whole_calls_of_a_reply_cut_by_length_are_kept():
    reply = streamed(*written(0, asked_for(), '{"a":1}'), begin(1, text("And")), *end("max_tokens"))
    assert (reply.finish_reason, reply.tool_calls[0].arguments) == ("length", {"a": 1})
    reply = whole(message(asked_for(arguments={"a": 1}), text("And"), stop="max_tokens"))
    assert (reply.finish_reason, reply.tool_calls[0].arguments) == ("length", {"a": 1})


def test_two_calls_with_one_id_are_malformed():
    twice = [asked_for("f"), asked_for("g")]
    assert fault_reason(whole, message(*twice, stop="tool_use")) is AttemptFailureReason.MALFORMED
    assert (
        fault_reason(streamed, *written(0, twice[0]), *written(1, twice[1]), *end("tool_use"))
        is AttemptFailureReason.MALFORMED
    )


@pytest.mark.parametrize("call", [asked_for(""), asked_for("f" * 257), asked_for(call_id="x" * 257), asked_for(None)])
def test_a_call_without_a_usable_name_or_id_is_malformed(call: dict[str, Any]):
    assert fault_reason(whole, message(call, stop="tool_use")) is AttemptFailureReason.MALFORMED


def thoughts(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(block) for block in whole(message(*blocks)).kept]


def test_thoughts_are_kept_as_they_came_and_read_as_reasoning():
    reply = whole(message(THOUGHT, SEALED, text("4")))
    assert (reply.reasoning, reply.text) == ("hm", "4")
    assert reply.kept == (THOUGHT, {**SEALED, "index": 1})
    assert thoughts(text("So"), THOUGHT, asked_for()) == [{**THOUGHT, "index": 1}]
    assert thoughts({**THOUGHT, "mood": "calm", "weight": {"a": [1]}, "data": None}) == [{**THOUGHT, "mood": "calm"}]


def test_a_thought_that_came_in_pieces_is_kept_whole():
    reply = streamed(
        begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
        more(0, "thinking_delta", thinking="h"),
        more(0, "thinking_delta", thinking="m"),
        more(0, "signature_delta", signature="c2ln"),
        begin(1, SEALED),
        begin(2, text("4")),
        begin(3, {"type": "thinking", "thinking": "", "signature": ""}),
        more(3, "signature_delta", signature="c2ln"),
        *end(),
    )
    assert (reply.reasoning, reply.text) == ("hm", "4")
    assert reply.kept == (THOUGHT, {**SEALED, "index": 1}, {**THOUGHT, "thinking": "", "index": 3})


def test_what_tools_of_the_provider_do_is_passed_over():
    assert whole(message(*FOREIGN, text("a"))).text == "a"
    assert streamed(*(begin(number, block) for number, block in enumerate(FOREIGN)), *end()).tool_calls == ()


def test_what_tools_of_the_provider_are_asked_is_passed_over():
    foreign = [event for number, block in enumerate(FOREIGN) for event in written(number, block, "", '{"a":', "1}")]
    reply = streamed(*foreign, *written(9, asked_for(), '{"a":', "1}"), *end("tool_use"))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("f", {"a": 1})]


def test_events_that_say_nothing_are_passed_over():
    citation = {"type": "char_location", "cited_text": "x"}
    noise = [{"type": "ping"}, {}, {"type": "something_new", "delta": 3}, more(0, "citations_delta", citation=citation)]
    assert streamed(*noise, begin(0, text("a")), *noise, *end(), *noise).text == "a"
    assert all(DIALECT.decode_chunk(encode(event)) == Delta() for event in noise)


def test_an_empty_answer_is_read_as_it_is():
    assert whole(message()).text == ""
    assert streamed(start(), *end()).text == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"[]",
        b"3",
        {},
        {"content": "text", "stop_reason": "end_turn"},
        {"content": None, "stop_reason": "end_turn"},
        {"content": {"0": text("a")}, "stop_reason": "end_turn"},
        message("a"),
        message(None),
        message(text(3)),
        message({"type": ["text"], "text": "a"}),
        message({"type": "thinking", "thinking": 3}),
        message({"type": "thinking", "thinking": "hm", "signature": {}}),
        message({"type": "redacted_thinking", "data": [1]}),
        message(asked_for(3)),
        message(asked_for(call_id=3)),
        message(text("a"), stop=3),
        message(text("a"), stop=["end_turn"]),
        message(text("a"), model=3),
    ],
)
def test_json_of_the_wrong_shape_is_malformed(body: Any):
    assert fault_reason(whole, body) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"[DONE]",
        [],
        {"type": 3},
        {"type": ["ping"]},
        {"type": "message_start"},
        {"type": "message_start", "message": "x"},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "content_block": text("a")},
        begin("0", text("a")),
        begin(0, "a"),
        begin(0, {"type": {}}),
        {"type": "content_block_delta", "index": 0},
        more(0, "text_delta", text=3),
        more(None, "input_json_delta", partial_json="{}"),
        more(0, "input_json_delta", partial_json={}),
        more("x", "thinking_delta", thinking="hm"),
        more(0, "signature_delta", signature=[1]),
        {"type": "message_delta"},
        end(3)[0],
    ],
)
def test_an_event_of_the_wrong_shape_is_malformed(event: Any):
    assert fault_reason(DIALECT.decode_chunk, encode(event)) is AttemptFailureReason.MALFORMED


STRANGE = [
    b'{"content": NaN}',
    b'{"a": 1e999}',
    b'{"type": "ping", "type": "ping"}',
    b'{"a": ' + b"1" * 5000 + b"}",
    b'{"a": ' + b"1" * 30 + b"}",
    b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"a": ' + b"[" * 1020 + b"]" * 1020 + b"}",
    b'{"a": "\\ud800"}',
    b'{"a": "\xff"}',
    b'{"a": "\xc3"}',
    b'{"stop_reason": "tool_use", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": '
    + b'{"a":' * 600
    + b"1"
    + b"}" * 600
    + b"}]}",
]


@pytest.mark.parametrize("body", STRANGE, ids=range(len(STRANGE)))
def test_json_that_others_take_silently_is_malformed(body: bytes):
    assert fault_reason(DIALECT.decode, body) is AttemptFailureReason.MALFORMED
    if b"tool_use" not in body:
        assert fault_reason(DIALECT.decode_chunk, body) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, TokenUsage()),
        ([], TokenUsage()),
        ({"input_tokens": 10, "output_tokens": 5}, TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15)),
        (
            {
                "input_tokens": 3,
                "cache_creation_input_tokens": 400,
                "cache_read_input_tokens": 1100,
                "output_tokens": 30,
                "output_tokens_details": {"thinking_tokens": 20},
            },
            TokenUsage(
                input_tokens=1503,
                output_tokens=30,
                cached_tokens=1100,
                cache_write_tokens=400,
                reasoning_tokens=20,
                total_tokens=1533,
            ),
        ),
        (
            {"input_tokens": -1, "output_tokens": "5", "cache_read_input_tokens": None, "output_tokens_details": [1]},
            TokenUsage(),
        ),
    ],
)
def test_input_counts_what_came_from_the_cache_and_what_was_written_to_it(usage: Any, expected: TokenUsage):
    assert whole(message(text("a"), usage=usage)).usage == expected
    assert streamed(start(usage=usage), *end(usage=usage)).usage == expected


def test_the_usage_of_a_stream_is_known_from_its_first_event_on():
    first = start(usage={"input_tokens": 25, "cache_read_input_tokens": 5, "output_tokens": 1})
    used = DIALECT.decode_chunk(encode(first)).usage
    assert used == TokenCounts(input_tokens=30, output_tokens=1, cached_tokens=5)
    used = streamed(first, *end(usage={"output_tokens": 15})).usage
    assert used == TokenUsage(input_tokens=30, output_tokens=15, cached_tokens=5, total_tokens=45)
