"""Reads a stream as its bytes arrive: cuts it into events, and decodes those that say more than a text."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from app.adapters.engines.wire.deltas import Delta
from app.adapters.engines.wire.event_stream import EventStreamParser
from app.adapters.engines.wire.json_lines import JsonLinesParser
from app.adapters.engines.wire.text_template import CutChunk, Reading, TextTemplate, is_plain
from app.ports.model import EngineError

MOST_BYTES: Final = 4_096
"""Of the longest event whose surroundings are remembered."""
MOST_LESSONS: Final = 32
"""So often this is tried in one stream: where chunks are all different, or never say only a text, it saves nothing."""


class StreamReader:
    """One stream of a dialect, cut into events by `frames`.

    Whatever came before it, and however it is cut, of each event it says what `decode` does; of one that says a text
    and nothing else that is new, it says the text alone.
    """

    __slots__ = ("_decode", "_frames", "_known", "_lessons", "_texts")

    def __init__(
        self, frames: EventStreamParser | JsonLinesParser, *, texts: TextTemplate, decode: Callable[[bytes], Delta]
    ) -> None:
        self._frames = frames
        self._texts = texts
        self._decode = decode
        self._known: Reading = _nothing
        self._lessons = MOST_LESSONS

    def feed(self, piece: bytes) -> Iterable[Delta | str]:
        """What the events say that this piece completes, in order; an empty piece is the end of the body.

        All of it is to be taken before the next piece comes. Raises: EngineFault, once what stands before it is taken.
        """
        frames = self._frames
        if not frames.idle:
            return self._half(piece)
        if len(piece) > frames.line_bytes:
            return self._framed(piece)
        event = piece.removesuffix(frames.end)
        text = None if event is piece else self._known(event)
        return self._several(piece) if text is None else (text,)

    def _several(self, piece: bytes) -> Iterable[Delta | str]:
        frames = self._frames
        events = piece.split(frames.end)
        if len(events) == 1 and frames.ends_otherwise(piece):
            events = piece.split(frames.end)
        rest = events.pop()
        said: list[Delta | str] = []
        known = self._known
        try:
            for event in events:
                text = known(event)
                if text is None:
                    said += self._unknown(event)
                    known = self._known
                else:
                    said.append(text)
            if rest:
                said += self._framed(rest)
        except EngineError as fault:
            return _until(said, fault)
        return said

    def _half(self, piece: bytes) -> Iterator[Delta | str]:
        """Completes the event that is half there, as far as this piece does, and reads what comes behind it."""
        first, end, others = piece.partition(self._frames.end)
        yield from self._framed(first + end)
        if others:
            yield from self.feed(others) if self._frames.idle else self._framed(others)

    def _framed(self, piece: bytes) -> Iterator[Delta]:
        return map(self._decoded, self._frames.feed(piece))

    def _unknown(self, event: bytes) -> Iterable[Delta]:
        data = self._frames.data_of(event)
        if data is None:
            return self._framed(event + self._frames.end)
        cut = self._texts.cut(data) if self._lessons and len(event) <= MOST_BYTES else None
        return (self._decoded(data) if cut is None else self._learned(event, data, cut),)

    def _learned(self, event: bytes, data: bytes, cut: CutChunk) -> Delta:
        """What an event says that holds a text; what stands around that is remembered if it says no more.

        Where another is remembered it mostly says more, as the last with a text does, and then a lesson would be lost.
        """
        said = None if self._known is _nothing else self._decoded(data)
        if said is not None and not is_plain(said):
            return said
        self._lessons -= 1
        learned = self._texts.learned(cut, event.removesuffix(data), self._decode)
        if learned is None:
            return said or self._decoded(data)
        said, self._known = learned
        return said

    def _decoded(self, data: bytes) -> Delta:
        """What is told of use by an event that is decoded comes behind what was told before it, and so ends that."""
        said = self._decode(data)
        if said.usage is not None:
            self._known = _nothing
        return said


def _until(said: Iterable[Delta | str], fault: EngineError) -> Iterator[Delta | str]:
    yield from said
    raise fault


def _nothing(_event: bytes) -> None:
    """Nothing is remembered yet."""
