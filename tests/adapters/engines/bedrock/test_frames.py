"""Frames of an event stream: botocore reads them as we do, cut anywhere, and nothing that is not sound passes."""

import pytest
from botocore.eventstream import EventStreamBuffer

from portico.adapters.engines.bedrock.dialect import BedrockDialect
from portico.adapters.engines.wire.aws_event_stream import AwsEventStreamParser
from portico.adapters.engines.wire.error_frames import error_in_event
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError
from tests.support.emulators.aws_frames import event, exception, frame, text_stream

STREAM = text_stream("Hel", "lo ü")
LIMIT = 4 * 2**20


def parsed(*pieces: bytes) -> list[bytes]:
    parser = AwsEventStreamParser(LIMIT)
    return [found for piece in pieces for found in parser.feed(piece)]


def test_botocore_reads_the_same_events() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(STREAM)
    expected = [b'{"%s":%s}' % (each.headers[":event-type"].encode(), each.payload) for each in buffer]
    assert parsed(STREAM) == expected
    assert len(expected) == 6


def test_a_stream_may_be_cut_at_every_byte() -> None:
    whole = parsed(STREAM)
    for cut in range(len(STREAM) + 1):
        assert parsed(STREAM[:cut], STREAM[cut:]) == whole
    assert parsed(*(STREAM[n : n + 1] for n in range(len(STREAM)))) == whole


@pytest.mark.parametrize("position", [0, 3, 8, 11, 12, 20, len(event("a", {"b": 1})) - 1])
def test_a_byte_that_was_changed_makes_the_stream_malformed(position: int) -> None:
    good = event("a", {"b": 1})
    bad = good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]
    with pytest.raises(EngineError, match="not sound") as caught:
        parsed(bad, good)
    assert caught.value.reason is AttemptFailureReason.MALFORMED


@pytest.mark.parametrize("headers", [{}, {"message_type": "event"}])
def test_a_frame_without_its_type_is_no_event(headers: dict[str, str]) -> None:
    parser = AwsEventStreamParser(LIMIT)
    if headers:
        with pytest.raises(EngineError, match="not sound"):
            parser.feed(frame({}, **headers))
    else:
        assert parser.feed(frame({}, **headers)) == []
        assert parser.error is not None


def test_a_frame_that_is_too_long_is_refused_before_it_is_whole() -> None:
    parser = AwsEventStreamParser(1000)
    with pytest.raises(EngineError, match="longer than 1000 bytes"):
        parser.feed(event("a", {"text": "x" * 2000})[:1500])


@pytest.mark.parametrize(
    ("kind", "message", "reason"),
    [
        ("throttlingException", "Too many requests", AttemptFailureReason.RATE_LIMITED),
        ("serviceUnavailableException", "", AttemptFailureReason.OVERLOADED),
        ("internalServerException", "", AttemptFailureReason.SERVER_ERROR),
        ("modelStreamErrorException", "", AttemptFailureReason.SERVER_ERROR),
        ("modelTimeoutException", "", AttemptFailureReason.TIMED_OUT),
        ("validationException", "Input is too long for requested model.", AttemptFailureReason.CONTEXT_EXCEEDED),
        ("validationException", "Malformed input request", AttemptFailureReason.REFUSED),
        ("expiredTokenException", "", AttemptFailureReason.CREDENTIALS),
        ("newException", "", AttemptFailureReason.SERVER_ERROR),
    ],
)
def test_an_exception_ends_the_stream_with_its_reason(kind: str, message: str, reason: AttemptFailureReason) -> None:
    parser = AwsEventStreamParser(LIMIT)
    events = parser.feed(event("messageStart", {}) + exception(kind, message) + event("messageStop", {}))
    assert events == [b'{"messageStart":{}}']
    assert parser.error is not None
    assert BedrockDialect().reported_fault(error_in_event(parser.error)).reason is reason
