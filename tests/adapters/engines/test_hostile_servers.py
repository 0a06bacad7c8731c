"""Hostile servers and every dialect: each reply is whole or a fault with its reason, and no secret is repeated."""

import gzip
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence

import anyio
import orjson
import pytest

from portico.adapters.engines.dialect import Dialect
from portico.adapters.engines.http.engine import ReplyLimits
from portico.adapters.engines.timeouts import Timeouts
from portico.adapters.engines.wire.deltas import Delta
from portico.adapters.engines.wire.reply_builder import ReplyBuilder
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.broken_replies import (
    ANSWER,
    CANARY,
    EMULATED_PROVIDERS,
    LEAKY,
    AttemptOutcome,
    EmulatedProvider,
    attempt_outcomes,
    data_of,
    garbled,
    misshapen,
    parsed,
    with_data,
)
from tests.adapters.engines.engine_calls import KEY
from tests.support.emulators.server import engine_at
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import Script, ScriptedUpstream, Step, UpstreamAction, UpstreamPause, chunk, reply

pytestmark = pytest.mark.parametrize("speaker", EMULATED_PROVIDERS, ids=lambda speaker: speaker.name)

MALFORMED = frozenset({AttemptFailureReason.MALFORMED})
ODD = frozenset(
    {AttemptFailureReason.MALFORMED, AttemptFailureReason.CONTENT_FILTERED, AttemptFailureReason.SERVER_ERROR}
)
"""A value of another kind may stand where a provider says that it refuses or has failed."""
BOMB = gzip.compress(bytes(50 * 2**20))
TIMES = Timeouts(connect_seconds=5, attempt_seconds=120, first_token_seconds=60, idle_seconds=30)
OVERLOADED = [
    {"error": {"message": f"overloaded {CANARY} {KEY}", "type": "overloaded_error", "code": "server_overloaded"}},
    {"error": {"message": f"The model is overloaded. {CANARY} {KEY}", "code": 503, "status": "UNAVAILABLE"}},
    {"type": "error", "error": {"type": "overloaded_error", "message": f"{CANARY} {KEY}"}},
    {"type": "error", "code": "server_overloaded", "message": f"overloaded {CANARY} {KEY}", "param": None},
    {"error": f"Server overloaded, please retry shortly ({CANARY} {KEY})"},
]
"""The forms in which providers report within a stream that they are overloaded."""


@pytest.fixture(autouse=True)
def nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert KEY not in caplog.text
    assert CANARY not in caplog.text


async def undisturbed(speaker: EmulatedProvider) -> Reply:
    """The reply when nothing goes wrong."""
    (outcome,) = await attempt_outcomes(speaker, speaker.stream(*speaker.events))
    assert isinstance(outcome.result, Reply)
    return outcome.result


def said(result: Reply) -> bytes:
    calls = [call.model_dump() for call in result.tool_calls]
    return orjson.dumps([result.text, calls, result.finish_reason])


def why(outcome: AttemptOutcome) -> AttemptFailureReason | None:
    """Return the reason of a failed attempt, None for a reply."""
    return outcome.result.reason if isinstance(outcome.result, EngineError) else None


def reasons(found: Sequence[AttemptOutcome]) -> list[AttemptFailureReason | None]:
    """Return the reasons of failed attempts. Published texts are always the provider's."""
    assert all(ANSWER.text.startswith("".join(outcome.progress.texts)) for outcome in found)
    return [why(outcome) for outcome in found]


def assert_sound(result: Reply | EngineError, allowed: Collection[AttemptFailureReason] = MALFORMED) -> None:
    """It is a fault for one of these reasons, or a reply that can be stored, sent back and acted upon."""
    if isinstance(result, EngineError):
        assert result.reason in allowed
        return
    orjson.dumps(result.message("primary").model_dump())
    assert len({call.id for call in result.tool_calls}) == len(result.tool_calls)
    assert result.finish_reason in {"stop", "tool", "length"}
    assert result.usage.input_tokens >= 0


