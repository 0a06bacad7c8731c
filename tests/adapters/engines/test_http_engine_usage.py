"""What an attempt has used is told, however it ends."""

from functools import partial

import anyio
import anyio.lowlevel
import pytest

from app.adapters.engines.gemini import GenerateContent
from app.domain.boundary import TokenUsage
from app.domain.effects import Reason
from app.ports import EngineFault
from tests.adapters.engines.asking import Heard, call
from tests.support.emulators.serving import engine_at
from tests.support.upstream import Act, Pause, Upstream, event, event_stream


def told(text: str, written: int) -> bytes:
    """A piece of a stream that says what was used by then, as Gemini does."""
    part = {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}}]}
    return event(part | {"usageMetadata": {"promptTokenCount": 15, "candidatesTokenCount": written}})


@pytest.mark.parametrize("act", [Act.CLOSE, Act.RESET])
async def test_i4_what_was_used_by_a_stream_that_is_cut_is_told_once_as_it_was_last_known(act: Act):
    heard = Heard()
    pieces = (told("a", 2), told("b", 3), Pause(0.01), told("c", 14) + told("d", 25), act)
    async with Upstream(event_stream(*pieces)) as upstream, engine_at(upstream.url, GenerateContent()) as asker:
        with pytest.raises(EngineFault) as caught:
            await asker.attempt(call(), heard, stream=True)
    assert caught.value.reason is Reason.BROKEN
    assert heard.texts == ["a", "b", "c", "d"]
    assert heard.usages == [TokenUsage(input_tokens=15, output_tokens=25, total_tokens=40)]


async def test_i4_what_was_used_by_an_attempt_that_is_cancelled_is_told():
    heard = Heard()
    script = event_stream(told("a", 2), told("b", 3), Act.HANG)
    async with (
        Upstream(script) as upstream,
        engine_at(upstream.url, GenerateContent()) as asker,
        anyio.create_task_group() as group,
    ):
        group.start_soon(partial(asker.attempt, call(), heard, stream=True))
        while heard.texts != ["a", "b"]:
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert heard.usages == [TokenUsage(input_tokens=15, output_tokens=3, total_tokens=18)]
