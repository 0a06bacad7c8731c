"""A chunk is read the same whether what stands around its text was read before or not."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.engines.dialect import Delta
from app.adapters.engines.text_chunks import MOST_BYTES, PLACEHOLDER, remembering
from app.adapters.engines.values import loaded, mapping_of, text_of
from app.ports import EngineFault

MARK = b'"text":"'
TEXTS = ["", "word", " ünï 🎲", "a\\\\b", "\\u00e4", '\\"', "\\n", "\t", "\u200b", PLACEHOLDER, '","text":"']
AROUND = [
    ('{"text":"', '"}'),
    ('{"model":"m-1","text":"', '"}     '),
    ('{"model":"m-1","text":"', '","obfuscation":"aB3"}'),
    ('{"model":"m-1","text":"', '","obfuscation":"a\\n"}'),
    ('{"model":"m-1","text":"', '","finish":"stop"}'),
    ('{"inner":{"text":"', '"},"text":3}'),
    ('{"inner":{"text":"', '"}}'),
    ('{"text":"', '","text":"twice"}'),
    ('{"text":"', '"'),
    ('["text":"', '"]'),
]


def decode(data: bytes) -> Delta:
    chunk = mapping_of(loaded(data))
    return Delta(text_of(chunk.get("text")), finish=chunk.get("finish"), model=text_of(chunk.get("model")))


def outcome(read: Callable[[bytes], Delta], data: bytes) -> Any:
    try:
        return read(data)
    except EngineFault as fault:
        return fault.reason


@given(chunks=st.lists(st.tuples(st.sampled_from(AROUND), st.sampled_from(TEXTS)), max_size=30))
def test_whatever_came_before_a_chunk_is_what_it_is(chunks: list[tuple[tuple[str, str], str]]):
    read = remembering(MARK, decode)
    for (head, rest), text in chunks:
        data = f"{head}{text}{rest}".encode()
        assert outcome(read, data) == outcome(decode, data)


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"x" * MOST_BYTES])
def test_bytes_that_are_no_text_and_chunks_that_are_too_long_to_remember_are_decoded(text: bytes):
    read = remembering(MARK, decode)
    for data in (b'{"text":"a"}', b'{"text":"' + text + b'"}', b'{"text":"b"}'):
        assert outcome(read, data) == outcome(decode, data)


def test_surroundings_are_decoded_once_and_a_padding_by_chance_makes_no_others():
    decoded: list[bytes] = []

    def counted(data: bytes) -> Delta:
        decoded.append(data)
        return decode(data)

    read = remembering(MARK, counted)
    chunks = [orjson.dumps({"text": f"word {number}", "obfuscation": "x" * number}) for number in range(1, 50)]
    assert [read(chunk).text for chunk in chunks] == [f"word {number}" for number in range(1, 50)]
    assert len(decoded) == 1
