"""Scores of chunks: by words, after BM25, and by vectors, as the cosine of the angle between two."""

from collections.abc import Sequence
from math import log
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from portico.capabilities.memory.words import COUNT_BYTES, HASH_BYTES
from portico.ports.memory import LexicalMatches

K1: Final = 1.2
B: Final = 0.75
"""Parameters of BM25: how soon more of the same word count no more, and how much the length of a chunk counts."""
_ENTRY: Final = np.dtype([("word", f"V{HASH_BYTES}"), ("count", f"<u{COUNT_BYTES}")])
Ranked = list[tuple[int, float]]
"""Ids of chunks and their scores, best first; the older chunk first where scores are equal."""


def rank_by_words(matches: LexicalMatches, limit: int) -> Ranked:
    """Return the best of the chunks that have words of the query."""
    if not matches.chunks or not matches.word_count:
        return []
    ids = np.array([each.chunk_id for each in matches.chunks])
    lengths = np.array([each.word_count for each in matches.chunks], dtype=float)
    sizes = [len(each.terms) // _ENTRY.itemsize for each in matches.chunks]
    entries = np.frombuffer(b"".join(each.terms for each in matches.chunks), dtype=_ENTRY)
    hashes = np.ascontiguousarray(entries["word"]).view("<u8")
    rows = np.repeat(np.arange(len(ids)), sizes)
    norm = K1 * (1 - B + B * lengths * matches.chunk_count / matches.word_count)
    scores = np.zeros(len(ids))
    for forms, frequency in matches.frequencies:
        at = np.flatnonzero(np.isin(hashes, np.frombuffer(b"".join(forms), dtype="<u8")))
        counts, where = entries["count"][at].astype(float), rows[at]
        others = max(0, matches.chunk_count - frequency)
        weight = log((others + 0.5) / (frequency + 0.5) + 1)
        scores[where] += weight * counts * (K1 + 1) / (counts + norm[where])
    return _best(ids, scores, limit)


def unit_vectors(vectors: Sequence[bytes]) -> NDArray[np.float32]:
    """Return vectors of one size as rows of length 1. Those that have no direction are 0."""
    rows = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), -1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scaled = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.ascontiguousarray(np.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0), dtype=np.float32)


def rank_by_vectors(ids: NDArray[Any], rows: NDArray[np.float32], direction: NDArray[np.float32], limit: int) -> Ranked:
    """Return the chunks whose vectors have the most of that direction; those with none of it are left out."""
    # Not by BLAS, whose idle threads would spin on all cores.
    return _best(ids, np.einsum("ij,j->i", rows, direction), limit)


def _best(ids: NDArray[Any], scores: NDArray[Any], limit: int) -> Ranked:
    """Return the chunks with the highest scores above 0, ties included only as far as there is room."""
    found = np.flatnonzero(scores > 0)
    if len(found) > limit:
        least = np.partition(scores[found], len(found) - limit)[len(found) - limit]
        found = found[scores[found] >= least]
    order = found[np.lexsort((ids[found], -scores[found]))][:limit]
    return [(int(ids[at]), float(scores[at])) for at in order]