async def test_what_is_broken_here_is_whole_to_begin_with(speaker: EmulatedProvider):
    result = await undisturbed(speaker)
    assert (result.text, result.finish_reason) == (ANSWER.text, "tool")
    assert [(call.name, call.arguments) for call in result.tool_calls] == [
        (call.name, call.arguments) for call in ANSWER.calls
    ]


async def test_the_replys_content_type_decides_how_it_is_read(speaker: EmulatedProvider):
    expected = await undisturbed(speaker)
    scripts = [reply(speaker.body), speaker.stream(*speaker.events)]
    for stream in (True, False):
        found = await attempt_outcomes(speaker, *scripts, stream=stream)
        assert [said(outcome.result) for outcome in found if isinstance(outcome.result, Reply)] == [said(expected)] * 2
        assert ["".join(outcome.progress.texts) for outcome in found] == [ANSWER.text * stream, ANSWER.text]


@pytest.mark.parametrize(
    ("end", "reason"), [((), AttemptFailureReason.MALFORMED), ((UpstreamAction.CLOSE,), AttemptFailureReason.BROKEN)]
)
async def test_a_stream_cut_between_events_is_whole_from_its_terminal_marker_on_and_never_before(
    speaker: EmulatedProvider, end: Sequence[Step], reason: AttemptFailureReason
):
    expected, events = await undisturbed(speaker), speaker.events
    scripts = [speaker.stream(*events[:count], *end) for count in range(len(events) + 1)]
    found = await attempt_outcomes(speaker, *scripts)
    failed = [other for other in reasons(found) if other is not None]
    assert set(failed) == {reason}
    assert all(isinstance(outcome.result, EngineError) for outcome in found[: len(failed)])
    assert {said(outcome.result) for outcome in found[len(failed) :] if isinstance(outcome.result, Reply)} == {
        said(expected)
    }


