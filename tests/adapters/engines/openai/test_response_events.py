"""The Responses API: what is answered, whole and in events, and what is no answer."""

from typing import Any

import pytest

from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.domain.contract.messages import UNREADABLE_ARGUMENTS, ToolCall
from portico.domain.contract.response import TokenUsage
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import DialectReader, encode, fault_reason

DIALECT = ResponsesDialect()
READER = DialectReader(DIALECT)
whole, streamed = READER.whole, READER.streamed
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}


def response(*output: Any, **members: Any) -> dict[str, Any]:
    return {
        "object": "response",
        "status": "completed",
        "model": "m-1",
        "output": list(output),
        "error": None,
    } | members


def message(*texts: str, **members: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content} | members


def thought(*summaries: str, **members: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in summaries]
    return {"type": "reasoning", "id": "rs_1", "summary": summary} | members


def asked_for(name: str = "f", arguments: Any = "{}", call_id: Any = "a") -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments}


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 0, **members}


def delta(text: str) -> dict[str, Any]:
    return event("output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta=text)


def done(kind: str = "completed", **members: Any) -> dict[str, Any]:
    return event(kind, response=response(**({"status": kind} | members)))


def begun(place: Any, item: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=place, item=item)


def ended(place: Any, item: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=place, item=item)


def fragment(place: Any, text: Any) -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=place, item_id="fc_1", delta=text)


def test_text_is_that_of_all_messages_and_the_model_the_one_that_answered():
    reply = whole(response(message("Hel", "lo"), message(" again"), usage=USAGE))
    assert (reply.text, reply.model, reply.finish_reason, reply.raw_finish) == ("Hello again", "m-1", "stop", "")
    assert reply.usage == TokenUsage(
        input_tokens=11, output_tokens=7, cached_tokens=3, cache_write_tokens=1, reasoning_tokens=2, total_tokens=18
    )
    assert whole(response(message("a"), model=None)).model == "asked"


def test_a_stream_is_put_together_and_ends_with_its_terminal_event():
    start = event("created", response=response(status="in_progress", model="m-2"))
    reply = streamed(start, delta("Hel"), delta("lo"), done(usage=USAGE, model="m-2"))
    assert (reply.text, reply.model, reply.usage.total_tokens) == ("Hello", "m-2", 18)


@pytest.mark.parametrize("tail", [[], [b"[DONE]"], [event("in_progress", response=response(status="in_progress"))]])
def test_a_stream_without_its_terminal_event_is_malformed(tail: list[Any]):
    assert fault_reason(streamed, delta("a"), *tail) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("status", ["in_progress", "queued", "", None, "other"])
def test_a_whole_reply_that_still_goes_on_is_malformed(status: str | None):
    assert fault_reason(whole, response(message("a"), status=status)) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, delta("a"), done(status=status)) is AttemptFailureReason.MALFORMED


def test_an_answer_cut_by_its_limit_says_so():
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert whole(response(message("Once"), **cut)).finish_reason == "length"
    assert streamed(delta("Once"), done("incomplete", **cut)).finish_reason == "length"
    assert whole(response(message("Once"), status="incomplete", incomplete_details=None)).finish_reason == "length"


def test_an_unknown_reason_is_kept_in_the_providers_word():
    reply = whole(response(message("a"), status="incomplete", incomplete_details={"reason": "steered"}))
    assert (reply.finish_reason, reply.raw_finish) == ("stop", "steered")


def test_a_filter_or_a_refusal_is_a_fault():
    cut = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    refusal = message(content=[{"type": "refusal", "refusal": "I can't."}])
    assert fault_reason(whole, response(message("a"), **cut)) is AttemptFailureReason.CONTENT_FILTERED
    assert fault_reason(streamed, delta("a"), done("incomplete", **cut)) is AttemptFailureReason.CONTENT_FILTERED
    assert fault_reason(whole, response(refusal)) is AttemptFailureReason.CONTENT_FILTERED
    assert (
        fault_reason(streamed, event("refusal.delta", delta="I can't."), done())
        is AttemptFailureReason.CONTENT_FILTERED
    )


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_ending_that_is_a_failure_is_a_fault(status: str):
    assert fault_reason(whole, response(message("a"), status=status)) is AttemptFailureReason.SERVER_ERROR
    assert fault_reason(streamed, delta("a"), done(status=status)) is AttemptFailureReason.SERVER_ERROR


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": "server_error", "message": "x"}, AttemptFailureReason.SERVER_ERROR),
        ({"code": "rate_limit_exceeded", "message": "x"}, AttemptFailureReason.RATE_LIMITED),
        ({"code": "insufficient_quota", "message": "x"}, AttemptFailureReason.QUOTA),
        ({"code": "context_length_exceeded", "message": "x"}, AttemptFailureReason.CONTEXT_EXCEEDED),
        (
            {"code": None, "message": "Your input exceeds the context window of this model."},
            AttemptFailureReason.CONTEXT_EXCEEDED,
        ),
        ({"code": "server_is_overloaded", "message": "x"}, AttemptFailureReason.OVERLOADED),
        ({"code": "invalid_prompt", "message": "x"}, AttemptFailureReason.REFUSED),
        (
            {"code": "invalid_prompt", "message": "potentially violating our usage policy"},
            AttemptFailureReason.CONTENT_FILTERED,
        ),
        ({"code": "bio_policy", "message": "x"}, AttemptFailureReason.CONTENT_FILTERED),
        ({"code": "image_too_large", "message": "x"}, AttemptFailureReason.REFUSED),
        ({"code": "unsupported_image_media_type", "message": "x"}, AttemptFailureReason.REFUSED),
    ],
)
def test_an_error_within_an_answer_is_that_error_in_words_of_ours(error: dict[str, Any], reason: AttemptFailureReason):
    assert fault_reason(whole, response(status="failed", error=error)) is reason
    assert fault_reason(streamed, delta("a"), done("failed", error=error)) is reason
    assert fault_reason(streamed, {"type": "error", "sequence_number": 1, **error}) is reason
    assert fault_reason(streamed, {"type": "error", "error": error}) is reason
    with pytest.raises(EngineError) as caught:
        DIALECT.decode_chunk(encode({"type": "error", "code": "server_error", "message": "secret"}))
    assert "secret" not in caught.value.message


