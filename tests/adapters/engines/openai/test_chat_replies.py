"""Chat completions: what is answered, whole and in pieces, by OpenAI and by servers that follow it loosely."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.wire.deltas import Delta
from portico.adapters.engines.wire.usage import TokenCounts
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import DialectReader, call, chat_chunk, fault_reason, profile

DIALECT = ChatCompletionsDialect()
READER = DialectReader(DIALECT)
whole, streamed = READER.whole, READER.streamed


def message(finish: Any = "stop", **members: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **members}, "finish_reason": finish}]}


def asked_for(name: str = "f", arguments: Any = "{}", **members: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **members}


def fragments(*fragments: dict[str, Any]) -> list[Any]:
    return [*(chat_chunk(tool_calls=[fragment]) for fragment in fragments), chat_chunk(finish="tool_calls")]


def test_text_comes_with_the_model_that_answered_or_the_one_that_was_asked():
    assert whole(message(content="Hi") | {"model": "m-1"}).model == "m-1"
    assert whole(message(content="Hi")).model == "asked"


def test_a_stream_is_put_together_and_its_usage_may_follow_the_end():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    reply = streamed(
        chat_chunk("", role="assistant"),
        chat_chunk("Hel"),
        chat_chunk("lo"),
        chat_chunk(finish="stop"),
        {"choices": [], "usage": usage},
        b"[DONE]",
    )
    assert (reply.text, reply.finish_reason, reply.raw_finish) == ("Hello", "stop", "")
    assert reply.usage == TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)


def test_a_finish_reason_or_done_makes_a_stream_whole_and_nothing_else():
    assert streamed(chat_chunk("a"), chat_chunk(finish="stop")).text == "a"
    assert streamed(chat_chunk("a"), b"[DONE]").text == "a"
    assert fault_reason(streamed, chat_chunk("a")) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, chat_chunk("a", finish="")) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_apart_under_either_name(name: str):
    assert whole(message(content="4", **{name: "two and two"})).reasoning == "two and two"
    assert (
        streamed(chat_chunk(**{name: "two "}), chat_chunk(**{name: "and two"}), chat_chunk("4", "stop")).reasoning
        == "two and two"
    )


def test_reasoning_sent_under_both_names_is_not_doubled():
    assert whole(message(content="4", reasoning="hm", reasoning_content="hm")).reasoning == "hm"


def test_a_content_of_parts_is_split_into_text_and_reasoning():
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": "4"}, {"type": "reference", "reference_ids": [1]}]
    reply = whole(message(content=parts))
    assert (reply.text, reply.reasoning) == ("4", "hm")
    assert streamed(chat_chunk(parts), chat_chunk("!", "stop")).text == "4!"


@pytest.mark.parametrize(
    ("finish", "word"),
    [("stop", "stop"), ("length", "length"), ("model_length", "length"), ("eos", "stop"), ("", "stop"), (None, "stop")],
)
def test_a_finish_reason_is_said_in_our_words_and_an_unknown_one_kept_in_the_providers(finish: str | None, word: str):
    reply = whole(message(finish, content="a"))
    assert (reply.finish_reason, reply.raw_finish) == (word, "eos" if finish == "eos" else "")


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call", ""])
def test_a_reply_with_calls_ends_as_tool_under_any_final_word(finish: str):
    assert whole(message(finish, content=None, tool_calls=[asked_for(id="a")])).finish_reason == "tool"


def test_parallel_calls_come_in_order_with_their_ids():
    reply = whole(message("tool_calls", tool_calls=[asked_for("f", '{"a":1}', id="x"), asked_for("g", id="y")]))
    assert reply.tool_calls == (
        ToolCall(id="x", name="f", arguments={"a": 1}),
        ToolCall(id="y", name="g", arguments={}),
    )


def test_fragments_of_parallel_calls_are_joined_by_index():
    reply = streamed(
        *fragments(
            asked_for("f", "", index=0, id="x"),
            asked_for("g", '{"b"', index=1, id="y"),
            {"index": 0, "function": {"arguments": '{"a":'}},
            {"index": 1, "function": {"arguments": ":2}"}},
            {"index": 0, "function": {"arguments": "1}"}},
        )
    )
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("x", "f", {"a": 1}),
        ("y", "g", {"b": 2}),
    ]


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([asked_for("f"), asked_for("f")], [("call_0", "f"), ("call_1", "f")]),
        ([asked_for("f", id="x"), asked_for("g", id="y")], [("x", "f"), ("y", "g")]),
        ([asked_for("f", id="x", index=0), asked_for("g", id="y", index=0)], [("x", "f"), ("y", "g")]),
        ([asked_for("f", index=0), asked_for("g", index=0)], [("call_0", "f"), ("call_1", "g")]),
        ([asked_for("f", "{", id="x", index=0), asked_for("f", "}", id="x", index=0)], [("x", "f")]),
        ([asked_for("f", "{", index=0), asked_for("f", "}", index=0)], [("call_0", "f")]),
        ([asked_for("f", "{", id="x"), {"function": {"arguments": "}"}}], [("x", "f")]),
        ([asked_for("f", "{", id="", index=None), {"id": "x", "function": {"arguments": "}"}}], [("x", "f")]),
    ],
)
def test_calls_without_index_or_id_are_distinct_and_get_ids_of_ours(
    pieces: list[dict[str, Any]], calls: list[tuple[str, str]]
):
    assert [(call.id, call.name) for call in streamed(*fragments(*pieces)).tool_calls] == calls


def test_an_empty_id_is_none():
    assert whole(message("tool_calls", tool_calls=[asked_for(id="")])).tool_calls[0].id == "call_0"


@pytest.mark.parametrize("arguments", ["", "  ", None, {}])
def test_missing_arguments_are_an_empty_object(arguments: Any):
    assert whole(message("tool_calls", tool_calls=[asked_for(arguments=arguments)])).tool_calls[0].arguments == {}


def test_arguments_that_are_an_object_already_are_taken():
    arguments = {"city": "Zürich", "n": [1, 2.5]}
    assert (
        whole(message("tool_calls", tool_calls=[asked_for(arguments=arguments)])).tool_calls[0].arguments == arguments
    )


def test_a_call_of_the_old_kind_is_a_call():
    legacy = {"name": "f", "arguments": '{"a":1}'}
    expected = (ToolCall(id="call_0", name="f", arguments={"a": 1}),)
    assert whole(message("function_call", function_call=legacy)).tool_calls == expected
    halves = (
        chat_chunk(function_call={"name": "f", "arguments": '{"a"'}),
        chat_chunk(function_call={"arguments": ":1}"}),
    )
    assert streamed(*halves, chat_chunk(finish="function_call")).tool_calls == expected
    assert whole(message("stop", content="a", function_call={"name": "", "arguments": ""})).tool_calls == ()


@pytest.mark.parametrize(
    "arguments",
    ['{"a":', "[1]", "3", "{'a': 1}", '{"a": NaN}', '{"a":1,"a":2}', '{"a":"\\ud800"}', '{"a":' + "9" * 30 + "}"]
    + ['{"a":' * depth + "1" + "}" * depth for depth in (66, 600, 5000)],
)
def test_arguments_the_model_wrote_wrong_reach_the_tools_as_text(arguments: str):
    reply = whole(message("tool_calls", tool_calls=[asked_for(arguments=arguments, id="x")]))
    assert reply.tool_calls[0].arguments == {UNREADABLE_ARGUMENTS: arguments}


@pytest.mark.parametrize("arguments", ["", '{"a":', '{"a":1'])
def test_a_call_that_was_cut_is_malformed(arguments: str):
    cut = asked_for(arguments=arguments, id="x", index=0)
    assert fault_reason(whole, message("length", tool_calls=[cut])) is AttemptFailureReason.MALFORMED
    assert (
        fault_reason(streamed, chat_chunk(tool_calls=[cut]), chat_chunk(finish="length"))
        is AttemptFailureReason.MALFORMED
    )
    assert fault_reason(streamed, chat_chunk(tool_calls=[cut])) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("finish", ["tool_calls", "length", "stop"])
def test_arguments_that_are_completed_after_the_finish_reason_make_the_reply_malformed(finish: str):
    begun = chat_chunk(tool_calls=[asked_for("delete", '{"path":"a"', id="x", index=0)])
    completed = chat_chunk(tool_calls=[{"index": 0, "function": {"arguments": ',"force":true}'}}])
    another = chat_chunk(tool_calls=[asked_for("delete", "{}", id="y", index=1)])
    for late in (completed, another):
        reason = fault_reason(streamed, begun, chat_chunk(finish=finish), late, b"[DONE]")
        assert reason is AttemptFailureReason.MALFORMED
    [call] = streamed(begun, completed, chat_chunk(finish=finish, tool_calls=[]), b"[DONE]").tool_calls
    assert call.arguments == {"path": "a", "force": True}


def test_whole_calls_of_a_reply_cut_by_length_are_kept():
    reply = whole(message("length", tool_calls=[asked_for(arguments='{"a":1}', id="x")]))
    assert (reply.finish_reason, reply.tool_calls[0].arguments) == ("length", {"a": 1})


def test_two_calls_with_one_id_are_malformed():
    twice = [asked_for("f", id="x", index=0), asked_for("g", id="x", index=1)]
    assert fault_reason(whole, message("tool_calls", tool_calls=twice)) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, *fragments(*twice)) is AttemptFailureReason.MALFORMED
    ours = [asked_for("f", id="call_1"), asked_for("g")]
    assert fault_reason(whole, message("tool_calls", tool_calls=ours)) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("call", [asked_for(""), asked_for("f" * 257), asked_for(id="x" * 257), {"type": "custom"}])
def test_a_call_without_a_usable_name_or_id_is_malformed(call: dict[str, Any]):
    assert fault_reason(whole, message("tool_calls", tool_calls=[call])) is AttemptFailureReason.MALFORMED


def test_an_empty_answer_is_read_as_it_is():
    assert whole(message(content="")).text == ""
    assert whole(message(content=None)).text == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"[]",
        b"3",
        {},
        {"choices": []},
        {"choices": {}},
        {"choices": {"0": 1}},
        {"choices": [3]},
        {"choices": [{"index": 1, "message": {"content": "a"}}]},
        {"choices": [{"finish_reason": "stop"}]},
        {"choices": [{"message": None, "finish_reason": "stop"}]},
        message(content=3),
        message(content=[3]),
        message(3, content="a"),
        message(content="a", reasoning=[1]),
        message(content="a", tool_calls={"a": 1}),
        message(content="a", tool_calls=[3]),
        message(content="a", tool_calls=[asked_for(3)]),
        message(content="a", tool_calls=[asked_for(arguments=3)]),
        message(content="a") | {"model": 3},
    ],
)
def test_json_of_the_wrong_shape_is_malformed(body: Any):
    assert fault_reason(whole, body) is AttemptFailureReason.MALFORMED


STRANGE = [
    b'{"choices": NaN}',
    b'{"a": Infinity}',
    b'{"a": 1e999}',
    b'{"choices": [], "choices": []}',
    b'{"a": [{"b": 1, "b": 1}]}',
    b'{"a": ' + b"1" * 5000 + b"}",
    b'{"a": ' + b"1" * 30 + b"}",
    b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"a": ' + b"[" * 1020 + b"]" * 1020 + b"}",
    b'{"a": "\\ud800"}',
    b'{"a": "\xff"}',
    b'{"a": "\xc3"}',
]


@pytest.mark.parametrize("body", STRANGE, ids=range(len(STRANGE)))
def test_json_that_others_take_silently_is_malformed(body: bytes):
    assert fault_reason(DIALECT.decode, body) is AttemptFailureReason.MALFORMED
    assert fault_reason(DIALECT.decode_chunk, body) is AttemptFailureReason.MALFORMED


def test_a_content_filter_or_a_refusal_is_a_fault_and_keeps_its_usage_known():
    assert fault_reason(whole, message("content_filter", content="a")) is AttemptFailureReason.CONTENT_FILTERED
    assert (
        fault_reason(whole, message(content=None, refusal="I can't help with that."))
        is AttemptFailureReason.CONTENT_FILTERED
    )
    assert (
        fault_reason(streamed, chat_chunk(refusal="I can't"), chat_chunk(finish="stop"))
        is AttemptFailureReason.CONTENT_FILTERED
    )
    assert whole(message(content="a", refusal="")).text == "a"


def test_an_ending_that_is_a_failure_is_a_fault():
    assert fault_reason(whole, message("error", content="a")) is AttemptFailureReason.SERVER_ERROR
    assert fault_reason(streamed, chat_chunk("a", "insufficient_system_resource")) is AttemptFailureReason.OVERLOADED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"message": "overloaded", "code": 502}, AttemptFailureReason.OVERLOADED),
        ({"message": "x", "code": 429}, AttemptFailureReason.RATE_LIMITED),
        ({"message": "x", "code": "429"}, AttemptFailureReason.RATE_LIMITED),
        ({"message": "x", "code": "tool_use_failed", "status_code": 400}, AttemptFailureReason.REFUSED),
        ({"message": "x", "type": "server_error"}, AttemptFailureReason.SERVER_ERROR),
        ({"code": "insufficient_quota"}, AttemptFailureReason.QUOTA),
        ("something", AttemptFailureReason.SERVER_ERROR),
    ],
)
def test_an_error_within_a_reply_is_no_reply(error: Any, reason: AttemptFailureReason):
    assert fault_reason(whole, {"error": error}) is reason
    assert fault_reason(streamed, chat_chunk("a", "stop"), {"error": error}) is reason
    assert fault_reason(streamed, {"choices": [{"index": 0, "delta": {}, "error": error}]}) is reason


def test_chunks_that_say_nothing_are_passed_over():
    noise = [{"choices": []}, {"choices": [], "prompt_filter_results": []}, {"object": "ping"}, {"choices": [{}]}]
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    assert streamed(*noise, other, chat_chunk("a", "stop"), *noise).text == "a"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, TokenUsage()),
        ([], TokenUsage()),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            TokenUsage(
                input_tokens=10,
                output_tokens=5,
                cached_tokens=4,
                cache_write_tokens=2,
                reasoning_tokens=3,
                total_tokens=20,
            ),
        ),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": None, "num_cached_tokens": 4},
            TokenUsage(input_tokens=10, cached_tokens=4, total_tokens=10),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            TokenUsage(input_tokens=10, output_tokens=5, cached_tokens=4, total_tokens=15),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            TokenUsage(input_tokens=10, output_tokens=8, reasoning_tokens=3, total_tokens=18),
        ),
        ({"prompt_tokens": -1, "completion_tokens": "5", "total_tokens": None}, TokenUsage()),
    ],
)
def test_usage_is_read_wherever_it_stands(usage: Any, expected: TokenUsage):
    assert whole(message(content="a") | {"usage": usage}).usage == expected
    assert streamed(chat_chunk("a", "stop") | {"usage": usage}).usage == expected
    assert streamed(chat_chunk("a", "stop") | {"x_groq": {"usage": usage}}).usage == expected


def test_the_usage_of_a_reply_without_a_choice_is_reported():
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    delta = ChatCompletionsDialect().decode(orjson.dumps({"choices": [], "usage": usage}))
    assert delta.usage == TokenCounts(input_tokens=7, output_tokens=2, total_tokens=9)
    assert delta.finish is None


def test_reasoning_content_is_kept_even_when_it_is_empty():
    assert whole(message(content="4", reasoning_content="two and two")).kept == ({"reasoning_content": "two and two"},)
    assert whole(message(content="4", reasoning_content="")).kept == ({"reasoning_content": ""},)
    assert whole(message(content="4", reasoning_content=None, reasoning="two and two")).kept == ()
    pieces = chat_chunk(reasoning_content="two "), chat_chunk(reasoning_content="and two"), chat_chunk("4", "stop")
    assert streamed(*pieces).kept == ({"reasoning_content": "two and two"},)


def test_details_of_reasoning_are_kept_by_kind_and_index_with_their_texts_joined():
    details = [
        {"type": "reasoning.text", "text": "two ", "format": "f", "index": 0, "id": None, "signature": None},
        {"type": "reasoning.text", "text": "and two", "format": "f", "index": 0, "id": None, "signature": None},
        {"type": "reasoning.text", "text": "", "format": "f", "index": 0, "id": None, "signature": "signed"},
        {"type": "reasoning.encrypted", "data": "sealed", "index": 0, "id": "rs_1"},
        {"type": "reasoning.summary", "summary": "four", "index": 1},
        {"type": "reasoning.other", "more": 1},
    ]
    rest = {"type": "reasoning.text", "format": "f", "index": 0, "id": None}
    others = (
        {"reasoning_detail": {"type": "reasoning.encrypted", "index": 0, "id": "rs_1"}, "data": "sealed"},
        {"reasoning_detail": {"type": "reasoning.summary", "index": 1}, "summary": "four"},
        {"reasoning_detail": {"type": "reasoning.other", "more": 1}},
    )
    reply = streamed(*(chat_chunk(reasoning_details=[detail]) for detail in details), chat_chunk("4", "stop"))
    assert reply.kept == ({"reasoning_detail": rest, "text": "two and two", "signature": "signed"}, *others)
    joined = details[0] | {"text": "two and two", "signature": "signed"}
    assert whole(message(content="4", reasoning_details=[joined, *details[3:]])).kept == reply.kept


def test_details_are_sent_back_as_they_came():
    details = [
        {"type": "reasoning.text", "text": "two", "format": "f", "index": 0, "signature": None},
        {"type": "reasoning.encrypted", "data": "sealed", "index": 1, "id": "rs_1"},
    ]
    extra = {"google": {"thought_signature": "signed"}}
    reply = whole(message(content="4", reasoning_details=details, extra_content=extra))
    sent = DIALECT.encode(call([reply.message("primary")]), profile(), stream=False).body["messages"]
    assert sent == [{"role": "assistant", "content": "4", "reasoning_details": details, "extra_content": extra}]


def test_googles_signature_of_a_call_is_kept_with_the_id_that_the_call_got():
    signed = {"extra_content": {"google": {"thought_signature": "signed"}}}
    expected = ({"call": "call_0", "signature": "signed"},)
    assert whole(message("tool_calls", tool_calls=[asked_for(id="", **signed), asked_for(id="b")])).kept == expected
    assert streamed(*fragments(asked_for(index=0, **signed))).kept == expected
    for extra in (None, [], {"google": None}, {"other": {"thought_signature": "x"}}):
        assert whole(message("tool_calls", tool_calls=[asked_for(extra_content=extra)])).kept == ()


@pytest.mark.parametrize(
    "members",
    [
        {"reasoning_content": ["x"]},
        {"reasoning_details": {"type": "reasoning.text"}},
        {"reasoning_details": ["x"]},
        {"extra_content": "x"},
        {"tool_calls": [asked_for(extra_content={"google": {"thought_signature": 3}})]},
    ],
)
def test_what_is_to_be_kept_in_a_wrong_shape_is_malformed(members: dict[str, Any]):
    assert fault_reason(whole, message(content="4", **members)) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, chat_chunk("4", "stop", **members)) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("index", [True, -3, 2**63, "0", None, 1.5])
def test_strange_indexes_of_details_lose_nothing(index: Any):
    details = [{"type": "reasoning.text", "text": "a", "index": index}]
    assert whole(message(content="4", reasoning_details=details)).kept[0]["text"] == "a"


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"index": 0, "delta": {"content": "a", "role": 3}, "finish_reason": 3}]},
        {"choices": [{"index": 0, "delta": ["a"]}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "model": 3},
        {"choices": [{"index": 0, "delta": {"content": {"a": 1}}}]},
    ],
)
def test_a_chunk_of_the_wrong_shape_is_malformed(chunk: dict[str, Any]):
    assert fault_reason(streamed, chunk) is AttemptFailureReason.MALFORMED


def test_the_usage_of_a_chunk_that_also_adds_text_is_not_passed_over():
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert streamed(chat_chunk("a") | {"usage": usage}, chat_chunk("b", "stop")).usage.total_tokens == 5
    assert streamed(chat_chunk("a") | {"x_groq": {"usage": usage}}, chat_chunk("b", "stop")).usage.total_tokens == 5


@pytest.mark.parametrize(
    ("added_to_message", "added_to_choice", "added_to_reply", "expected"),
    [
        ({}, {}, {}, Delta("a", model="m")),
        ({"role": "assistant"}, {"logprobs": None}, {"usage": None, "id": "x"}, Delta("a", model="m")),
        ({"reasoning": "r"}, {}, {}, Delta("a", "r", model="m")),
        ({"refusal": "no"}, {}, {}, Delta("a", model="m", refused=True)),
        ({}, {"finish_reason": "stop"}, {}, Delta("a", finish="stop", model="m")),
        ({}, {"index": 1}, {}, Delta(model="m")),
        ({}, {}, {"usage": {"prompt_tokens": 3}}, Delta("a", usage=TokenCounts(3), model="m")),
        ({}, {}, {"x_groq": {"usage": {"prompt_tokens": 3}}}, Delta("a", usage=TokenCounts(3), model="m")),
    ],
)
def test_everything_beside_the_text_of_a_chunk_is_decoded(
    added_to_message: dict[str, Any],
    added_to_choice: dict[str, Any],
    added_to_reply: dict[str, Any],
    expected: Delta,
):
    choice = {"index": 0, "delta": {"content": "a", **added_to_message}, "finish_reason": None, **added_to_choice}
    assert DIALECT.decode_chunk(orjson.dumps({"model": "m", "choices": [choice], **added_to_reply})) == expected


@pytest.mark.parametrize("place", ["reply", "choice"])
def test_an_error_beside_the_text_of_a_chunk_is_a_fault(place: str):
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
    reply: dict[str, Any] = {"model": "m", "choices": [choice]}
    {"reply": reply, "choice": choice}[place]["error"] = {"code": "rate_limit_exceeded"}
    with pytest.raises(EngineError) as raised:
        DIALECT.decode_chunk(orjson.dumps(reply))
    assert raised.value.reason is AttemptFailureReason.RATE_LIMITED


@pytest.mark.parametrize("levels", [66, 300, 600])
def test_a_value_too_deep_to_be_sent_back_is_malformed(levels: int):
    deep: Any = 1
    for _ in range(levels):
        deep = {"a": deep}
    members: list[dict[str, Any]] = [
        {"extra_content": deep},
        {"reasoning_details": [{"type": "reasoning.text", "text": "x", "more": deep}]},
        {"tool_calls": [asked_for(arguments=deep)]},
    ]
    for member in members:
        assert fault_reason(whole, message(content="4", **member)) is AttemptFailureReason.MALFORMED
        assert fault_reason(streamed, chat_chunk("4", "stop", **member)) is AttemptFailureReason.MALFORMED


@settings(deadline=None, max_examples=50, derandomize=True)
@given(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.sampled_from([{}, {"role": "assistant"}, {"refusal": None}, {"reasoning_content": "hm"}]),
    st.sampled_from(
        [{}, {"usage": None}, {"usage": {"prompt_tokens": 3}}, {"x_groq": {"id": "x"}}, {"model": 3}, {"error": "x"}]
    ),
    st.sampled_from([None, "stop"]),
    st.booleans(),
)
def test_a_chunk_means_the_same_after_every_other_chunk(
    text: str, beside: dict[str, Any], more: dict[str, Any], finish: str | None, escaped: bool
) -> None:
    delta = {**beside, "content": text}
    value = {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
    data = json.dumps(value, ensure_ascii=escaped, separators=(",", ":")).encode()
    spaced = json.dumps(value, ensure_ascii=escaped).encode()
    assert outcome(data) == outcome(data) == outcome(spaced)


def outcome(data: bytes) -> Any:
    """Return the delta of an event, or the reason of its fault."""
    try:
        return ChatCompletionsDialect().decode_chunk(data)
    except EngineError as fault:
        return fault.reason


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"a\x01b", b"\xe2\x80"])
def test_a_text_that_is_no_json_is_malformed_though_all_around_it_was_read_before(text: bytes) -> None:
    around = (b'{"model":"m","choices":[{"index":0,"delta":{"content":"', b'"}}]}')
    assert outcome(around[0] + b"fine" + around[1]) == Delta("fine", model="m")
    assert outcome(around[0] + text + around[1]) is AttemptFailureReason.MALFORMED