async def test_a_connection_that_is_reset_within_a_stream_is_broken(speaker: EmulatedProvider):
    events = speaker.events
    scripts = [speaker.stream(*events[:count], UpstreamAction.RESET) for count in range(len(events) // 2)]
    assert set(reasons(await attempt_outcomes(speaker, *scripts))) == {AttemptFailureReason.BROKEN}


async def test_a_stream_cut_within_its_events_is_never_another_answer(speaker: EmulatedProvider):
    expected, body = await undisturbed(speaker), b"".join(speaker.events)
    scripts = [speaker.stream(body[:end]) for end in range(1, len(body), 17)]
    found = await attempt_outcomes(speaker, *scripts)
    assert set(reasons(found)) - {None} == MALFORMED
    replies = [outcome.result for outcome in found if isinstance(outcome.result, Reply)]
    assert {said(result) for result in replies} <= {said(expected)}


@pytest.mark.parametrize("size", [1, 2, 3, 7])
async def test_a_stream_reads_the_same_however_its_bytes_are_cut(speaker: EmulatedProvider, size: int):
    body = b"".join(speaker.events)
    pieces = [body[index : index + size] for index in range(0, len(body), size)]
    (outcome,) = await attempt_outcomes(speaker, speaker.stream(*pieces))
    assert outcome.result == await undisturbed(speaker)


async def test_line_ends_blank_lines_comments_and_controls_change_nothing(speaker: EmulatedProvider):
    plain = [event.replace(b"\r\n", b"\n") for event in speaker.events]
    noise = [b"\n", b"\n\n"]
    if speaker.content_type == "text/event-stream":
        noise += [b": keep-alive\n\n", b"retry: 10\n\n", b"id: 7\nevent: odd\n\n"]
    noisy = [piece for number, event in enumerate(plain) for piece in (noise[number % len(noise)], event)]
    scripts = [speaker.stream(*plain), speaker.stream(*(event.replace(b"\n", b"\r\n") for event in noisy))]
    scripts += [speaker.stream(*noisy), speaker.stream(b"".join(noisy))]
    expected = await undisturbed(speaker)
    assert [outcome.result for outcome in await attempt_outcomes(speaker, *scripts)] == [expected] * len(scripts)


async def test_data_that_is_no_strict_json_is_malformed_wherever_it_stands(speaker: EmulatedProvider):
    scripts = [
        speaker.stream(*speaker.events[:number], broken, *speaker.events[number + 1 :])
        for number, event in enumerate(speaker.events)
        for broken in garbled(event)
    ]
    assert scripts
    assert set(reasons(await attempt_outcomes(speaker, *scripts))) == MALFORMED


async def test_an_event_that_comes_twice_makes_no_two_calls_of_one(speaker: EmulatedProvider):
    events = speaker.events
    scripts = [speaker.stream(*events[: number + 1], *events[number:]) for number in range(len(events))]
    for outcome in await attempt_outcomes(speaker, *scripts):
        assert_sound(outcome.result)
        if isinstance(outcome.result, Reply):
            assert [call.name for call in outcome.result.tool_calls] == [call.name for call in ANSWER.calls]


async def test_nothing_behind_the_end_marker_counts_and_garbage_there_makes_no_other_answer(speaker: EmulatedProvider):
    expected, events = await undisturbed(speaker), speaker.events
    late = [speaker.event(LEAKY), b"\xff", b"data"]
    if speaker.row.dialect.decode_chunk(data_of(events[-1])).done:
        late += [*events, *map(speaker.event, map(orjson.dumps, OVERLOADED))]
    for outcome in await attempt_outcomes(speaker, *(speaker.stream(*events, piece) for piece in late)):
        assert_sound(outcome.result)
        assert why(outcome) or said(outcome.result) == said(expected)


async def test_an_event_that_is_missing_is_never_another_exception(speaker: EmulatedProvider):
    events = speaker.events
    scripts = [speaker.stream(*events[:number], *events[number + 1 :]) for number in range(len(events))]
    for outcome in await attempt_outcomes(speaker, *scripts):
        assert_sound(outcome.result)


def put_together(dialect: Dialect, deltas: Iterable[Delta | bytes], *, whole: bool = False) -> Reply | EngineError:
    """Build the reply of a stream, or of a body, of which all but one part was decoded before."""
    answer = ReplyBuilder(dialect.finish_reasons)
    decode = dialect.decode if whole else dialect.decode_chunk
    try:
        for piece in deltas:
            answer.add(decode(piece) if isinstance(piece, bytes) else piece)
            if answer.done:
                break
        return answer.build("asked")
    except EngineError as fault:
        return fault


def test_a_value_of_the_wrong_kind_anywhere_in_a_stream_is_a_reply_or_malformed(speaker: EmulatedProvider):
    dialect = speaker.row.dialect
    texts = [text for event in speaker.events if (text := data_of(event))]
    deltas = [dialect.decode_chunk(text) for text in texts]
    for number, text in enumerate(texts):
        for changed in misshapen(text) if parsed(text) is not None else ():
            assert_sound(put_together(dialect, [*deltas[:number], changed, *deltas[number + 1 :]]), ODD)


def test_a_value_of_the_wrong_kind_anywhere_in_a_body_is_a_reply_or_malformed(speaker: EmulatedProvider):
    for changed in misshapen(speaker.body):
        assert_sound(put_together(speaker.row.dialect, [changed], whole=True), ODD)


async def test_one_event_of_the_wrong_kind_over_a_socket_is_a_reply_or_malformed(speaker: EmulatedProvider):
    scripts = [
        speaker.stream(*speaker.events[:number], with_data(event, wrong), *speaker.events[number + 1 :])
        for number, event in enumerate(speaker.events)
        for wrong in (b"null", b"[]", b"{}", b'"x"')
        if parsed(data_of(event)) is not None
    ]
    for outcome in await attempt_outcomes(speaker, *scripts):
        assert_sound(outcome.result)


async def test_a_body_that_is_cut_or_none_is_malformed(speaker: EmulatedProvider):
    bodies = [speaker.body[:end] for end in range(0, len(speaker.body) - 1, 13)]
    bodies += [b"", b"null", b"[]", b"{}", b"3", b'"x"', LEAKY, b"[" * 5000, b"\xff", b"\x00"]
    for stream in (True, False):
        found = await attempt_outcomes(speaker, *map(reply, bodies), stream=stream)
        assert set(reasons(found)) == MALFORMED
        assert all(outcome.progress.texts == [] for outcome in found)
    assert set(reasons(await attempt_outcomes(speaker, reply(LEAKY, content_type="text/html")))) == MALFORMED


async def test_a_stream_of_nothing_is_malformed(speaker: EmulatedProvider):
    nothing = [(), (b"\n",), (b"\n\n\n",), (b" ",), (LEAKY,), (speaker.event(LEAKY),)]
    scripts = [speaker.stream(*pieces) for pieces in nothing]
    assert set(reasons(await attempt_outcomes(speaker, *scripts))) == MALFORMED


async def test_an_error_event_within_a_stream_is_that_error_wherever_it_stands(speaker: EmulatedProvider):
    events, own = speaker.events, set()
    for error in map(orjson.dumps, OVERLOADED):
        scripts = [speaker.stream(*events[:count], speaker.event(error)) for count in range(len(events) - 1)]
        found = set(reasons(await attempt_outcomes(speaker, *scripts)))
        assert found <= {
            AttemptFailureReason.OVERLOADED,
            AttemptFailureReason.SERVER_ERROR,
            AttemptFailureReason.MALFORMED,
            None,
        }
        own |= {AttemptFailureReason.OVERLOADED} if found == {AttemptFailureReason.OVERLOADED} else set()
    assert own == {AttemptFailureReason.OVERLOADED}


async def test_an_error_within_a_json_body_is_that_error(speaker: EmulatedProvider):
    found = reasons(await attempt_outcomes(speaker, *map(reply, OVERLOADED), stream=False))
    assert set(found) <= {
        AttemptFailureReason.OVERLOADED,
        AttemptFailureReason.SERVER_ERROR,
        AttemptFailureReason.MALFORMED,
    }
    assert AttemptFailureReason.OVERLOADED in found


@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 408, 413, 422, 429, 499, 500, 502, 503, 504, 529])
async def test_a_failing_status_never_repeats_what_came_with_it(speaker: EmulatedProvider, status: int):
    bodies = [LEAKY, b"", b"[" * 5000, b"\xff", *map(orjson.dumps, OVERLOADED)]
    found = await attempt_outcomes(speaker, *(reply(body, status=status) for body in bodies))
    assert None not in reasons(found)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "GZIP, identity", "x-unknown"])
