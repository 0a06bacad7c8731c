"""Streams in which something else than the protocol's own frames comes: errors of any form, and unknown frames."""

from typing import Any

import orjson
import pytest

from portico.adapters.engines.http.engine import Endpoint
from portico.domain.model_call import AttemptFailureReason, Reply
from portico.ports.model import EngineError
from tests.adapters.engines.broken_replies import EMULATED_PROVIDERS, AttemptOutcome, EmulatedProvider, attempt_outcomes
from tests.adapters.engines.dialects import DIALECTS
from tests.adapters.engines.engine_calls import KEY, chat_chunk
from tests.support.emulators.server import http_engine
from tests.support.engine_calls import RecordedProgress
from tests.support.upstream import ScriptedUpstream, event, event_stream

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NAMED_EVENTS = [each for each in EMULATED_PROVIDERS if each.content_type == "text/event-stream"]
PROVIDERS = pytest.mark.parametrize("provider", EMULATED_PROVIDERS, ids=lambda provider: provider.name)
ERRORS: tuple[dict[str, Any], ...] = (
    {"error": {"message": "It broke."}},
    {"error": "It broke."},
    {"error": {}},
    {"error_code": 17, "error_msg": "It broke."},
    {"object": "error", "message": "It broke.", "code": 500},
    {"object": "error"},
    {"detail": "It broke."},
    {"message": "It broke."},
)
NO_ERRORS: tuple[dict[str, Any], ...] = (
    {"object": "ping"},
    {"error": None, "id": "x"},
    {"error_code": 0},
)


async def outcome(provider: EmulatedProvider, *events: bytes) -> AttemptOutcome:
    [found] = await attempt_outcomes(provider, provider.stream(*events))
    return found


@PROVIDERS
@pytest.mark.parametrize("error", ERRORS, ids=orjson.dumps)
async def test_a_frame_that_speaks_of_an_error_is_a_failure_though_the_stream_goes_on(
    provider: EmulatedProvider, error: dict[str, Any]
) -> None:
    events = provider.events
    for place in (1, len(events) // 2, len(events) - 1):
        found = await outcome(provider, *events[:place], provider.event(orjson.dumps(error)), *events[place:])
        assert isinstance(found.result, EngineError)


@pytest.mark.parametrize("provider", NAMED_EVENTS, ids=lambda provider: provider.name)
@pytest.mark.parametrize("data", [b"Bad gateway", b'{"reason":"It broke."}', b"[]", b"{}"])
async def test_an_event_named_error_is_a_failure_with_data_of_any_form(provider: EmulatedProvider, data: bytes) -> None:
    events = provider.events
    found = await outcome(provider, *events[:2], b"event: error\ndata: " + data + b"\n\n", *events[2:])
    assert isinstance(found.result, EngineError)


@PROVIDERS
async def test_other_unknown_frames_are_ignored_and_counted(provider: EmulatedProvider) -> None:
    noise = [provider.event(orjson.dumps(frame | {"type": "gateway.note"})) for frame in NO_ERRORS]
    counted: list[tuple[str, int]] = []

    def count(engine: str, frames: int) -> None:
        counted.append((engine, frames))

    async with ScriptedUpstream(provider.stream(*provider.events[:1], *noise, *provider.events[1:])) as upstream:
        endpoint = Endpoint(upstream.url, lambda: KEY)
        profile, dialect = provider.row.profile(), provider.row.dialect
        async with http_engine(profile, dialect, endpoint, count) as asker:
            reply = await asker.attempt(provider.asked(), RecordedProgress(), stream=True)
    undisturbed = (await outcome(provider, *provider.events)).result
    assert reply == undisturbed
    assert counted == [("primary", 3)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"object": "error", "message": "x", "code": 429}, AttemptFailureReason.RATE_LIMITED),
        ({"error_code": 503, "error_msg": "x"}, AttemptFailureReason.SERVER_ERROR),
        ({"detail": "This model's maximum context length is 8 tokens."}, AttemptFailureReason.CONTEXT_EXCEEDED),
        ({"message": "x", "type": "overloaded_error"}, AttemptFailureReason.OVERLOADED),
    ],
)
async def test_an_error_frame_is_translated_like_a_status(error: Any, reason: AttemptFailureReason) -> None:
    provider = next(each for each in EMULATED_PROVIDERS if each.row is DIALECTS["openai"])
    found = await outcome(provider, event(chat_chunk("Hel")), event(error), event("[DONE]"))
    assert isinstance(found.result, EngineError)
    assert found.result.reason is reason
    named = await outcome(provider, b"event: error\n" + event(error), event("[DONE]"))
    assert isinstance(named.result, EngineError)
    assert named.result.reason is reason


@PROVIDERS
async def test_a_byte_order_mark_before_a_reply_loses_nothing(provider: EmulatedProvider) -> None:
    body = b"".join(provider.events)
    plain, marked, cut, document = await attempt_outcomes(
        provider,
        provider.stream(body),
        provider.stream(BYTE_ORDER_MARK + body),
        provider.stream(BYTE_ORDER_MARK[:1], BYTE_ORDER_MARK[1:] + body[:3], body[3:]),
        event_stream(BYTE_ORDER_MARK + provider.body, content_type="application/json"),
    )
    assert isinstance(plain.result, Reply)
    assert plain == marked
    assert cut.result == plain.result
    assert isinstance(document.result, Reply)
    assert document.result.text == plain.result.text
