"""Replies of Bedrock's Converse API, whole and streamed."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.broken_replies import misshapen
from tests.adapters.engines.engine_calls import DialectReader, fault_reason

READ = DialectReader(BedrockDialect())
USAGE = {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 7, "cacheWriteInputTokens": 5, "totalTokens": 25}
CALL = {"toolUse": {"toolUseId": "t1", "name": "roll", "input": {"sides": 6}}}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
SEALED = {"reasoningContent": {"redactedContent": "c2VhbA=="}}

MALFORMED = {AttemptFailureReason.MALFORMED, AttemptFailureReason.BROKEN}
"""What a reply may fail for that is not as it should be."""


def whole(*blocks: Any, stop: str = "end_turn") -> dict[str, Any]:
    return {"output": {"message": {"role": "assistant", "content": list(blocks)}}, "stopReason": stop, "usage": USAGE}


def delta(number: int, **content: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": number, "delta": content}}


STREAMED = (
    {"messageStart": {"role": "assistant"}},
    delta(0, reasoningContent={"text": "h"}),
    delta(0, reasoningContent={"text": "m"}),
    delta(0, reasoningContent={"signature": "c2ln"}),
    delta(1, reasoningContent={"redactedContent": "c2VhbA=="}),
    delta(2, text="Rol"),
    delta(2, text="ling"),
    {"contentBlockStop": {"contentBlockIndex": 2}},
    {"contentBlockStart": {"contentBlockIndex": 3, "start": {"toolUse": {"toolUseId": "t1", "name": "roll"}}}},
    delta(3, toolUse={"input": '{"sid'}),
    delta(3, toolUse={"input": 'es": 6}'}),
    delta(4, somethingNew={"a": 1}),
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": USAGE, "metrics": {}}},
)


def test_a_stream_and_a_whole_reply_are_one_answer() -> None:
    streamed = READ.streamed(*STREAMED)
    assert streamed == READ.whole(whole(THOUGHT, SEALED, {"text": "Rolling"}, CALL, stop="tool_use"))
    assert (streamed.text, streamed.reasoning, streamed.finish_reason) == ("Rolling", "hm", "tool")
    assert streamed.tool_calls[0].arguments == {"sides": 6}
    assert streamed.kept == (
        {"reasoningText": "hm", "signature": "c2ln"},
        {"redactedContent": "c2VhbA==", "index": 1},
    )


def test_a_value_of_the_wrong_kind_anywhere_is_a_reply_or_malformed() -> None:
    body = orjson.dumps(whole(THOUGHT, SEALED, {"text": "Rolling"}, CALL, stop="tool_use"))
    events = [orjson.dumps(event) for event in STREAMED]
    found: set[object] = set()
    for changed in misshapen(body):
        found.add(outcome_of(READ.whole, changed))
    for number, event in enumerate(events):
        for changed in misshapen(event):
            found.add(outcome_of(READ.streamed, *events[:number], changed, *events[number + 1 :]))
    assert found <= {*MALFORMED, Reply}
    assert {AttemptFailureReason.MALFORMED, Reply} <= found


def outcome_of(read: Callable[..., Reply], *bodies: bytes) -> object:
    """Return the reason of the failure, or the type of what was read."""
    try:
        return type(read(*bodies))
    except EngineError as error:
        return error.reason


def test_tokens_of_caches_are_input_tokens() -> None:
    usage = READ.whole(whole({"text": "Hi"})).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (22, 3, 25)
    assert (usage.cached_tokens, usage.cache_write_tokens) == (7, 5)


def test_text_with_citations_is_text_and_tools_of_the_provider_are_not_ours() -> None:
    cited = {"citationsContent": {"content": [{"text": "Hi"}], "citations": []}}
    search = {"toolUse": {"toolUseId": "s", "name": "search", "input": {}, "type": "server_tool_use"}}
    answer = READ.whole(whole(cited, search))
    assert (answer.text, answer.tool_calls) == ("Hi", ())


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("guardrail_intervened", AttemptFailureReason.CONTENT_FILTERED),
        ("content_filtered", AttemptFailureReason.CONTENT_FILTERED),
        ("malformed_tool_use", AttemptFailureReason.MALFORMED),
    ],
)
def test_a_reply_that_ended_as_a_failure_is_one(stop: str, reason: AttemptFailureReason) -> None:
    assert fault_reason(READ.whole, whole({"text": "Hi"}, stop=stop)) is reason


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        {},
        {"output": {"message": {"content": [1]}}, "stopReason": "end_turn"},
        whole(CALL, stop="max_tokens"),
        {"output": {"message": {"content": [{"toolUse": []}]}}, "stopReason": "tool_use"},
    ],
)
def test_other_bodies_are_malformed(body: Any) -> None:
    assert fault_reason(READ.whole, body) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize(
    "events", [STREAMED[:-2], ({"contentBlockDelta": {"delta": {"toolUse": {"input": "{}"}}}},), ([],)]
)
def test_other_streams_are_malformed(events: Any) -> None:
    assert fault_reason(READ.streamed, *events) is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (400, "Input is too long for requested model.", AttemptFailureReason.CONTEXT_EXCEEDED),
        (400, "The provided model identifier is invalid.", AttemptFailureReason.MODEL_MISSING),
        (
            400,
            "Invocation of a with on-demand throughput isn't supported.",
            AttemptFailureReason.MODEL_MISSING,
        ),
        (400, "tool_choice is wrong", AttemptFailureReason.REFUSED),
        (403, "You don't have access to the model with the specified model ID.", AttemptFailureReason.MODEL_MISSING),
        (403, "The security token included in the request is expired", AttemptFailureReason.CREDENTIALS),
        (404, "", AttemptFailureReason.MODEL_MISSING),
        (408, "", AttemptFailureReason.TIMED_OUT),
        (424, "", AttemptFailureReason.SERVER_ERROR),
        (429, "Too many requests", AttemptFailureReason.RATE_LIMITED),
        (429, "Too many tokens per day, please wait before trying again.", AttemptFailureReason.QUOTA),
        (429, "The model is not ready", AttemptFailureReason.OVERLOADED),
        (503, "", AttemptFailureReason.OVERLOADED),
    ],
)
def test_a_failure_has_its_reason(status: int, message: str, reason: AttemptFailureReason) -> None:
    body = b'{"message": "%s"}' % message.encode()
    assert BedrockDialect().failure_reason(status, body) is reason
    assert BedrockDialect().failure_reason(status, b"<html>") is not None
