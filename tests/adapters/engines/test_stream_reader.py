"""An event is read the same whatever was read before it, and however the stream is cut."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.adapters.engines.http.stream_reader import MOST_BYTES, MOST_LESSONS, StreamReader
from app.adapters.engines.wire.deltas import Delta
from app.adapters.engines.wire.event_stream import EventStreamParser
from app.adapters.engines.wire.json_fields import as_object, as_text, as_token_count, parse_json
from app.adapters.engines.wire.json_lines import JsonLinesParser
from app.adapters.engines.wire.reply_builder import ReplyBuilder
from app.adapters.engines.wire.text_template import PLACEHOLDER, TextTemplate
from app.adapters.engines.wire.usage import TokenCounts
from app.domain.model_call import Reply
from app.ports.model import EngineError
from bench.streams import STREAMS

Frames = EventStreamParser | JsonLinesParser


def counts(told: bytes) -> TokenCounts:
    used = as_object(parse_json(told))
    read, written = as_token_count(used.get("in")), as_token_count(used.get("out"))
    return TokenCounts(read, written, total_tokens=read + written)


def decode(data: bytes) -> Delta:
    chunk = as_object(parse_json(data))
    used = chunk.get("used")
    return Delta(
        as_text(chunk.get("text")),
        finish=chunk.get("finish"),
        model=as_text(chunk.get("model")),
        usage=counts(orjson.dumps(used)) if isinstance(used, dict) else None,
    )


PLAIN = TextTemplate("text")
PADDED = TextTemplate("text", unread="at", padding="obfuscation")
COUNTED = TextTemplate("text", used="used", counts=counts)


def outcome(pieces: Sequence[bytes], frames: Frames, texts: TextTemplate) -> tuple[Reply | None, str, Any]:
    """The reply, if any, all that was said before the stream went wrong, and what was known then to be used."""
    answer, said = ReplyBuilder({"stop": "stop"}), []
    stream = StreamReader(frames, texts=texts, decode=decode)
    try:
        for piece in pieces:
            for what in stream.feed(piece):
                said.append(what if isinstance(what, str) else what.text)
                answer.add(what)
        answer.add(Delta(done=True))
        return answer.build("asked"), "".join(said), answer.usage
    except EngineError:
        return None, "".join(said), answer.usage


def meant(events: Sequence[bytes], frames: Frames) -> tuple[Reply | None, str, Any]:
    """The same, of events of which each is decoded."""
    answer, said = ReplyBuilder({"stop": "stop"}), []
    try:
        for event in events:
            for data in frames.feed(event):
                answer.add(what := decode(data))
                said.append(what.text)
        answer.add(Delta(done=True))
        return answer.build("asked"), "".join(said), answer.usage
    except EngineError:
        return None, "".join(said), answer.usage


TEXTS = ["", "word", " ünï 🎲", "a\\\\b", "\\u00e4", "\\ud83d\\ude00", "\\ud800", '\\"', "\\n", "\t", "\x01"]
TEXTS += [PLACEHOLDER, '","text":"', '"', "\\", '\\"}', "x" * MOST_BYTES, "\u2028", "}", '"}    }']
VALUES = ["7", "12", "99", "07", "0", "-5", "1.5", "1e9", "9" * 18, "9" * 20, "NaN", "null", "{}", '{"a":1}', "", " 3"]
TIMES = ['"2026-08-21T18:00:22.5Z"', '"2026-01-01T00:00:00Z"', '""', '"soon"', '"2026\\n"', '"20\\ud800"', '"2026']
AROUND = [
    '{"text":"%s"}',
    '{"model":"m-1","text":"%s"}     ',
    '{"model":"m-1","in":{"x":"y","text":"%s"}     }',
    '{"model":"m-1","text":"%s","obfuscation":"aB3"}',
    '{"model":"m-1","text":"%s","obfuscation":"xyz12"}',
    '{"model":"m-1","text":"%s","obfuscation":"a\\n"}',
    '{"model":"m-2","text":"%s","finish":"stop"}',
    '{"inner":{"text":"%s"},"text":3}',
    '{"inner":{"text":"%s"}}',
    '{"inner":{"text":"%s"} }',
    '{"inner":{"text":"%s"}   }',
    '{"inner":{"text":"%s"},"text":"b"}',
    '{"text":"%s","text":"twice"}',
    '{"text": "%s" , "model" : "m"}',
    '{"text":3}%.0s',
    '{"text":null}%.0s',
    '{"text":{}}%.0s',
    '{"text":\n"%s"}',
    '{"text":"%s"\n}',
    '{"text": "%s" }',
    '{"text":"%s"',
    '["text":"%s"]',
]
PLACES = [
    '{"at":%s,"text":"%s"}',
    '{"model":"m-%s","at":1,"text":"%s"}',
    '{"at":%s,"at":1,"text":"%s"}',
    '{"text":"%s","at":%s}',
    '[{"at":%s,"text":"%s"}]',
    '{"x":"\\"at":%s,"text":"%s"}',
    '{"x\\"at":%s,"text":"%s"}',
    '{"at":%s,"text":"%s","obfuscation":"aB3x"}',
]
USED = [
    '{"in":%s,"out":7}', '{"in": %s}', '{"in":3,"of":[{"n":%s}]}', '{"in":3,"n%s":1,"n7":1}', '{"in":1,"in":%s}',
    '{"in":3},"x":{"y":%s}', '{"of":[%s]}', "%s", '{"in":3,"n":"a%s"}', '{"out":%s}', '{"in":%s}',
]  # fmt: skip
USING = [
    '{"text":"%s","used":%s,"model":"m"}',
    '{"text":"%s","in":{"used":%s,"model":"m"}}',
    '{"text":"%s","used":%s}',
    '{"text":"%s","used":%s,"finish":"stop"}',
]
BETWEEN = ["\n\n", "\n\n", "\n\n", "\n\n: alive\n\n", "\nid: 7\n\n", "\r\n\r\n", "\n", "\n\ndata: "]
FRAMES: Sequence[Callable[[], Frames]] = (lambda: EventStreamParser(2**16), lambda: JsonLinesParser(2**16))


def framed(chunks: Sequence[str], ends: Sequence[str], frames: Frames) -> list[bytes]:
    if isinstance(frames, JsonLinesParser):
        return [f"{chunk}\n".encode() for chunk in chunks]
    return [f"data: {chunk}{end}".encode() for chunk, end in zip(chunks, ends, strict=False)]


def check(chunks: Sequence[str], ends: Sequence[str], cuts: Sequence[float], texts: TextTemplate) -> None:
    for frames in FRAMES:
        events = framed(chunks, ends, frames())
        expected = meant(events, frames())
        assert outcome(events, frames(), texts) == expected
        body = b"".join(events)
        edges = [0, *sorted(int(cut * len(body)) for cut in cuts), len(body)]
        assert outcome([body], frames(), texts) == expected
        assert outcome([body[start:end] for start, end in pairwise(edges) if end > start], frames(), texts) == expected


ENDS = st.lists(st.sampled_from(BETWEEN), min_size=30, max_size=30)
CUTS = st.lists(st.floats(0, 1), max_size=6)


@settings(deadline=None)
@given(
    chunks=st.lists(st.tuples(st.sampled_from(AROUND), st.sampled_from(TEXTS)), max_size=30),
    ends=ENDS,
    cuts=CUTS,
    texts=st.sampled_from([PLAIN, PADDED]),
)
def test_whatever_came_before_an_event_is_what_it_is(
    chunks: list[tuple[str, str]], ends: list[str], cuts: list[float], texts: TextTemplate
):
    check([around % text for around, text in chunks], ends, cuts, texts)


@settings(deadline=None)
@given(
    chunks=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(VALUES + TIMES), st.sampled_from(TEXTS)), max_size=30
    ),
    ends=ENDS,
    cuts=CUTS,
)
def test_a_number_or_time_that_is_new_changes_nothing_of_what_an_event_is(
    chunks: list[tuple[str, str, str]], ends: list[str], cuts: list[float]
):
    check([around % (value, text) for around, value, text in chunks], ends, cuts, PADDED)


@settings(deadline=None)
@given(
    chunks=st.lists(
        st.tuples(st.sampled_from(USING), st.sampled_from(USED), st.sampled_from(VALUES), st.sampled_from(TEXTS)),
        max_size=30,
    ),
    ends=ENDS,
    cuts=CUTS,
)
def test_counts_that_are_new_are_known_when_they_are_asked_for(
    chunks: list[tuple[str, str, str, str]], ends: list[str], cuts: list[float]
):
    check([around % (text, used % value) for around, used, value, text in chunks], ends, cuts, COUNTED)


@pytest.mark.parametrize("text", [b"\xff", b"\xed\xa0\x80", b"\xe2\x80", b"a\x01b", b"a\nb", b"a\rb"])
def test_bytes_that_are_no_text_are_malformed_though_all_around_them_was_read_before(text: bytes):
    for frames in FRAMES:
        events = [b'data: {"text":"%b"}\n\n' % said for said in (b"a", b"b", text, b"c")]
        if isinstance(frames(), JsonLinesParser):
            events = [event[6:-1] for event in events]
        assert outcome(events, frames(), PLAIN) == outcome([b"".join(events)], frames(), PLAIN)
        assert outcome(events, frames(), PLAIN)[:2] == (None, "ab")


@pytest.mark.parametrize(
    "odd",
    [
        '{"text":3}',
        '{"text":null}',
        '{"text":{}}',
        '{"text":}',
        '{"text":\n"b"}',
        '{"text":"b"\n}',
        '{"text": "b" }',
        '{"text":"b","text":"c"}',
        '{"text":"b"}}',
        '{"text":"b"',
        '{"text":"b" "c"}',
        '{"text":"b", "model":"m"}',
        '{"text":"}',
        '{"text":""}',
        '{"text":"b\\"}',
        '{"TEXT":"b"}',
        '{"text":["b"]}',
        '{"text":true}',
    ],
)
def test_an_event_that_only_looks_like_those_before_it_is_decoded(odd: str):
    chunks = ['{"text":"a"}', '{"text":"a"}', odd, '{"text":"a"}']
    check(chunks, ["\n\n"] * len(chunks), [], PLAIN)


@pytest.mark.parametrize(
    "odd",
    [
        "07",
        "-1",
        "1.5",
        "1e3",
        "9" * 19,
        '"3"',
        "3\n",
        "\n3",
        " 3",
        "",
        "null",
        "٣",
        "1_0",
        '3,"at":3',
        '3,"text":"x"',
        "3}",
    ],
)
def test_a_number_that_is_none_is_decoded(odd: str):
    chunks = [f'{{"at":{at},"text":"a","obfuscation":"x"}}' for at in ("3", "4", odd, "5")]
    check(chunks, ["\n\n"] * len(chunks), [], PADDED)


@pytest.mark.parametrize("odd", ['"2026\\n"', '"2026', "2026", '"20" "26"', '""', '"now"', '"2026"\n', '"2\n6"', '"٣"'])
def test_a_time_that_is_none_is_decoded(odd: str):
    chunks = [f'{{"at":{at},"text":"a"}}' for at in ('"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:01Z"', odd)]
    check(chunks, ["\n\n"] * len(chunks), [], PADDED)


@pytest.mark.parametrize(
    "odd",
    [
        '{"in":07,"out":3}',
        '{"in":0,"out":3}',
        '{"in":5,"out":}',
        '{"in":5}',
        '{"on":5,"out":3}',
        '{"in":5,"in":3}',
        '{"in":5,"out":3},"used":{"in":5,"out":4}',
        '{"in":123456789,"out":3}',
        '{"in":5,"out":-3}',
        '{"in":5,\n"out":3}',
    ],
)
def test_counts_of_another_form_are_decoded(odd: str):
    chunks = [f'{{"text":"a","used":{used},"model":"m"}}' for used in ('{"in":5,"out":3}', '{"in":5,"out":4}', odd)]
    check(chunks, ["\n\n"] * len(chunks), [], COUNTED)
    again = [*chunks[:2], '{"text":"b","used":{"in":9,"out":9},"finish":"on"}', chunks[0], chunks[1].replace("4", "11")]
    check(again, ["\n\n"] * len(again), [], COUNTED)


class RecordingDecoder:
    """Decodes, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, data: bytes) -> Delta:
        self.times += 1
        return decode(data)


