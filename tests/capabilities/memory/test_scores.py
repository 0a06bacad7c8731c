"""Vectors and ranks: hashed n-grams, cosines of hostile vectors, and the fusion of two legs."""

from array import array

import numpy as np
import pytest

from portico.capabilities.memory.hashed_ngrams import hashed_vectors
from portico.capabilities.memory.scores import rank_by_vectors, unit_vectors
from portico.capabilities.memory.search import fused_scores


def cosine(one: bytes, other: bytes) -> float:
    first, second = unit_vectors([one, other])
    return float(first @ second)


def test_similar_words_have_similar_vectors() -> None:
    church, churches, boat, nothing = hashed_vectors(["the tall church", "tall churches", "a red boat", "!?"], 256)
    assert cosine(church, churches) > 0.5
    assert abs(cosine(church, boat)) < 0.3
    assert cosine(church, church) == pytest.approx(1.0)
    assert set(nothing) == {0}
    assert hashed_vectors(["the tall church"], 256) == [church]
    assert len(hashed_vectors(["x"], 8)[0]) == 32


def test_vectors_without_a_direction_have_no_rank() -> None:
    rows = [[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [float("nan"), 1.0], [float("inf"), 0.0], [3e38, 3e38], [1e-38, 0.0]]
    vectors = unit_vectors([array("f", row).tobytes() for row in rows])
    direction = unit_vectors([array("f", [2.0, 0.0]).tobytes()])[0]
    ranked = rank_by_vectors(np.arange(10, 17), vectors, direction, 10)
    assert [chunk_id for chunk_id, _ in ranked] == [10, 16, 15]
    assert [score for _, score in ranked] == pytest.approx([1.0, 1.0, 0.5**0.5], rel=1e-4)
    assert [chunk_id for chunk_id, _ in rank_by_vectors(np.arange(10, 17), vectors, direction, 1)] == [10]


def test_ranks_are_fused_over_the_legs_that_answered() -> None:
    both = fused_scores([[1, 2], [1, 3]], 2)
    assert both == pytest.approx({1: 1.0, 2: 61 / 62 / 2, 3: 61 / 62 / 2})
    assert fused_scores([[1, 2], []], 1) == pytest.approx({1: 1.0, 2: 61 / 62})
    assert fused_scores([[], []], 1) == {}
    assert fused_scores([[], []], 0) == {}
