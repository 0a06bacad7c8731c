"""Texts are ordered by the share of a query's words that they contain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.models.reranking import rerank

TEXTS = st.lists(st.text("ab ,é", max_size=8), max_size=8)


def test_the_text_with_most_of_the_words_comes_first() -> None:
    texts = ["nothing of it", "red wine", "a glass of red wine", "wine"]
    assert rerank("A glass of red wine", texts) == [2, 1, 0, 3]


def test_equals_stay_in_the_order_in_which_they_came() -> None:
    assert rerank("wine", ["red wine", "no", "white wine", "not", "wine"]) == [0, 2, 4, 1, 3]


def test_case_punctuation_and_repetition_do_not_matter() -> None:
    assert rerank("Straße, STRASSE und Café!", ["und und und", "strasse", "café und strasse"]) == [2, 0, 1]


def test_half_a_word_is_not_found() -> None:
    assert rerank("art", ["party", "art"]) == [1, 0]


@pytest.mark.parametrize(("top_k", "kept"), [(None, [1, 2, 0]), (2, [1, 2]), (9, [1, 2, 0])])
def test_at_most_top_k_are_kept(top_k: int | None, kept: list[int]) -> None:
    assert rerank("a b", ["", "a b", "b"], top_k=top_k) == kept


@pytest.mark.parametrize(("min_score", "kept"), [(0.0, [1, 2, 0]), (0.5, [1, 2]), (0.51, [1]), (1.0, [1])])
def test_texts_below_min_score_are_dropped(min_score: float, kept: list[int]) -> None:
    assert rerank("a b", ["", "a b", "b"], min_score=min_score) == kept


def test_a_query_without_words_keeps_the_order() -> None:
    assert rerank(" ?! ", ["b", "a"], min_score=1.0) == [0, 1]


def test_no_texts_give_no_order() -> None:
    assert rerank("a", []) == []


@given(st.text("ab ", max_size=5), TEXTS)
def test_the_order_is_a_permutation_by_falling_share(query: str, texts: list[str]) -> None:
    order = rerank(query, texts)
    assert sorted(order) == list(range(len(texts)))
    shares = [len(set(query.split()) & set(texts[index].replace(",", " ").split())) for index in order]
    assert shares == sorted(shares, reverse=True)
    assert rerank(query, [texts[index] for index in order]) == list(range(len(texts)))