async def test_a_compressed_answer_is_refused_unread(speaker: EmulatedProvider, coding: str):
    bomb = BOMB if "gzip" in coding.lower() else zlib.compress(speaker.body)
    coded = {"Content-Encoding": coding}
    scripts = [reply(bomb, headers=coded), reply(bomb, headers=coded, content_type=speaker.content_type)]
    assert reasons(await attempt_outcomes(speaker, *scripts)) == [AttemptFailureReason.MALFORMED] * 2


async def test_a_line_without_an_end_is_malformed_and_left(speaker: EmulatedProvider):
    first, much = speaker.events[0], [b"x" * 10_000] * 30
    endless = [
        speaker.stream(first, b"data: ", *much, UpstreamAction.HANG, end=False),
        speaker.stream(first.rstrip(), *much, UpstreamAction.HANG, end=False),
        speaker.stream(*much, UpstreamAction.HANG, end=False),
    ]
    assert reasons(await attempt_outcomes(speaker, *endless, caps=ReplyLimits(line_bytes=20_000))) == [
        AttemptFailureReason.MALFORMED
    ] * len(endless)


@pytest.mark.parametrize(("surplus", "reason"), [(0, None), (1, AttemptFailureReason.MALFORMED)])
async def test_an_answer_of_exactly_the_limit_is_read_and_one_byte_more_is_not(
    speaker: EmulatedProvider, surplus: int, reason: AttemptFailureReason | None
):
    caps = ReplyLimits(response_bytes=len(speaker.body) - surplus)
    assert reasons(await attempt_outcomes(speaker, reply(speaker.body), stream=False, caps=caps)) == [reason]


