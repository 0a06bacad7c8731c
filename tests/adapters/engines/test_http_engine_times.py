"""How long an attempt waits for what; time is virtual, so that minutes take none."""

from collections.abc import Sequence

import anyio
import pytest

from app.adapters.engines.http_engine import Timeouts
from app.domain.effects import Reason
from app.ports import EngineFault
from tests.adapters.engines.asking import SAID, Heard, call, engine, said
from tests.support.upstream import Act, Pause, Script, Step, Upstream, event, event_stream, reply

TIMES = Timeouts(connect=5, attempt=120, first_token=60, idle=30)
STOP = event(said(finish="stop"))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"


def spaced(seconds: float, *pieces: bytes) -> Sequence[Step]:
    return [step for piece in pieces for step in (Pause(seconds), piece)]


async def waited(script: Script, *, stream: bool = True) -> float:
    """Seconds until the attempt timed out."""
    async with Upstream(script) as upstream, engine(upstream.url, TIMES) as asker:
        started = anyio.current_time()
        with pytest.raises(EngineFault) as caught:
            await asker.attempt(call(), Heard(), stream=stream)
        assert caught.value.reason is Reason.TIMED_OUT
        ended = anyio.current_time()
        await upstream.departed()
    return ended - started


async def took(script: Script, *, stream: bool = True) -> float:
    """Seconds until the whole reply was there."""
    async with Upstream(script) as upstream, engine(upstream.url, TIMES) as asker:
        started = anyio.current_time()
        await asker.attempt(call(), Heard(), stream=stream)
        return anyio.current_time() - started


async def test_b1_11_a_stream_without_a_byte_ends_at_the_first_token_timeout():
    assert await waited([Act.HANG]) == pytest.approx(60, abs=1)


async def test_b1_11_a_reply_without_a_byte_ends_at_the_attempt_timeout():
    assert await waited([Act.HANG], stream=False) == pytest.approx(120, abs=1)


async def test_b1_11_comments_and_empty_deltas_are_no_first_token():
    noise = (b": keep-alive\n\n", event(said("", role="assistant")), b": keep-alive\n\n", b": keep-alive\n\n")
    assert await waited(event_stream(*spaced(19, *noise), Act.HANG)) == pytest.approx(60, abs=1)


@pytest.mark.parametrize("token", [said("a"), said(reasoning="a"), said(tool_calls=[{"function": {"name": "f"}}])])
async def test_b1_11_text_reasoning_and_calls_are_a_first_token(token: dict[str, object]):
    assert await waited(event_stream(*spaced(50, event(token)), Act.HANG)) == pytest.approx(80, abs=1)


async def test_b1_11_the_first_token_may_take_longer_than_the_idle_timeout():
    assert await took(event_stream(*spaced(45, event(said("a"))), STOP)) == pytest.approx(45, abs=1)


async def test_b1_11_silence_after_tokens_ends_at_the_idle_timeout():
    assert await waited(event_stream(event(said("a")), Act.HANG)) == pytest.approx(30, abs=1)


async def test_b1_29_a_slow_stream_resets_the_idle_timeout():
    assert await took(event_stream(*spaced(10, *[event(said("a"))] * 10), STOP)) == pytest.approx(100, abs=2)


async def test_b1_29_comments_reset_the_idle_timeout():
    comments = [b": keep-alive\n\n"] * 4
    assert await took(event_stream(event(said("a")), *spaced(25, *comments), STOP)) == pytest.approx(100, abs=2)


async def test_b1_29_a_slow_drip_does_not_reset_the_attempt_timeout():
    assert await waited(event_stream(*spaced(10, *[event(said("a"))] * 20))) == pytest.approx(120, abs=1)
    assert await waited([HEAD, *spaced(10, *[b" "] * 20)], stream=False) == pytest.approx(120, abs=1)


async def test_a_json_body_that_stops_halfway_ends_at_the_idle_timeout():
    assert await waited([HEAD + b"{", Act.HANG], stream=False) == pytest.approx(30, abs=1)


async def test_a_json_body_may_come_long_after_its_head():
    head, _, body = bytes(reply(SAID)[0]).partition(b"\r\n\r\n")
    assert await took([head + b"\r\n\r\n", Pause(100), body], stream=False) == pytest.approx(100, abs=1)
    assert await took([head + b"\r\n\r\n", Pause(100), body], stream=True) == pytest.approx(100, abs=1)


async def test_a_stream_nobody_asked_for_has_the_attempt_timeout_until_its_first_token():
    assert await took(event_stream(*spaced(100, event(said("a"))), STOP), stream=False) == pytest.approx(100, abs=1)


async def test_a_stream_that_is_whole_is_kept_when_its_usage_never_comes():
    assert await took(event_stream(event(said("a")), STOP, Act.HANG, end=False)) == pytest.approx(30, abs=1)


async def test_b1_9_a_connection_that_is_not_made_in_time_is_unreachable():
    async with Upstream([], deaf=True) as upstream, engine(upstream.url.replace("http:", "https:"), TIMES) as asker:
        started = anyio.current_time()
        with pytest.raises(EngineFault) as caught:
            await asker.attempt(call(), Heard(), stream=True)
        assert caught.value.reason is Reason.UNREACHABLE
        assert anyio.current_time() - started == pytest.approx(5, abs=1)
