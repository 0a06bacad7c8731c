"""Gemini: what is answered, whole and in pieces."""

import json
from typing import Any

import pytest

from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.gemini.replies import FINISH_REASONS
from portico.adapters.engines.wire.usage import TokenCounts
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason
from tests.adapters.engines.engine_calls import DialectReader, encode, fault_reason

DIALECT = GeminiDialect()
READER = DialectReader(DIALECT)
whole, streamed = READER.whole, READER.streamed


def said(*parts: Any, finish: Any = None, **members: Any) -> dict[str, Any]:
    """A reply or chunk; a part that is text stands for itself."""
    sent_parts = [{"text": part} if isinstance(part, str) else part for part in parts]
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": sent_parts}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **members}


def ended(*parts: Any, **members: Any) -> dict[str, Any]:
    return said(*parts, finish="STOP", **members)


def calling(name: Any = "f", args: Any = None, signature: Any = None, **members: Any) -> dict[str, Any]:
    call = {"name": name, **({} if args is None else {"args": args}), **members}
    return {"functionCall": call} | ({} if signature is None else {"thoughtSignature": signature})


def test_text_comes_with_the_model_that_answered_or_the_one_that_was_asked():
    assert whole(ended("Hi", modelVersion="gemini-2.5-flash")).model == "gemini-2.5-flash"
    assert whole(ended("Hi")).model == "asked"


def test_a_stream_is_put_together_and_its_usage_is_the_last_one():
    reply = streamed(
        said("Hel", usageMetadata={"promptTokenCount": 3, "totalTokenCount": 3}),
        said("", "lo"),
        said(finish="STOP", usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 1, "totalTokenCount": 4}),
        {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}},
    )
    assert (reply.text, reply.finish_reason, reply.raw_finish) == ("Hello", "stop", "")
    assert reply.usage == TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)


@pytest.mark.parametrize("finish", [None, "", "FINISH_REASON_UNSPECIFIED"])
def test_a_finish_reason_makes_a_stream_whole_and_nothing_else(finish: str | None):
    assert streamed(said("a"), said(finish="STOP")).text == "a"
    assert fault_reason(streamed, said("a", finish=finish)) is AttemptFailureReason.MALFORMED
    assert whole(said("a", finish=finish)).raw_finish == ""


def test_thoughts_are_kept_apart_from_the_text():
    thought = {"text": "Two and two. ", "thought": True}
    assert whole(ended(thought, thought, "4")).reasoning == "Two and two. Two and two. "
    reply = streamed(said(thought), said("4"), ended("!"))
    assert (reply.text, reply.reasoning, reply.kept) == ("4!", "Two and two. ", ())


@pytest.mark.parametrize(
    ("finish", "word", "raw"),
    [("STOP", "stop", ""), ("MAX_TOKENS", "length", ""), ("CONTINUATION", "length", ""), ("OTHER", "stop", "OTHER")],
)
def test_a_finish_reason_is_said_in_our_words_and_an_unknown_one_kept_in_the_providers(
    finish: str, word: str, raw: str
):
    for reply in (whole(said("a", finish=finish)), streamed(said("a"), said(finish=finish))):
        assert (reply.finish_reason, reply.raw_finish) == (word, raw)


@pytest.mark.parametrize(
    ("finish", "reason"), [(f, r) for f, r in FINISH_REASONS.items() if isinstance(r, AttemptFailureReason)]
)
def test_an_ending_that_is_a_failure_is_a_fault(finish: str, reason: AttemptFailureReason):
    candidate = {"candidates": [{"finishReason": finish, "index": 0}]}
    assert fault_reason(whole, candidate) is fault_reason(streamed, said("a"), candidate) is reason


@pytest.mark.parametrize("blocked", ["SAFETY", "OTHER", "PROHIBITED_CONTENT", "SOMETHING_NEW"])
def test_a_blocked_prompt_is_filtered_and_its_usage_is_reported(blocked: str):
    body = {"promptFeedback": {"blockReason": blocked}, "usageMetadata": {"promptTokenCount": 7}, "modelVersion": "m"}
    assert fault_reason(whole, body) is fault_reason(streamed, body) is AttemptFailureReason.CONTENT_FILTERED
    assert DIALECT.decode(encode(body)).usage == TokenCounts(input_tokens=7)


def test_feedback_that_blocks_nothing_is_passed_over():
    assert whole(ended("a", promptFeedback={"safetyRatings": []})).text == "a"


def test_parallel_calls_come_in_order_with_their_ids_and_signatures():
    parts = [calling("f", {"a": 1}, "c2ln", id="x"), calling("g", {}, id="y")]
    reply = whole(ended("Both.", *parts))
    assert reply.tool_calls == (
        ToolCall(id="x", name="f", arguments={"a": 1}),
        ToolCall(id="y", name="g", arguments={}),
    )
    assert (reply.text, reply.finish_reason) == ("Both.", "tool")
    assert reply.kept == ({"call": "x", "signature": "c2ln"},)
    assert streamed(said("Both."), said(parts[0]), said(parts[1]), ended("")) == reply