def test_a_failure_without_an_error_is_still_one():
    assert fault_reason(streamed, done("failed")) is AttemptFailureReason.SERVER_ERROR
    assert fault_reason(streamed, {"type": "error"}) is AttemptFailureReason.SERVER_ERROR


def test_reasoning_is_its_summaries_or_the_thoughts_themselves():
    content = [{"type": "reasoning_text", "text": "two "}, {"type": "reasoning_text", "text": "and two"}]
    assert whole(response(thought("one", "two"), message("4"))).reasoning == "one\n\ntwo"
    assert whole(response(thought(content=content), message("4"))).reasoning == "two and two"
    parts = [
        event("reasoning_summary_part.added", summary_index=0),
        event("reasoning_summary_text.delta", summary_index=0, delta="o"),
        event("reasoning_summary_text.delta", summary_index=0, delta="ne"),
        event("reasoning_summary_text.done", summary_index=0, text="one"),
        event("reasoning_summary_part.added", summary_index=1),
        event("reasoning_summary_text.delta", summary_index=1, delta="two"),
    ]
    assert streamed(*parts, delta("4"), done()).reasoning == "one\n\ntwo"
    thinking = [event("reasoning_text.delta", content_index=0, delta=text) for text in ("two ", "and two")]
    assert streamed(*thinking, delta("4"), done()).reasoning == "two and two"


def test_parallel_calls_come_in_order_with_their_ids():
    expected = (ToolCall(id="a", name="f", arguments={"n": 1}), ToolCall(id="b", name="g", arguments={}))
    reply = whole(response(asked_for(arguments='{"n":1}'), asked_for("g", call_id="b")))
    assert (reply.tool_calls, reply.finish_reason) == (expected, "tool")
    interleaved = [
        begun(0, asked_for(arguments="")),
        begun(1, asked_for("g", "", "b")),
        fragment(0, '{"n"'),
        fragment(1, "{"),
        fragment(0, ":1}"),
        fragment(1, "}"),
        event("function_call_arguments.done", output_index=0, arguments='{"n":1}'),
        ended(0, asked_for(arguments='{"n":1}')),
        ended(1, asked_for("g", "{}", "b")),
    ]
    assert streamed(*interleaved, done()).tool_calls == expected


def test_a_server_that_tells_a_call_whole_at_once_is_understood():
    assert streamed(begun(0, asked_for(arguments='{"n":1}')), done()).tool_calls[0].arguments == {"n": 1}


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", '{"a": NaN}', '{"a":1,"a":2}', '{"a":' * 600 + "1" + "}" * 600])
def test_arguments_the_model_wrote_wrong_reach_the_tools_as_text(arguments: str):
    expected = {UNREADABLE_ARGUMENTS: arguments}
    assert whole(response(asked_for(arguments=arguments))).tool_calls[0].arguments == expected
    reply = streamed(begun(0, asked_for(arguments="")), fragment(0, arguments), done())
    assert reply.tool_calls[0].arguments == expected


@pytest.mark.parametrize("arguments", ["", '{"a":1'])
def test_a_call_that_was_cut_is_malformed(arguments: str):
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert fault_reason(whole, response(asked_for(arguments=arguments), **cut)) is AttemptFailureReason.MALFORMED
    begin = [begun(0, asked_for(arguments="")), fragment(0, arguments)]
    assert fault_reason(streamed, *begin, done("incomplete", **cut)) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, *begin) is AttemptFailureReason.MALFORMED


def test_two_calls_with_one_id_are_malformed():
    assert fault_reason(whole, response(asked_for(), asked_for("g"))) is AttemptFailureReason.MALFORMED
    assert (
        fault_reason(streamed, begun(0, asked_for()), begun(1, asked_for("g")), done())
        is AttemptFailureReason.MALFORMED
    )


