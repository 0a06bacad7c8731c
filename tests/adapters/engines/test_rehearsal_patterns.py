"""Texts made from regular expressions."""

import re
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.adapters.engines.rehearsal.patterns import MOST_CHARACTERS, UnmakeableError, texts


def made(pattern: str, least: int = 0, most: int | None = None) -> list[str]:
    return list(texts(pattern, least, most, lambda _: 0))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("", ""),
        ("^abc$", "abc"),
        (r"^\d{3}-\w+$", "000-a"),
        ("^(yes|no)?$", ""),
        ("^(yes|no)$", "yes"),
        ("^[^a-c]$", "d"),
        ("^[xyz]{2,}$", "xx"),
        (r"^\u0041\x42\u{43}$", "ABC"),
        (r"^\p{Lu}\p{L}\pN$", "Aa0"),
        ("^[]-]$", "-"),
        ("^a{2}?b$", "aab"),
        ("a{", "a{"),
        ("^.$", "a"),
    ],
)
def test_the_shortest_text_comes_first(pattern: str, text: str) -> None:
    assert made(pattern)[0] == text


def test_lengths_are_kept() -> None:
    assert made("^[a-z]+$", 12, 12) == ["a" * 12]
    assert all(7 <= len(each) <= 9 for each in made("^([a-z][0-9])+$", 7, 9))
    assert made("^a$", 2) == []


def test_turns_give_other_texts() -> None:
    assert [next(texts("^[abc]$", 0, None, lambda options, turn=turn: turn % options)) for turn in range(3)] == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?=a)b", "(?i)a", r"(a)\1", "(", ")", "[", "[a", "\\", r"\p{Greek}", r"\q", "[[a]]", "[a&&b]", "[z-a]"),
        *("(" * 60 + ")" * 60, "(?:a{1000}){1000}", "((a{99}){99}){99}", r"[^\s\S]"),
    ],
)
def test_what_is_not_understood_is_said(pattern: str) -> None:
    with pytest.raises(UnmakeableError):
        made(pattern)


@settings(deadline=None, max_examples=400, derandomize=True)
@given(st.text(alphabet="ab01()[]{}|?*+^$.,-\\dwspLxu:<=!", max_size=24))
def test_any_pattern_ends_soon(pattern: str) -> None:
    try:
        found = list(islice(texts(pattern, 0, None, lambda _: 0), 20))
    except UnmakeableError:
        return
    assert all(len(each) <= 4 * MOST_CHARACTERS for each in found)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.lists(st.sampled_from(["a", "[b-d]", r"\d", "(x|yz)", ".", r"\w", "[^q]"]), min_size=1),
    st.sampled_from(["", "+", "{2}", "?"]),
)
def test_what_is_made_is_found_by_the_pattern(parts: list[str], times: str) -> None:
    pattern = "^" + times.join([*parts, ""]) + "$"
    assert all(re.fullmatch(pattern, each) for each in made(pattern))