@pytest.mark.parametrize("parts", [[calling("f"), calling("f")], [calling("f", id=""), calling("f", id=None)]])
def test_calls_without_ids_are_distinct_and_get_ids_of_ours(parts: list[Any]):
    expected = [("call_0", "f"), ("call_1", "f")]
    for reply in (whole(ended(*parts)), streamed(*map(said, parts), ended()), streamed(said(*parts), ended())):
        assert [(call.id, call.name) for call in reply.tool_calls] == expected


def test_a_signature_of_a_call_that_got_our_id_stays_with_it():
    reply = streamed(said(calling("f", {}, "c2ln")), said(calling("g")), ended())
    assert reply.kept == ({"call": "call_0", "signature": "c2ln"},)


@pytest.mark.parametrize("args", [None, {}])
def test_missing_arguments_are_an_empty_object(args: Any):
    assert whole(ended(calling(args=args))).tool_calls[0].arguments == {}
    assert whole(ended({"functionCall": {"name": "f", "args": None}})).tool_calls[0].arguments == {}


@pytest.mark.parametrize("args", [[1], 3, "x", True])
def test_arguments_that_are_no_object_reach_the_tools_as_text(args: Any):
    arguments = whole(ended(calling(args=args))).tool_calls[0].arguments
    assert arguments == {UNREADABLE_ARGUMENTS: json.dumps(args)}


def test_arguments_nested_too_deeply_reach_the_tools_as_text_or_not_at_all():
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    assert whole(ended(calling(args=deep))).tool_calls[0].arguments.keys() == {UNREADABLE_ARGUMENTS}
    for _ in range(300):
        deep = {"a": deep}
    assert fault_reason(whole, ended(calling(args=deep))) is AttemptFailureReason.MALFORMED


def test_two_calls_with_one_id_are_malformed():
    twice = calling("f", id="x"), calling("g", id="x")
    assert fault_reason(whole, ended(*twice)) is AttemptFailureReason.MALFORMED
    assert fault_reason(whole, ended(calling("f", id="x"), calling("f", id="x"))) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, said(*twice), ended()) is AttemptFailureReason.MALFORMED
    assert fault_reason(whole, ended(calling("f", id="call_1"), calling("g"))) is AttemptFailureReason.MALFORMED


def test_a_call_that_comes_again_with_its_id_is_malformed():
    again = said(calling("f", {"a": 1}, id="x"))
    assert fault_reason(streamed, again, again, ended()) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("call", [calling(""), calling(None), calling("f" * 257), calling(id="x" * 257)])
def test_a_call_without_a_usable_name_or_id_is_malformed(call: dict[str, Any]):
    assert fault_reason(whole, ended(calling("g"), call)) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, said(calling("g")), said(call), ended()) is AttemptFailureReason.MALFORMED


def test_whole_calls_of_a_reply_cut_by_length_are_kept():
    reply = whole(said(calling("f", {"a": 1}), finish="MAX_TOKENS"))
    assert (reply.finish_reason, reply.tool_calls[0].arguments) == ("length", {"a": 1})
    assert whole(said(calling("f"), finish="MAX_TOKENS")).tool_calls[0].arguments == {}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"text": "a", "thoughtSignature": "c2ln"}, {"text": "a", "thoughtSignature": "c2ln"}),
        ({"text": "", "thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "c2ln"}),
        ({"thoughtSignature": "c2ln"}, {"text": "", "thoughtSignature": "c2ln"}),
        (
            {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
            {"text": "hm", "thought": True, "thoughtSignature": "c2ln"},
        ),
    ],
)
def test_a_signed_text_or_thought_is_kept_as_it_came(part: Any, block: Any):
    assert whole(ended(part)).kept == streamed(said(part), ended()).kept == ({"part": block},)


def test_signatures_of_several_chunks_are_kept_in_their_order():
    parts = [{"text": str(number), "thoughtSignature": f"c2ln{number}"} for number in range(20)]
    assert streamed(*map(said, parts), ended()).kept == tuple({"part": part} for part in parts)


def test_a_signature_that_comes_again_is_not_joined_to_itself():
    first, second = ({"text": text, "thoughtSignature": "c2ln"} for text in ("a", ""))
    reply = streamed(said(first), said(second), said(second), ended())
    assert reply.kept == ({"part": first}, {"part": second})


def test_parts_of_the_providers_own_tools_are_passed_over():
    others = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"toolCall": {"id": "x"}, "thoughtSignature": "c2ln"},
        {"inlineData": {"mimeType": "image/png", "data": ""}, "thoughtSignature": "c2ln"},
        {},
    ]
    reply = whole(ended("a", *others))
    assert (reply.text, reply.tool_calls, reply.kept) == ("a", (), ())


