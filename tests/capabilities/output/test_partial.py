"""The partial value of an answer can be shown while it is written."""

import itertools
import json
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.extract import extract
from portico.capabilities.output.partial import MAX_CHARACTERS, MAX_NODES, PartialAnswer, partial_value
from tests.support.seeds import randomised


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("Let me think", None),
        ("42", None),
        ('So: {"a": [1, 2', {"a": [1, 2]}),
        ('{"a": "so f', {"a": "so f"}),
        ('{"a": tru', {}),
        ('```json\n{"a": "b', {"a": "b"}),
        ("As [noted] in {it}: [1", [1]),
        ('{"a": 1} and more {', {"a": 1}),
        ("{'a': 1} [2", [2]),
        ("{'a': 1", None),
        ('{"a": NaN', None),
        ("[1e400, 2", None),
        ("[1, 18446744073709551616, 2", None),
        (r'["\ud800", 1', None),
        ("[" * 65, None),
        ("[" * 5_000, None),
        ('{"a": null, "b": "', {"a": None, "b": ""}),
    ],
)
def test_the_partial_value_has_the_complete_parts(text: str, value: Any) -> None:
    assert partial_value(text) == value


values = st.dictionaries(st.text(max_size=5), st.integers(0, 999) | st.text() | st.lists(st.booleans()), min_size=1)


@randomised(200)
@given(values, st.integers(1, 40))
def test_the_last_partial_value_is_the_extracted_value(value: dict[str, Any], length: int) -> None:
    text = f"Here:\n```json\n{json.dumps(value)}\n```"
    answer = PartialAnswer()
    shown = [found for at in range(0, len(text), length) if (found := answer.add(text[at : at + length])) is not None]
    assert all(before != after for before, after in itertools.pairwise(shown))
    assert all(list(found) == list(value)[: len(found)] for found in shown)
    assert partial_value(text) == extract(text).value == value


def test_an_answer_is_read_a_bounded_number_of_times_with_pieces_of_any_size() -> None:
    text = json.dumps([{"number": number, "text": "words " * 5} for number in range(4_000)])
    answer = PartialAnswer()
    shown = sum(answer.add(character) is not None for character in text)
    assert 40 < shown < 120


def test_pieces_that_change_nothing_show_nothing() -> None:
    answer = PartialAnswer()
    assert answer.add('{"a": 1}') == {"a": 1}
    assert answer.add(" " * 100) is None
    assert reduce(lambda _, piece: answer.add(piece), ["and", " so", " on"], None) is None


def test_a_long_answer_and_one_with_many_values_are_no_longer_shown() -> None:
    for text in (json.dumps({"a": "x" * MAX_CHARACTERS, "b": 1}), json.dumps([1] * (MAX_NODES + 2))):
        answer, cut = PartialAnswer(), len(text) // 2
        assert answer.add(text[:cut]) is not None
        assert answer.add(text[cut:-1]) is None
        assert answer.add(text[-1:]) is None


def test_an_unreadable_text_is_tried_less_and_less_often() -> None:
    answer, text = PartialAnswer(), "[[" * 30_000
    assert sum(answer.add(character) is not None for character in text) < 8
