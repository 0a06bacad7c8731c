"""Output of programs: its bounds and its plain text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.tools.plain_text import plain_text
from portico.adapters.tools.sandbox.output import BoundedOutput


@given(st.lists(st.binary(max_size=40)), st.integers(2, 64))
def test_the_first_and_the_last_half_are_there_and_the_bytes_between_are_counted(
    pieces: list[bytes], limit: int
) -> None:
    output = BoundedOutput(limit)
    for each in pieces:
        output.add(each)
    whole, half = b"".join(pieces), limit // 2
    if len(whole) <= 2 * half:
        assert output.text() == plain_text(whole)
    else:
        mark = f"\n[{len(whole) - 2 * half} bytes left out]\n"
        assert output.text() == plain_text(whole[:half]) + mark + plain_text(whole[-half:])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "xlink"),
        (b"\x1b]52;c;ZXZpbA==", ""),
        (b"a\r\nb\tc\rd\x00\x7f\x08", "a\nb\tcd"),
        ("\x9b31mß".encode(), "ß"),
        (b"\xff\xfe", "��"),
        (b"\x1b(B\x1b7ok", "ok"),
    ],
)
def test_terminal_control_is_stripped(data: bytes, text: str) -> None:
    assert plain_text(data) == text
