"""Lines of JSON with every line end, cut at every byte."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.wire.json_lines import JsonLinesParser
from portico.domain.model_call import AttemptFailureReason
from portico.ports.model import EngineError

ODD = b'{"a":1}\n\n \t\n{"b":"\\n"}\r\n\r\n\xef\xbb\xbf{"c":"caf\xc3\xa9 \xf0\x9f\x8e\xb2"}\r\n{"d":"\r"}\n{"e":2}'
LINES = [b'{"a":1}', b'{"b":"\\n"}', '\ufeff{"c":"café 🎲"}'.encode(), b'{"d":"\r"}']
LAST = b'{"e":2}'


def read(*pieces: bytes, line_bytes: int = 1000) -> list[bytes]:
    lines = JsonLinesParser(line_bytes)
    return [line for piece in pieces for line in lines.feed(piece)]


def test_blank_lines_are_passed_over_and_carriage_returns_belong_to_the_end_of_a_line():
    assert read(ODD) == LINES


@pytest.mark.parametrize("cut", range(1, len(ODD)))
def test_lines_read_the_same_cut_at_every_byte(cut: int):
    assert read(ODD[:cut], ODD[cut:]) == LINES
    assert read(ODD[:cut], ODD[cut:], b"") == [*LINES, LAST]


def test_lines_read_the_same_byte_by_byte():
    assert read(*(ODD[index : index + 1] for index in range(len(ODD))), b"") == [*LINES, LAST]


@settings(deadline=None)
@given(st.sets(st.integers(1, len(ODD) - 1), max_size=8).map(sorted))
def test_lines_read_the_same_in_any_pieces(cuts: list[int]):
    edges = [0, *cuts, len(ODD)]
    assert read(*(ODD[start:end] for start, end in pairwise(edges)), b"") == [*LINES, LAST]


def test_a_line_without_its_newline_counts_when_the_body_has_ended_and_not_before():
    assert read(b'{"a":1}\n{"error":"late"}') == [b'{"a":1}']
    assert read(b'{"a":1}\n{"error":"late"}', b"") == [b'{"a":1}', b'{"error":"late"}']


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t", b"\r"])
def test_a_body_of_nothing_has_no_lines(body: bytes):
    assert read(body, b"") == []


def test_what_is_no_blank_of_json_is_left_in_its_line_to_be_refused():
    assert read(b"\x0c{}\x0b\n\xc2\xa0{}\n") == [b"\x0c{}\x0b", b"\xc2\xa0{}"]


def test_a_byte_order_mark_is_dropped_at_the_very_beginning():
    assert read(b"\xef\xbb", b'\xbf{"a":1}\n{"b":2}\n') == [b'{"a":1}', b'{"b":2}']
    assert read(b"\xef\xbb\xbf{}", b"") == [b"{}"]


def test_a_line_may_be_as_long_as_is_allowed():
    assert read(b"x" * 100 + b"\n", line_bytes=100) == [b"x" * 100]
    assert read(b"x" * 60, b"x" * 40, b"", line_bytes=100) == [b"x" * 100]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"x" * 101],
        [b"x" * 101 + b"\n"],
        [b"x" * 60] * 2,
        [b"x" * 60, b"x" * 60 + b"\n"],
        [b"{}\n" + b"x" * 101],
        [b"x" * 101 + b"\n{}\n"],
    ],
)
def test_a_line_that_is_too_long_is_malformed(pieces: list[bytes]):
    with pytest.raises(EngineError) as caught:
        read(*pieces, line_bytes=100)
    assert caught.value.reason is AttemptFailureReason.MALFORMED
