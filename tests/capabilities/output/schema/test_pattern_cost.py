"""The estimated cost of searching for a pattern is low for ordinary patterns and never far too low."""

import pytest

from app.capabilities.output.schema.pattern_cost import pattern_cost

ORDINARY = [
    "^[A-Z]{3}$",
    "^.{1,255}$",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$",
    "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"^\+?[1-9]\d{1,14}$",
    "^(?:a|b|c){1,30}$",
    "^https?://",
    r"^\p{Lu}[\p{L} .'-]+$",
    r"^[^\s]+$",
    "^$",
]


@pytest.mark.parametrize("pattern", ORDINARY)
def test_ordinary_patterns_cost_little(pattern: str) -> None:
    assert pattern_cost(pattern) <= 8


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("abc", 3),
        ("[ab]*a[ab]{20}c", 23),
        ("(?:a?){20}a{20}", 40),
        (r"\p{L}{10}", 10),
        ("(?<name>a|bc){2,3}?d", 10),
        ("^a{3}|b{2}", 5),
        ("^.*a.{20}b", 23),
        (r"^[^@]{1,64}@.{1,255}$", 64),
        (r"[\w\]-]{5}\.\u0041\x{41}", 8),
        ("a{2}{3}", 6),
        ("a{,3}", 5),
    ],
)
def test_the_cost_of_a_pattern_depends_on_its_simultaneous_places(pattern: str, places: int) -> None:
    assert pattern_cost(pattern) == 1 + int(2.5 * places)


def test_word_boundaries_cost_more_since_they_are_never_cached() -> None:
    assert pattern_cost(r"\bab\b") > 2 * pattern_cost("ab")


@pytest.mark.parametrize(
    "pattern", ["(?i)abc", "[a[bc]]", "[a&&b]", "[]a]", "(?:a{99}){99}", "(?:){9999}", "^*a", "a" * 3_000]
)
def test_the_cost_of_a_pattern_that_is_not_understood_depends_on_its_size(pattern: str) -> None:
    assert pattern_cost(pattern) >= 4096 // 64
