"""JSON paths: formatting, parsing and evaluation."""

from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.domain.json_path import Matches, PathStep, children, format_path, parse

steps = st.lists(st.text(max_size=12) | st.integers(-999, 999) | st.none(), max_size=8).map(tuple)


@given(steps)
@settings(deadline=None, max_examples=300, derandomize=True)
def test_a_formatted_path_is_parsed_back(path: tuple[PathStep, ...]) -> None:
    assert parse(format_path(path)) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$", ()),
        ("$.items[0].name", ("items", 0, "name")),
        ("$.items[*].price", ("items", None, "price")),
        ("$.*", (None,)),
        ("$['a b'][\"c'd\"]", ("a b", "c'd")),
        ("$['it\\'s']", ("it's",)),
        ("$[-1]", (-1,)),
        ("$.naïve-key", ("naïve-key",)),
    ],
)
def test_a_path_is_parsed_step_by_step(text: str, path: tuple[PathStep, ...]) -> None:
    assert parse(text) == path


@pytest.mark.parametrize(
    "text", ["", "a", ".a", "$a", "$.", "$..a", "$[", "$[a]", "$[1:2]", "$[?@.a]", "$['a]", "$.a b", "$" + ".a" * 65]
)
def test_an_invalid_path_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="must be a path"):
        parse(text)


VALUE = {"items": [{"n": 1}, {"n": 2}, {}], "a": {"b": None}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$", [("$", VALUE)]),
        ("$.items[1].n", [("$.items[1].n", 2)]),
        ("$.items[-3].n", [("$.items[0].n", 1)]),
        ("$.items[*].n", [("$.items[0].n", 1), ("$.items[1].n", 2)]),
        ("$.a.*", [("$.a.b", None)]),
        ("$.a.b", [("$.a.b", None)]),
        ("$.items[3]", []),
        ("$.items.n", []),
        ("$.a[0]", []),
        ("$.none[*]", []),
    ],
)
def test_a_path_finds_values_with_their_own_paths(text: str, found: list[tuple[str, Any]]) -> None:
    reached: Matches = reduce(children, parse(text), [((), VALUE)])
    assert [(format_path(place), value) for place, value in reached] == found


def test_a_long_name_is_cut_in_a_formatted_path() -> None:
    assert len(format_path(["x" * 1_000])) < 80
