"""The timeouts of an attempt, in virtual time, so that minutes take none."""

from collections.abc import Sequence

import anyio
import pytest

from portico.adapters.engines.timeouts import Timeouts
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.adapters.engines.engine_calls import HI_REPLY, call, chat_chunk, engine
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import (
    Script,
    ScriptedUpstream,
    Step,
    UpstreamAction,
    UpstreamPause,
    event,
    event_stream,
    reply,
)

TIMES = Timeouts(connect_seconds=5, attempt_seconds=120, first_token_seconds=60, idle_seconds=30)
STOP = event(chat_chunk(finish="stop"))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


def spaced(seconds: float, *pieces: bytes) -> Sequence[Step]:
    return [step for piece in pieces for step in (UpstreamPause(seconds), piece)]


async def waited(script: Script, *, stream: bool = True) -> float:
    """Seconds until the attempt timed out."""
    async with ScriptedUpstream(script) as upstream, engine(upstream.url, TIMES) as asker:
        started = anyio.current_time()
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=stream)
        assert caught.value.reason is AttemptFailureReason.TIMED_OUT
        ended = anyio.current_time()
        await upstream.wait_for_departures()
    return ended - started


async def took(script: Script, *, stream: bool = True) -> float:
    """Seconds until the whole reply was there."""
    async with ScriptedUpstream(script) as upstream, engine(upstream.url, TIMES) as asker:
        started = anyio.current_time()
        await asker.attempt(call(), RecordedProgress(), stream=stream)
        return anyio.current_time() - started


async def test_a_stream_without_a_byte_ends_at_the_first_token_timeout():
    assert await waited([UpstreamAction.HANG]) == pytest.approx(60, abs=1)


async def test_a_reply_without_a_byte_ends_at_the_attempt_timeout():
    assert await waited([UpstreamAction.HANG], stream=False) == pytest.approx(120, abs=1)


async def test_comments_and_empty_deltas_are_no_first_token():
    noise = (b": keep-alive\n\n", event(chat_chunk("", role="assistant")), b": keep-alive\n\n", b": keep-alive\n\n")
    assert await waited(event_stream(*spaced(19, *noise), UpstreamAction.HANG)) == pytest.approx(60, abs=1)


@pytest.mark.parametrize(
    "token", [chat_chunk("a"), chat_chunk(reasoning="a"), chat_chunk(tool_calls=[{"function": {"name": "f"}}])]
)
async def test_text_reasoning_and_calls_are_a_first_token(token: dict[str, object]):
    assert await waited(event_stream(*spaced(50, event(token)), UpstreamAction.HANG)) == pytest.approx(80, abs=1)


async def test_the_first_token_may_take_longer_than_the_idle_timeout():
    assert await took(event_stream(*spaced(45, event(chat_chunk("a"))), STOP)) == pytest.approx(45, abs=1)


async def test_silence_after_tokens_ends_at_the_idle_timeout():
    assert await waited(event_stream(event(chat_chunk("a")), UpstreamAction.HANG)) == pytest.approx(30, abs=1)


async def test_a_slow_stream_resets_the_idle_timeout():
    assert await took(event_stream(*spaced(10, *[event(chat_chunk("a"))] * 10), STOP)) == pytest.approx(100, abs=2)


async def test_comments_reset_the_idle_timeout():
    comments = [b": keep-alive\n\n"] * 4
    assert await took(event_stream(event(chat_chunk("a")), *spaced(25, *comments), STOP)) == pytest.approx(100, abs=2)


async def test_a_slow_drip_does_not_reset_the_attempt_timeout():
    assert await waited(event_stream(*spaced(10, *[event(chat_chunk("a"))] * 20))) == pytest.approx(120, abs=1)
    assert await waited([HEAD, *spaced(10, *[b" "] * 20)], stream=False) == pytest.approx(120, abs=1)


async def test_a_json_body_that_stops_halfway_ends_at_the_idle_timeout():
    assert await waited([HEAD + b"{", UpstreamAction.HANG], stream=False) == pytest.approx(30, abs=1)


async def test_a_json_body_may_come_long_after_its_head():
    head, _, body = bytes(reply(HI_REPLY)[0]).partition(b"\r\n\r\n")
    assert await took([head + b"\r\n\r\n", UpstreamPause(100), body], stream=False) == pytest.approx(100, abs=1)
    assert await took([head + b"\r\n\r\n", UpstreamPause(100), body], stream=True) == pytest.approx(100, abs=1)


async def test_a_stream_that_was_not_requested_has_the_attempt_timeout_until_its_first_token():
    assert await took(event_stream(*spaced(100, event(chat_chunk("a"))), STOP), stream=False) == pytest.approx(
        100, abs=1
    )


async def test_a_stream_that_is_whole_is_kept_when_its_usage_never_comes():
    assert await took(event_stream(event(chat_chunk("a")), STOP, UpstreamAction.HANG, end=False)) == pytest.approx(
        30, abs=1
    )


async def test_a_connection_that_is_not_made_in_time_is_unreachable():
    async with (
        ScriptedUpstream([], deaf=True) as upstream,
        engine(upstream.url.replace("http:", "https:"), TIMES) as asker,
    ):
        started = anyio.current_time()
        with pytest.raises(EngineError) as caught:
            await asker.attempt(call(), RecordedProgress(), stream=True)
        assert caught.value.reason is AttemptFailureReason.UNREACHABLE
        assert anyio.current_time() - started == pytest.approx(5, abs=1)
