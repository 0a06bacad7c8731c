"""Ollama: what is answered, whole and line by line."""

from typing import Any

import pytest

from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason
from tests.adapters.engines.engine_calls import DialectReader, fault_reason

DIALECT = OllamaDialect()
READER = DialectReader(DIALECT)
whole, streamed = READER.whole, READER.streamed
END = {"done": True, "done_reason": "stop"}


def said(text: str = "", **members: Any) -> dict[str, Any]:
    return {"model": "m-1", "message": {"role": "assistant", "content": text} | members, "done": False}


def asked_for(name: Any = "f", arguments: Any = None, **members: Any) -> dict[str, Any]:
    return {"function": {"index": 0, "name": name, "arguments": arguments}} | members


def calling(arguments: str) -> bytes:
    call = f'{{"function":{{"name":"f","arguments":{arguments}}}}}'
    return f'{{"done":true,"message":{{"tool_calls":[{call}]}}}}'.encode()


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_text_comes_with_the_model_that_answered_or_the_one_that_was_asked():
    assert whole(said("Hi") | END).model == "m-1"
    assert whole({"message": {"content": "Hi"}} | END).model == "asked"


def test_a_stream_is_put_together_and_its_usage_comes_with_the_end():
    counts = {"prompt_eval_count": 3, "eval_count": 2, "total_duration": 9}
    reply = streamed(said("Hel"), said("lo"), said() | END | counts)
    assert (reply.text, reply.finish_reason, reply.raw_finish) == ("Hello", "stop", "")
    assert reply.usage == TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, TokenUsage()),
        ({"eval_count": 2}, TokenUsage(output_tokens=2, total_tokens=2)),
        ({"prompt_eval_count": 3, "eval_count": None}, TokenUsage(input_tokens=3, total_tokens=3)),
        ({"prompt_eval_count": -3, "eval_count": "2"}, TokenUsage()),
    ],
)
def test_counts_that_are_missing_or_odd_are_nothing(counts: dict[str, Any], expected: TokenUsage):
    assert whole(said("a") | END | counts).usage == expected


def test_only_done_makes_an_answer_whole():
    assert streamed(said("a"), {"done": True}).text == "a"
    assert fault_reason(streamed, said("a")) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, said("a") | {"done_reason": "stop"}) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, said("a") | {"done": "true"}) is AttemptFailureReason.MALFORMED
    assert fault_reason(whole, said("a")) is AttemptFailureReason.MALFORMED
    assert fault_reason(whole, {"message": {"content": "a"}}) is AttemptFailureReason.MALFORMED


def test_the_last_line_may_have_no_message():
    assert streamed(said("a"), {"model": "m-1"} | END).text == "a"


@pytest.mark.parametrize(
    ("finish", "word", "raw"),
    [("stop", "stop", ""), ("length", "length", ""), (None, "stop", ""), ("", "stop", ""), ("odd", "stop", "odd")],
)
def test_the_reason_of_the_end_is_said_in_our_words_and_an_unknown_one_kept(finish: str | None, word: str, raw: str):
    reply = whole(said("a") | {"done": True, "done_reason": finish})
    assert (reply.finish_reason, reply.raw_finish) == (word, raw)


@pytest.mark.parametrize("finish", ["load", "unload"])
def test_a_model_that_was_only_loaded_has_not_answered(finish: str):
    assert fault_reason(whole, said() | {"done": True, "done_reason": finish}) is AttemptFailureReason.MALFORMED


def test_thinking_is_reasoning_and_is_stored_to_be_sent_back():
    reply = streamed(said(thinking="two "), said(thinking="and two"), said("4"), said() | END)
    assert (reply.text, reply.reasoning, reply.kept) == ("4", "two and two", ({"thinking": "two and two"},))
    assert whole(said("4", thinking="") | END).kept == ()


def test_calls_come_whole_and_get_ids_of_ours_where_they_have_none():
    lines = [said(tool_calls=[asked_for("f", {"a": 1}), asked_for("g")]), said(tool_calls=[asked_for("f", {})])]
    reply = streamed(*lines, said() | END)
    assert reply.finish_reason == "tool"
    assert reply.tool_calls == (
        ToolCall(id="call_0", name="f", arguments={"a": 1}),
        ToolCall(id="call_1", name="g", arguments={}),
        ToolCall(id="call_2", name="f", arguments={}),
    )


