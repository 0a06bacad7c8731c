"""Chunks of a document: parts of about 200 words that begin and end with sentences where they can.

Neighbouring chunks overlap, so that what stands at a cut is found with what is around it. The overlap is whole
sentences if one begins there. A sentence that is longer than a chunk is cut between two words.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from portico.capabilities.memory.words import CJK, MAX_WORD, count_words
from portico.domain.memory import MemoryScope
from portico.ports.memory import IndexedChunk

CHUNK_WORDS: Final = 200
OVERLAP_WORDS: Final = 40
_LEAST: Final = CHUNK_WORDS // 2
"""Words of a chunk before which it is not cut at a sentence."""
_UNITS: Final = rf"[{CJK}]|[^\W_{CJK}]{{1,{MAX_WORD}}}|[\W_]{{{MAX_WORD}}}"
"""What counts towards the size of a chunk: words, CJK characters, and anything else by its length. The pattern is
compiled when the first text is read.
"""
_SENTENCE_END: Final = re.compile("[.!?\u2026][\"'\u201d\u2019)\\]]*(?=\\s)|[\u3002\uff01\uff1f]|\n")


def has_words(text: str) -> bool:
    """Return True if there is anything to search in the text."""
    return any(unit[0][0].isalnum() for unit in re.finditer(_UNITS, text))


def cut(text: str) -> Iterator[str]:
    """Yield the chunks of a text in order."""
    units = [unit.span() for unit in re.finditer(_UNITS, text)]
    starts = [start for start, _ in units]
    breaks = sorted({bisect_left(starts, end.end()) for end in _SENTENCE_END.finditer(text)})
    first = 0
    while first < len(units):
        last = _end_of_chunk(first, len(units), breaks)
        end = starts[last] if last < len(units) else len(text)
        yield text[0 if first == 0 else starts[first] : end].strip()
        if last == len(units):
            return
        first = _start_after(last, breaks)


def index_chunks(text: str, scope: MemoryScope) -> list[IndexedChunk]:
    """Return the chunks of a text with their words, as they are indexed in the scope."""
    known: dict[str, bytes] = {}
    return [IndexedChunk(chunk, *count_words(chunk, scope, known)) for chunk in cut(text)]


def _end_of_chunk(first: int, count: int, breaks: list[int]) -> int:
    """Return the unit before which the chunk ends: the last sentence that fits, unless the chunk were short."""
    most = first + CHUNK_WORDS
    if most >= count:
        return count
    candidate = bisect_right(breaks, most) - 1
    return breaks[candidate] if candidate >= 0 and breaks[candidate] >= first + _LEAST else most


def _start_after(last: int, breaks: list[int]) -> int:
    """Return the unit with which the next chunk begins: the first sentence of the overlap, else its first word."""
    earliest = last - OVERLAP_WORDS
    candidate = bisect_left(breaks, earliest)
    return breaks[candidate] if candidate < len(breaks) and breaks[candidate] < last else earliest
