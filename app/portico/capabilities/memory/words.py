"""Words of a text, as the search by words counts them.

A word is a run of letters and digits, without regard to case and width. Chinese, Japanese and Korean are written
without spaces between words, so each pair of neighbouring characters counts as a word there. The words are the same
whichever database has the index, since the index gets hashes of them. These are keyed by the scope that they are
stored in: a search of one scope finds nothing of another, its statistics are of that scope alone, and a query cannot
have any syntax of the database.
"""

import re
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final
from unicodedata import normalize

from portico.domain.memory import MemoryScope

MAX_TERMS: Final = 64
"""Number of different words of a query that are searched for."""
MAX_WORD: Final = 64
"""Characters of a word; a longer run is several words."""
HASH_BYTES: Final = 8
COUNT_BYTES: Final = 2
_MOST: Final = 2 ** (8 * COUNT_BYTES) - 1
CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_RUNS: Final = rf"([{CJK}]+)|[^\W_{CJK}]{{1,{MAX_WORD}}}"
"""Pattern that `re` compiles when the first text is read, which takes 5 ms."""


def words(text: str) -> Iterator[str]:
    """Yield the words of a text in order."""
    for run in re.finditer(_RUNS, normalize("NFKC", text).casefold()):
        pairs: str | None = run[1]
        if pairs is None or len(pairs) == 1:
            yield run[0]
        else:
            for start in range(len(pairs) - 1):
                yield pairs[start : start + 2]


def query_words(query: str) -> list[str]:
    """Return the different words of a query in order, at most `MAX_TERMS`."""
    different: dict[str, None] = {}
    for word in words(query):
        different.setdefault(word)
        if len(different) == MAX_TERMS:
            break
    return list(different)


def word_hash(word: str, scope: MemoryScope) -> bytes:
    """Return the hash under which a word is indexed in a scope."""
    return blake2b(word.encode("utf-8", "surrogatepass"), key=scope.encode(), digest_size=HASH_BYTES).digest()


def count_words(text: str, scope: MemoryScope, known: dict[str, bytes]) -> tuple[int, bytes]:
    """Return the number of words, and the hash and the count of each different one, in the order of the hashes.

    `known` has the hashes so far, since a document has most of its words many times.
    """
    counts = Counter(words(text))
    for word in counts.keys() - known.keys():
        known[word] = word_hash(word, scope)
    entries = sorted((known[word], min(count, _MOST)) for word, count in counts.items())
    packed = b"".join(hashed + count.to_bytes(COUNT_BYTES, "little") for hashed, count in entries)
    return counts.total(), packed