async def test_an_answer_without_an_end_is_malformed_and_left(speaker: EmulatedProvider):
    event, noise = speaker.events[2], speaker.event(b'{"x":"%s"}' % (b"y" * 900))
    endless = [
        speaker.stream(*pieces, UpstreamAction.HANG, end=False)
        for pieces in ([b"\n" * 1000] * 300, [noise] * 300, [*speaker.events[:2], *[event] * (300_000 // len(event))])
    ]
    found = await attempt_outcomes(speaker, *endless, caps=ReplyLimits(response_bytes=200_000))
    assert {why(outcome) for outcome in found} == MALFORMED
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900000000\r\n\r\n"
    body: Script = [head, *[b" " * 10_000] * 30, UpstreamAction.HANG]
    assert reasons(await attempt_outcomes(speaker, body, stream=False, caps=ReplyLimits(response_bytes=200_000))) == [
        AttemptFailureReason.MALFORMED
    ]


async def test_a_slow_drip_is_read_as_long_as_an_attempt_may_last(speaker: EmulatedProvider):
    rest = b"".join(speaker.events[-3:])
    dripped = [step for byte in rest[:20] for step in (UpstreamPause(10), bytes([byte]))]
    started = anyio.current_time()
    script = speaker.stream(*speaker.events[:-3], *dripped)
    assert reasons(await attempt_outcomes(speaker, script, times=TIMES)) == [AttemptFailureReason.TIMED_OUT]
    assert anyio.current_time() - started == pytest.approx(TIMES.attempt_seconds, abs=3)


async def test_a_late_answer_is_an_answer_all_the_same(speaker: EmulatedProvider):
    body = b"".join(speaker.events)
    late = speaker.stream(body[:3], UpstreamPause(20), body[3:9], UpstreamPause(20), body[9:])
    (outcome,) = await attempt_outcomes(speaker, late, times=TIMES)
    assert outcome.result == await undisturbed(speaker)


async def test_silence_is_timed_out_before_and_within_an_answer(speaker: EmulatedProvider):
    silent: list[Script] = [
        [UpstreamAction.HANG],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", UpstreamAction.HANG],
        speaker.stream(UpstreamAction.HANG),
        speaker.stream(*speaker.events[:-3], UpstreamAction.HANG, end=False),
    ]
    assert set(reasons(await attempt_outcomes(speaker, *silent, times=TIMES))) == {AttemptFailureReason.TIMED_OUT}


async def test_a_framing_that_breaks_is_malformed_or_broken(speaker: EmulatedProvider):
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {speaker.content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    scripts: list[Script] = [
        [head, b"ZZ\r\n", UpstreamAction.HANG],
        [head, chunk(speaker.events[0]), b"-1\r\n", UpstreamAction.HANG],
        [head, b"ffffffff\r\n" + speaker.events[0], UpstreamAction.CLOSE],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + speaker.body, UpstreamAction.CLOSE],
        [b"garbage\r\n\r\n", UpstreamAction.HANG],
    ]
    assert set(reasons(await attempt_outcomes(speaker, *scripts))) <= {
        AttemptFailureReason.MALFORMED,
        AttemptFailureReason.BROKEN,
    }


async def test_the_key_stands_in_no_url_and_in_no_body(speaker: EmulatedProvider):
    async with ScriptedUpstream(reply({})) as upstream, engine_at(upstream.url, speaker.row.dialect) as asker:
        await asker.ping()
        for stream in (True, False):
            with pytest.raises(EngineError):
                await asker.attempt(speaker.asked(), RecordedProgress(), stream=stream)
    assert len(upstream.requests) == 3
    for request in upstream.requests:
        assert KEY not in request.path
        assert KEY.encode() not in request.body
        assert KEY in " ".join(request.headers.values())
