"""Event streams: what the standard allows, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.wire.event_stream import EventStreamParser
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

ODD = (
    b"\xef\xbb\xbfretry: 10\r\n"
    b": a comment\r\n"
    b"data: one\r\n\r\n"
    b"event: named\rid: 7\rdata:two\r\r"
    b"data: three\ndata:  four\n\n"
    b"data:\n\n"
    b"id: only\n\n"
    b"data: caf\xc3\xa9 \xf0\x9f\x8e\xb2\n\n"
    b"unknown: field\ndata: last\n\n"
)
EVENTS = [b"one", b"two", b"three\n four", "café 🎲".encode(), b"last"]


def read(*pieces: bytes, line_bytes: int = 1000) -> list[bytes]:
    stream = EventStreamParser(line_bytes)
    return [data for piece in pieces for data in stream.feed(piece)]


def test_controls_comments_every_line_end_bom_and_several_data_lines_are_read():
    assert read(ODD) == EVENTS


@pytest.mark.parametrize("cut", range(len(ODD)))
def test_an_event_stream_reads_the_same_cut_at_every_byte(cut: int):
    assert read(ODD[:cut], ODD[cut:]) == EVENTS


def test_an_event_stream_reads_the_same_byte_by_byte():
    assert read(*(ODD[index : index + 1] for index in range(len(ODD)))) == EVENTS


@settings(deadline=None)
@given(st.lists(st.integers(0, len(ODD)), max_size=8).map(sorted))
def test_an_event_stream_reads_the_same_in_any_pieces(cuts: list[int]):
    edges = [0, *cuts, len(ODD)]
    assert read(*(ODD[start:end] for start, end in pairwise(edges))) == EVENTS


BLOCKS = (
    b"data: a",
    b"data:b",
    b"event: name\ndata: c",
    b"event: name\ndata: d\ndata: e",
    b"event: name\ndata: f\nid: 1",
    b"event: data: g\ndata: h",
    b"event: name",
    b"event: name\ndata: ",
    b"data: i\nevent: name",
    b"data: j\rdata: k",
    b": comment",
    b"",
)


@given(st.lists(st.sampled_from(BLOCKS), max_size=6), st.sampled_from([b"\n\n", b"\n"]))
def test_events_read_the_same_together_and_byte_by_byte(blocks: list[bytes], end: bytes):
    whole = b"\n\n".join(blocks) + end
    assert read(whole) == read(*(whole[index : index + 1] for index in range(len(whole))))


@pytest.mark.parametrize("name", [b"event: error", b"event:error"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_named_error_ends_the_stream_and_is_kept_apart(name: bytes, size: int):
    body = b"data: a\n\n" + name + b"\ndata: b\n\ndata: c\n\n"
    stream = EventStreamParser(1000)
    events: list[bytes] = []
    for start in range(0, len(body), size):
        if stream.error is None:
            events += stream.feed(body[start : start + size])
    assert (events, stream.error) == ([b"a"], b"b")


def test_a_name_counts_for_its_own_event_alone():
    stream = EventStreamParser(1000)
    assert stream.feed(b"event: error\n\nevent: errors\ndata: a\n\n") == [b"a"]
    assert stream.error is None


def test_an_event_without_its_empty_line_does_not_count():
    assert read(b"data: whole\n\ndata: half\n") == [b"whole"]


def test_a_byte_order_mark_counts_only_at_the_very_beginning():
    assert read(b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n") == [b"a"]


@pytest.mark.parametrize(
    "pieces",
    [[b"data: " + b"x" * 101], [b"data: " + b"x" * 101 + b"\n\n"], [b"x" * 60] * 2, [b"x" * 60, b"x" * 60 + b"\n"]],
)
def test_a_line_that_is_too_long_is_malformed(pieces: list[bytes]):
    with pytest.raises(EngineError) as caught:
        read(*pieces, line_bytes=100)
    assert caught.value.reason is AttemptFailureReason.MALFORMED
