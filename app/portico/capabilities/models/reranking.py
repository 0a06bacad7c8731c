"""Reranking of texts by a query: a text comes the earlier, the more words of the query it contains."""

import re
from collections.abc import Sequence
from typing import Final

MAX_CHARACTERS: Final = 500_000
"""Length of all texts together: about 25 ms."""
_WORD: Final = re.compile(r"\w+")


def rerank(query: str, texts: Sequence[str], *, top_k: int | None = None, min_score: float | None = None) -> list[int]:
    """Return the indexes of the texts, best first, equals in their order; at most `top_k`, none below `min_score`."""
    wanted = _words(query)
    scores = [_score(wanted, text) for text in texts]
    candidates = (index for index, score in enumerate(scores) if min_score is None or score >= min_score)
    return sorted(candidates, key=lambda index: -scores[index])[:top_k]


def _score(wanted: frozenset[str], text: str) -> float:
    """Return the share of the query's words that the text contains; 1 for an empty query."""
    return len(wanted & _words(text)) / len(wanted) if wanted else 1.0


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
