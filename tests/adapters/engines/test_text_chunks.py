"""A chunk is read the same whether what stands around its text was read before or not."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.engines.counts import Count, Counts
from app.adapters.engines.dialect import Delta
from app.adapters.engines.text_chunks import (
    MOST_BYTES,
    PLACEHOLDER,
    remembering,
    remembering_beside,
    remembering_counts,
)
from app.adapters.engines.values import count_of, loaded, mapping_of, text_of
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


VALUES = ["7", "12", "99", "07", "-5", "1.5", "1e9", "9" * 18, "9" * 20, "NaN", "null", "{}", '{"a":1}', "", " 3"]
TIMES = [
    '"2026-08-21T18:00:22.5Z"',
    '"2026-01-01T00:00:00.9Z"',
    '"2026"',
    '"soon"',
    '"2026\\n"',
    '"20\\ud800"',
    '"2026',
]
PLACES = [
    '{"at":%s,"text":"%s"}',
    '{"model":"m-%s","at":1,"text":"%s"}',
    '{"at":%s,"at":1,"text":"%s"}',
    '{"text":"%s","at":%s}',
    '[{"at":%s,"text":"%s"}]',
    '{"x":"\\"at":%s,"text":"%s"}',
]


@given(chunks=st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(VALUES + TIMES), st.sampled_from(TEXTS))))
def test_a_number_or_time_that_is_new_changes_nothing_of_what_a_chunk_is(chunks: list[tuple[str, str, str]]):
    read = remembering_beside(b'"at":', MARK, decode)
    for around, value, text in chunks:
        data = (around % (value, text)).encode()
        assert outcome(read, data) == outcome(decode, data)


def counts(told: bytes) -> Counts:
    used = mapping_of(loaded(told))
    read, written = count_of(used.get("in")), count_of(used.get("out"))
    return Counts(read, written, total_tokens=read + written)


def counting(data: bytes) -> Delta:
    told = mapping_of(loaded(data)).get("used")
    return decode(data)._replace(usage=counts(orjson.dumps(told)) if isinstance(told, dict) else None)


USED = [
    '{"in":%s,"out":7}', '{"in": %s}', '{"in":3,"of":[{"n":%s}]}', '{"in":3,"n%s":1,"n7":1}', '{"in":1,"in":%s}',
    '{"in":3},"x":{"y":%s}', '{"of":[%s]}', "%s", '{"in":3,"n":"a%s"}',
]  # fmt: skip
USING = ['{"text":"%s","used":%s,"model":"m"}', '{"text":"%s","in":{"used":%s,"model":"m"}}', '{"text":"%s","used":%s}']


@given(
    chunks=st.lists(
        st.tuples(st.sampled_from(USING), st.sampled_from(USED), st.sampled_from(VALUES), st.sampled_from(TEXTS))
    )
)
def test_counts_that_are_new_are_known_when_they_are_asked_for(chunks: list[tuple[str, str, str, str]]):
    read = remembering_counts((b'"used":', b',"model"'), counts, MARK, counting)
    ours, theirs = Count(), Count()
    for around, used, value, text in chunks:
        data = (around % (text, used % value if "%" in used else used)).encode()
        said, meant = outcome(read, data), outcome(counting, data)
        if not isinstance(meant, Delta):
            assert said == meant
            continue
        assert said._replace(usage=None) == meant._replace(usage=None)
        for count, delta in ((ours, said), (theirs, meant)):
            if delta.usage is not None:
                count.add(delta.usage)
    assert ours.usage() == theirs.usage()


def test_chunks_that_differ_in_their_numbers_alone_are_decoded_once():
    decoded: list[bytes] = []

    def counted(data: bytes) -> Delta:
        decoded.append(data)
        return counting(data)

    beside, used = remembering_beside(b'"at":', MARK, counted), None
    for number in range(11, 60):
        beside(orjson.dumps({"at": number, "text": f"word {number}"}))
    assert len(decoded) == 1
    told = remembering_counts((b'"used":', b',"model"'), counts, MARK, counted)
    for number in range(11, 60):
        used = told(orjson.dumps({"text": "word", "used": {"in": 5, "out": number}, "model": "m"})).usage
    assert len(decoded) == 2
    count = Count()
    assert used is not None
    count.add(used)
    assert (count.usage().input_tokens, count.usage().output_tokens) == (5, 59)