@pytest.mark.parametrize("call", [asked_for(""), asked_for("f" * 257), asked_for(call_id="x" * 257)])
def test_a_call_without_a_usable_name_or_id_is_malformed(call: dict[str, Any]):
    assert fault_reason(whole, response(call)) is AttemptFailureReason.MALFORMED


def test_items_to_send_back_are_stored_with_their_positions():
    sealed = thought("one", encrypted_content="sealed", status="completed")
    items = [sealed, message("Hi.", phase="commentary"), thought(), asked_for(), asked_for(call_id="b")]
    expected = (
        {"type": "reasoning", "id": "rs_1", "summary": sealed["summary"], "encrypted_content": "sealed"},
        {"type": "message", "characters": 3, "phase": "commentary"},
        {"type": "function_call", "call_id": "a"},
        {"type": "function_call", "call_id": "b"},
    )
    assert whole(response(*items)).kept == expected
    calls = [begun(place, item) for place, item in enumerate(items) if item["type"] == "function_call"]
    assert streamed(*calls, *(ended(place, item) for place, item in enumerate(items)), done()).kept == expected


def test_of_a_plain_answer_and_of_a_first_call_nothing_is_kept():
    assert whole(response(message("Hi."))).kept == whole(response(asked_for())).kept == ()
    assert streamed(begun(0, message()), delta("Hi."), ended(0, message("Hi.")), done()).kept == ()


def test_open_thoughts_are_kept_where_none_are_sealed():
    content = [{"type": "reasoning_text", "text": "two and two"}]
    kept = whole(response(thought(content=content, encrypted_content=None), message("4"))).kept
    assert kept[0] == {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}


def test_an_empty_answer_is_read_as_it_is():
    assert whole(response()).text == whole(response(message())).text == streamed(done()).text == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad gateway</html>",
        b"[]",
        b"3",
        {},
        {"output": []},
        response(3),
        response(status=3),
        response(model=3),
        response(output={"0": 1}),
        response(output="text"),
        response(incomplete_details="x", status="incomplete"),
        response(incomplete_details={"reason": 3}, status="incomplete"),
        response(message(content="text")),
        response(message(content=[3])),
        response(message(content=[{"type": "output_text", "text": 3}])),
        response(thought(summary="x")),
        response(thought(content=[{"text": 3}])),
        response(asked_for(3)),
        response(asked_for(arguments={"a": 1})),
        response(asked_for(call_id=3)),
    ],
)
def test_json_of_the_wrong_shape_is_malformed(body: Any):
    assert fault_reason(whole, body) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize(
    "chunk",
    [
        b"",
        b"[]",
        delta(3),
        event("created"),
        event("created", response=[]),
        event("completed"),
        event("completed", response={}),
        event("incomplete", response=None),
        begun(0, None),
        begun("0", asked_for()),
        begun(None, asked_for()),
        begun(True, asked_for()),
        fragment(None, "{}"),
        fragment(0, {}),
        ended(0, 3),
        ended(None, thought(encrypted_content="sealed")),
        event("reasoning_text.delta", delta=[]),
    ],
)
def test_an_event_of_the_wrong_shape_is_malformed(chunk: Any):
    assert fault_reason(streamed, chunk, done()) is AttemptFailureReason.MALFORMED


def test_events_that_say_nothing_of_the_answer_are_passed_over():
    noise = [
        {},
        {"type": 3},
        {"type": ["response.failed"]},
        {"type": "keepalive"},
        event("queued"),
        event("content_part.added", part={"type": "output_text", "text": ""}),
        event("output_text.done", text="no"),
        event("web_search_call.searching", output_index=0),
        begun(0, message()),
        begun(0, {"type": "web_search_call"}),
        ended(0, {"type": ["odd"]}),
        b"[DONE]",
    ]
    assert streamed(*noise, delta("a"), *noise, done()).text == "a"


STRANGE = [
    b'{"type": NaN}',
    b'{"a": 1e999}',
    b'{"type": "x", "type": "x"}',
    b'{"a": ' + b"1" * 5000 + b"}",
    b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"a": "\\ud800"}',
    b'{"a": "\xff"}',
]


@pytest.mark.parametrize("body", STRANGE, ids=range(len(STRANGE)))
def test_json_that_others_take_silently_is_malformed(body: bytes):
    assert fault_reason(DIALECT.decode, body) is AttemptFailureReason.MALFORMED
    assert fault_reason(DIALECT.decode_chunk, body) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("usage", [None, [], {}, {"input_tokens": -1, "output_tokens": "5", "total_tokens": 2.5}])
def test_usage_that_is_none_counts_nothing(usage: Any):
    assert whole(response(message("a"), usage=usage)).usage == TokenUsage()


@pytest.mark.parametrize("levels", [66, 300, 600])
@pytest.mark.parametrize("member", ["summary", "content"])
def test_thoughts_too_deep_to_be_sent_back_are_malformed(member: str, levels: int):
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    item = thought(content=[{"type": "reasoning_text", "text": "x"}]) | {member: [{"text": "x", "more": deep}]}
    assert fault_reason(whole, response(item, message("4"))) is AttemptFailureReason.MALFORMED
    assert fault_reason(streamed, ended(0, item), done()) is AttemptFailureReason.MALFORMED