def test_calls_may_come_with_ids_and_with_the_end():
    calls = [asked_for("f", {"city": "Zürich"}, id="call_x"), asked_for("f", {}, id="call_y")]
    for reply in (whole(said(tool_calls=calls) | END), streamed(said("a"), said(tool_calls=calls) | END)):
        assert [(call.id, call.arguments) for call in reply.tool_calls] == [
            ("call_x", {"city": "Zürich"}),
            ("call_y", {}),
        ]


def test_whole_calls_of_a_reply_cut_by_length_are_kept():
    reply = whole(said(tool_calls=[asked_for("f", {"a": 1})]) | {"done": True, "done_reason": "length"})
    assert (reply.finish_reason, reply.tool_calls[0].arguments) == ("length", {"a": 1})


@pytest.mark.parametrize("depth", [65, 200])
def test_arguments_that_could_not_be_passed_on_reach_the_tools_as_text(depth: int):
    reply = whole(calling(f'{{"a":{deep(depth)}}}'))
    assert reply.tool_calls[0].arguments == {UNREADABLE_ARGUMENTS: f'{{"a":{deep(depth)}}}'}


@pytest.mark.parametrize("depth", [260, 600, 1500])
def test_arguments_without_a_bottom_are_malformed(depth: int):
    assert fault_reason(whole, calling(f'{{"a":{deep(depth)}}}')) is AttemptFailureReason.MALFORMED


def test_two_calls_with_one_id_are_malformed():
    twice = [asked_for("f", {"a": 1}, id="x"), asked_for("g", {"a": 2}, id="x")]
    assert fault_reason(whole, said(tool_calls=twice) | END) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, said(tool_calls=twice), END) is AttemptFailureReason.MALFORMED
    ours = [asked_for("f", id="call_1"), asked_for("g")]
    assert fault_reason(whole, said(tool_calls=ours) | END) is AttemptFailureReason.MALFORMED


def test_a_call_that_comes_again_in_a_later_line_is_malformed():
    twice = said(tool_calls=[asked_for("f", {"a": 1}, id="x")])
    assert fault_reason(streamed, twice, twice, END) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("call", [asked_for(""), asked_for("f" * 257), asked_for(id="x" * 257), {}, {"function": {}}])
def test_a_call_without_a_usable_name_or_id_is_malformed(call: dict[str, Any]):
    assert fault_reason(whole, said(tool_calls=[call]) | END) is AttemptFailureReason.MALFORMED


def test_an_empty_answer_is_read_as_it_is():
    assert whole(said() | END).text == ""
    assert whole(said(tool_calls=[], thinking=None, images=None) | END).text == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"[]",
        b"3",
        b"null",
        {},
        {"message": []} | END,
        {"message": "Hi"} | END,
        said(content=3) | END,
        said(content=["a"]) | END,
        said(thinking={"a": 1}) | END,
        said(tool_calls={"a": 1}) | END,
        said(tool_calls=[3]) | END,
        said(tool_calls=[{"function": 3}]) | END,
        said(tool_calls=[asked_for(3)]) | END,
        said(tool_calls=[asked_for(arguments="{}")]) | END,
        said(tool_calls=[asked_for(arguments=[])]) | END,
        said(tool_calls=[asked_for(id=3)]) | END,
        said("a") | END | {"model": 3},
        said("a") | {"done": True, "done_reason": 3},
    ],
)
def test_json_of_the_wrong_shape_is_malformed(body: Any):
    assert fault_reason(whole, body) is AttemptFailureReason.MALFORMED


STRANGE = [
    b'{"done": NaN}',
    b'{"a": Infinity}',
    b'{"a": 1e999}',
    b'{"done": true, "done": false}',
    b'{"a": [{"b": 1, "b": 1}]}',
    b'{"a": ' + b"1" * 5000 + b"}",
    b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"a": "\\ud800"}',
    b'{"a": "\xff"}',
    b'{"a": 1} {"b": 2}',
]


@pytest.mark.parametrize("body", STRANGE, ids=range(len(STRANGE)))
def test_json_that_others_take_silently_is_malformed(body: bytes):
    assert fault_reason(DIALECT.decode, body) is AttemptFailureReason.MALFORMED
    assert fault_reason(DIALECT.decode_chunk, body) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("noise", [{}, {"done": False}, {"message": None}, {"created_at": "now"}, said()])
def test_lines_that_say_nothing_are_passed_over(noise: Any):
    assert streamed(noise, said("a"), noise, END).text == "a"
