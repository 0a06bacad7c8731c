"""Patterns take linear time and bounded memory, or are refused."""

import pytest

from portico.capabilities.output.schema.validators import LinearPattern, compile_validator, is_linear


@pytest.mark.parametrize(
    ("pattern", "text", "occurs"),
    [
        ("^a+$", "aaa", True),
        ("^a+$", "aab", False),
        ("b", "abc", True),
        (r"^\d{4}$", "2026", True),
        (r"^\d{4}$", "٢٠٢٦", False),
        (r"^\p{L}+$", "Zoë", True),
        ("^.$", "😀", True),
        ("^(a+)+$", "a" * 50_000 + "!", False),
    ],
)
def test_a_pattern_is_searched_for_as_json_schema_does(pattern: str, text: str, *, occurs: bool) -> None:
    assert LinearPattern(pattern).occurs_in(text) is occurs


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "[", "a{2,1}", "(?:a{1000}){1000}", r"\p{L}{500}"])
def test_a_pattern_that_cannot_be_searched_within_limits_is_not_linear(pattern: str) -> None:
    assert not is_linear(pattern)
    with pytest.raises(ValueError):
        LinearPattern(pattern)


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/schema", "file:///etc/hostname", "https://json-schema.org/x"])
def test_nothing_is_ever_fetched(address: str) -> None:
    with pytest.raises(ValueError, match=r"[Rr]etriev"):
        compile_validator({"$ref": address})
