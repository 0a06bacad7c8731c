"""The usage of an attempt is reported, however it ends."""

from functools import partial

import anyio
import anyio.lowlevel
import pytest

from app.adapters.engines.gemini.dialect import GeminiDialect
from app.domain.contract.response import TokenUsage
from app.domain.model_call import AttemptFailureReason
from app.ports.model import EngineError
from tests.adapters.engines.engine_calls import call
from tests.support.emulators.server import engine_at
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import ScriptedUpstream, UpstreamAction, UpstreamPause, event, event_stream


def part_with_usage(text: str, written: int) -> bytes:
    """A piece of a stream that says what was used by then, as Gemini does."""
    part = {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}}]}
    return event(part | {"usageMetadata": {"promptTokenCount": 15, "candidatesTokenCount": written}})


@pytest.mark.parametrize("act", [UpstreamAction.CLOSE, UpstreamAction.RESET])
async def test_i4_the_last_known_usage_of_a_stream_that_is_cut_is_reported_once(act: UpstreamAction):
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


async def test_i4_the_usage_of_a_cancelled_attempt_is_reported():
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
