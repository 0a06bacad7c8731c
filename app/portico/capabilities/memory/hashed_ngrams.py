"""Vectors of texts that need no model: hashed n-grams.

Each word adds itself and its parts of three to five characters, at places and with signs that are hashes of them, so
texts with similar words have similar vectors. It knows no synonyms; it makes spelling and inflection matter less.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from portico.capabilities.memory.words import words

_SIZES: Final = (3, 4, 5)
_REMEMBERED: Final = 20_000
Places = NDArray[np.uint32]


def hashed_vectors(texts: Sequence[str], dimension: int) -> list[bytes]:
    """Return a vector of length 1 for each text, in 32-bit floats; it is 0 for a text without words."""
    return [_vector(text, dimension).astype("<f4").tobytes() for text in texts]


def _vector(text: str, dimension: int) -> NDArray[Any]:
    counts = Counter(words(text))
    if not counts:
        return np.zeros(dimension)
    parts = [_parts(word) for word in counts]
    sizes = np.array([len(each) for each in parts])
    weights = np.repeat((1 + np.log(np.array(list(counts.values())))) / np.sqrt(sizes), sizes)
    hashed = np.concatenate(parts)
    signs = np.where(hashed >> 31, 1.0, -1.0)
    vector = np.bincount((hashed & 0x7FFFFFFF) % dimension, weights=weights * signs, minlength=dimension)
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


@lru_cache(maxsize=_REMEMBERED)
def _parts(word: str) -> Places:
    """Return the hashes of a word and its parts."""
    framed = f"<{word}>"
    parts = {framed, *(framed[at : at + size] for size in _SIZES for at in range(len(framed) - size + 1))}
    return np.array([crc32(part.encode("utf-8", "surrogatepass")) for part in sorted(parts)], dtype=np.uint32)
