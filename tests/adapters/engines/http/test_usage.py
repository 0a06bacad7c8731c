"""The usage of an attempt is reported, however it ends."""

from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.gemini.dialect import GeminiDialect
from portico.adapters.engines.ollama.dialect import OllamaDialect
from portico.adapters.engines.openai.chat_completions import ChatCompletionsDialect
from portico.adapters.engines.openai.responses import ResponsesDialect
from portico.adapters.engines.wire.usage import NO_BOUNDS, TokenCounts, UsageAccumulator
from portico.domain.contract.response import NO_USAGE, TokenUsage
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import HI_REPLY, call, chat_chunk, engine
from tests.support.emulators.server import engine_at
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import ScriptedUpstream, UpstreamAction, UpstreamPause, event, event_stream, reply


def part_with_usage(text: str, written: int) -> bytes:
    """A piece of a stream that says what was used by then, as Gemini does."""
    part = {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}}]}
    return event(part | {"usageMetadata": {"promptTokenCount": 15, "candidatesTokenCount": written}})


@pytest.mark.parametrize("act", [UpstreamAction.CLOSE, UpstreamAction.RESET])
async def test_the_last_known_usage_of_a_stream_that_is_cut_is_reported_once(act: UpstreamAction):
    heard = RecordedProgress()
    pieces = (
        part_with_usage("a", 2),
        part_with_usage("b", 3),
        UpstreamPause(0.01),
        part_with_usage("c", 14) + part_with_usage("d", 25),
        act,
    )
    async with ScriptedUpstream(event_stream(*pieces)) as upstream, engine_at(upstream.url, GeminiDialect()) as asker:
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), heard, stream=True)
    assert caught.value.reason is AttemptFailureReason.BROKEN
    assert heard.texts == ["a", "b", "c", "d"]
    assert heard.usages == [TokenUsage(input_tokens=15, output_tokens=25, total_tokens=40)]


async def test_the_usage_of_a_cancelled_attempt_is_reported():
    heard = RecordedProgress()
    script = event_stream(part_with_usage("a", 2), part_with_usage("b", 3), UpstreamAction.HANG)
    async with (
        ScriptedUpstream(script) as upstream,
        engine_at(upstream.url, GeminiDialect()) as asker,
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(asker.attempt, call(), heard, stream=True))
        while heard.texts != ["a", "b"]:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert heard.usages == [TokenUsage(input_tokens=15, output_tokens=3, total_tokens=18)]


USAGES: tuple[dict[str, Any], ...] = (
    {"prompt_tokens": -3, "completion_tokens": 2},
    {"prompt_tokens": 3, "completion_tokens": 2.5},
    {"prompt_tokens": 3, "completion_tokens": "2"},
    {"prompt_tokens": 3, "completion_tokens": True},
    {"prompt_tokens": 300_000, "completion_tokens": 2},
    {"prompt_tokens": 3, "completion_tokens": 1_000_001},
    {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": -5},
    {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 10**15},
    {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": -1}},
    {"prompt_tokens": 3, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 10**9}},
)


@pytest.mark.parametrize("usage", USAGES, ids=str)
@pytest.mark.parametrize("streamed", [True, False])
async def test_usage_that_cannot_be_true_is_none_and_the_reply_says_so(usage: dict[str, Any], streamed: bool) -> None:
    heard = RecordedProgress()
    document = reply(HI_REPLY | {"usage": usage})
    stream = event_stream(event(chat_chunk("Hi", "stop")), event({"choices": [], "usage": usage}), event("[DONE]"))
    async with ScriptedUpstream(stream if streamed else document) as upstream, engine(upstream.url) as asker:
        answer = await asker.attempt(call(), heard, stream=streamed)
    assert (answer.text, answer.usage, answer.flags) == ("Hi", NO_USAGE, ("usage_implausible",))
    assert heard.usages == []


async def test_usage_at_its_bounds_and_hidden_reasoning_are_true() -> None:
    usage = {"prompt_tokens": 100_000, "completion_tokens": 1_000_000, "total_tokens": 1_100_000}
    usage |= {"completion_tokens_details": {"reasoning_tokens": 999_999}}
    async with ScriptedUpstream(reply(HI_REPLY | {"usage": usage})) as upstream, engine(upstream.url) as asker:
        answer = await asker.attempt(call(), RecordedProgress(), stream=False)
    assert (answer.usage.output_tokens, answer.usage.reasoning_tokens, answer.flags) == (1_000_000, 999_999, ())


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            AnthropicDialect(),
            {
                "content": [{"type": "text", "text": "Hi"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": -5, "cache_read_input_tokens": 10, "output_tokens": 2},
            },
        ),
        (
            GeminiDialect(),
            {
                "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": -1, "thoughtsTokenCount": 5},
            },
        ),
        (
            OllamaDialect(),
            {
                "message": {"content": "Hi"},
                "done": True,
                "done_reason": "stop",
                "prompt_eval_count": 1,
                "eval_count": -1,
            },
        ),
    ],
)
async def test_a_negative_count_is_not_hidden_in_a_sum(dialect: Dialect, body: dict[str, Any]) -> None:
    async with ScriptedUpstream(reply(body)) as upstream, engine_at(upstream.url, dialect) as asker:
        answer = await asker.attempt(call(), RecordedProgress(), stream=False)
    assert (answer.text, answer.usage, answer.flags) == ("Hi", NO_USAGE, ("usage_implausible",))


CHAT_USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 20}
RESPONSES_USAGE = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 20}
GEMINI_USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 20}


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (ChatCompletionsDialect(), HI_REPLY | {"usage": CHAT_USAGE}),
        (
            ResponsesDialect(),
            {
                "status": "completed",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}],
                "usage": RESPONSES_USAGE,
            },
        ),
        (
            GeminiDialect(),
            {
                "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
                "usageMetadata": GEMINI_USAGE,
            },
        ),
    ],
)
async def test_a_provider_s_own_total_counts_although_its_parts_are_less(
    dialect: Dialect, body: dict[str, Any]
) -> None:
    async with ScriptedUpstream(reply(body)) as upstream, engine_at(upstream.url, dialect) as asker:
        answer = await asker.attempt(call(), RecordedProgress(), stream=False)
    assert answer.usage == TokenUsage(input_tokens=7, output_tokens=2, total_tokens=20)


@pytest.mark.parametrize(("last", "total"), [((0, 2, 20), 20), ((0, 2, 0), 9)])
def test_the_total_of_several_parts_is_the_last_one_s_but_no_less_than_their_sum(
    last: tuple[int, int, int], total: int
) -> None:
    used = UsageAccumulator(NO_BOUNDS)
    used.add(TokenCounts(input_tokens=7, output_tokens=1, total_tokens=8))
    read, written, together = last
    used.add(TokenCounts(input_tokens=read, output_tokens=written, total_tokens=together))
    assert used.usage() == TokenUsage(input_tokens=7, output_tokens=2, total_tokens=total)