@pytest.mark.parametrize(
    "candidate",
    [{"finishReason": "STOP"}, {"content": {}, "finishReason": "STOP"}, {"content": None, "finishReason": "STOP"}],
)
def test_an_empty_answer_is_read_as_it_is(candidate: Any):
    assert whole({"candidates": [candidate]}).text == streamed({"candidates": [candidate]}).text == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"[]",
        b"[3]",
        b"3",
        [ended("a"), ended("b")],
        {},
        {"candidates": []},
        {"candidates": {}},
        {"candidates": [3]},
        {"candidates": [ended("a")["candidates"][0] | {"index": 1}]},
        {"candidates": [{"content": 3, "finishReason": "STOP"}]},
        {"candidates": [{"content": {"parts": {}}, "finishReason": "STOP"}]},
        {"candidates": [{"content": {"parts": "a"}, "finishReason": "STOP"}]},
        {"promptFeedback": 3},
        {"promptFeedback": {"blockReason": 3}},
        ended(3),
        ended({"text": 3}),
        ended({"text": {"a": 1}, "thought": True}),
        ended({"functionCall": 3}),
        ended({"functionCall": None}),
        ended(calling(3)),
        ended(calling(id=3)),
        ended(calling(signature=3)),
        ended({"text": "a", "thoughtSignature": 3}),
        said("a", finish=3),
        ended("a", modelVersion=3),
    ],
)
def test_json_of_the_wrong_shape_is_malformed(body: Any):
    assert fault_reason(whole, body) is AttemptFailureReason.MALFORMED


STRANGE = [
    b'{"candidates": NaN}',
    b'{"a": Infinity}',
    b'{"a": 1e999}',
    b'{"candidates": [], "candidates": []}',
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


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"},
            AttemptFailureReason.OVERLOADED,
        ),
        ({"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED"}, AttemptFailureReason.RATE_LIMITED),
        ({"code": 500, "message": "x", "status": "INTERNAL"}, AttemptFailureReason.SERVER_ERROR),
        ({"code": 400, "message": "x"}, AttemptFailureReason.REFUSED),
        ({"code": 200, "message": "x"}, AttemptFailureReason.SERVER_ERROR),
        ({"code": "429"}, AttemptFailureReason.SERVER_ERROR),
        ("something", AttemptFailureReason.SERVER_ERROR),
        ([3], AttemptFailureReason.SERVER_ERROR),
    ],
)
def test_an_error_within_a_reply_is_no_reply(error: Any, reason: AttemptFailureReason):
    assert fault_reason(whole, {"error": error}) is fault_reason(whole, [{"error": error}]) is reason
    assert fault_reason(streamed, said("a"), {"error": error}) is reason
    assert fault_reason(streamed, ended("a"), {"error": error}) is reason


def test_a_reply_that_is_the_only_one_of_a_list_is_one():
    assert whole([ended("a")]).text == "a"


def test_chunks_that_say_nothing_are_passed_over():
    noise = [{}, {"candidates": []}, {"candidates": [{}]}, {"responseId": "x"}, {"candidates": None}]
    other = {"candidates": [{"index": 1, "content": {"parts": [{"text": "no"}]}, "finishReason": "STOP"}]}
    assert streamed(*noise, other, ended("a"), *noise).text == "a"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, TokenUsage()),
        ([], TokenUsage()),
        ({}, TokenUsage()),
        (
            {
                "promptTokenCount": 10,
                "candidatesTokenCount": 5,
                "thoughtsTokenCount": 3,
                "cachedContentTokenCount": 4,
                "toolUsePromptTokenCount": 2,
                "totalTokenCount": 20,
            },
            TokenUsage(input_tokens=12, output_tokens=8, cached_tokens=4, reasoning_tokens=3, total_tokens=20),
        ),
        (
            {"promptTokenCount": 10, "thoughtsTokenCount": 3},
            TokenUsage(input_tokens=10, output_tokens=3, reasoning_tokens=3, total_tokens=13),
        ),
        ({"promptTokenCount": -1, "candidatesTokenCount": "5", "totalTokenCount": None}, TokenUsage()),
    ],
)
def test_thoughts_and_what_tools_put_in_are_counted_where_they_belong(usage: Any, expected: TokenUsage):
    assert whole(ended("a", usageMetadata=usage)).usage == expected
    assert streamed(ended("a", usageMetadata=usage)).usage == expected


def test_the_usage_of_a_reply_without_a_candidate_is_reported():
    delta = DIALECT.decode(encode({"usageMetadata": {"promptTokenCount": 7}}))
    assert delta.usage == TokenCounts(input_tokens=7)
    assert delta.finish is None