def decoded(chunks: Sequence[object], texts: TextTemplate) -> tuple[str, int]:
    """All text of a stream, and how often something of it was decoded."""
    decoding, said = RecordingDecoder(), ""
    stream = StreamReader(EventStreamParser(2**16), texts=texts, decode=decoding)
    for chunk in chunks:
        for what in stream.feed(b"data: %b\n\n" % orjson.dumps(chunk)):
            said += what if isinstance(what, str) else what.text
    return said, decoding.times


WORDS = [f"word {number} \n" for number in range(11, 60)]


@pytest.mark.parametrize(
    ("texts", "around"),
    [
        (PLAIN, {"model": "m"}),
        (PADDED, {"obfuscation": "a"}),
        (PADDED, {"at": 11, "obfuscation": "a"}),
        (PADDED, {"at": "2026-08-21T18:00:22.5Z"}),
        (COUNTED, {"used": {"in": 5, "out": 3}, "model": "m"}),
    ],
)
def test_what_stands_around_texts_is_decoded_once(texts: TextTemplate, around: dict[str, Any]):
    chunks = []
    for number, word in enumerate(WORDS):
        changed: dict[str, Any] = {key: around[key] for key in around}
        if "obfuscation" in around:
            changed["obfuscation"] = "x" * (1 + number % 16)
        if "at" in around:
            changed["at"] = number + 90 if isinstance(around["at"], int) else f"2026-08-21T18:00:22.{number}Z"
        if "used" in around:
            changed["used"] = {"in": 5, "out": 3 + 10 * number}
        at = {"at": changed.pop("at")} if "at" in changed else {}
        chunks.append(at | {"text": word} | changed)
    assert decoded(chunks, texts) == ("".join(WORDS), 1)


@pytest.mark.parametrize("more", [{}, {"finish": "on"}])
def test_a_stream_whose_chunks_are_all_different_is_soon_decoded_without_remembering(more: dict[str, str]):
    chunks = [{"id": number, "text": word, **more} for number, word in enumerate(WORDS * 4)]
    said, times = decoded(chunks, PLAIN)
    assert said == "".join(WORDS * 4)
    assert len(chunks) <= times <= len(chunks) + MOST_LESSONS


def test_what_stands_before_a_fault_is_said_first():
    stream = StreamReader(EventStreamParser(2**16), texts=PLAIN, decode=decode)
    said = iter(stream.feed(b'data: {"text":"a"}\n\ndata: {"text":"b"}\n\ndata: {\n\ndata: {"text":"c"}\n\n'))
    assert [next(said), next(said)] == [Delta("a"), "b"]
    with pytest.raises(EngineError):
        next(said)


def read(name: str, pieces: Sequence[bytes]) -> tuple[Reply, list[str]]:
    stream, said = STREAMS[name], []
    answer = ReplyBuilder(stream.dialect.finish_reasons)
    reader = StreamReader(stream.frames(2**16), texts=stream.dialect.text_template, decode=stream.dialect.decode_chunk)
    for piece in pieces:
        for what in reader.feed(piece):
            said.append(what if isinstance(what, str) else what.text)
            answer.add(what)
    return answer.build(""), [text for text in said if text]


@pytest.mark.parametrize("name", STREAMS)
def test_every_provider_s_stream_is_read_as_it_is_decoded_and_text_by_text(name: str):
    stream = STREAMS[name]
    answer = ReplyBuilder(stream.dialect.finish_reasons)
    for data in stream.frames(2**16).feed(stream.body):
        answer.add(stream.dialect.decode_chunk(data))
    expected = answer.build("")
    texts = [f"word {number} " for number in range(50)]
    for size in (1, 7, 100, 1000, len(stream.body)):
        pieces = [stream.body[start : start + size] for start in range(0, len(stream.body), size)]
        assert read(name, pieces) == (expected, texts)
