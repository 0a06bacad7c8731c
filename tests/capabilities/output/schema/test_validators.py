"""Patterns take linear time and bounded memory, or are refused."""

import pytest

from app.capabilities.output.schema.validators import MAX_PATTERN_BYTES, LinearPattern, compile_validator, pattern_bytes


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
def test_a_pattern_that_cannot_be_searched_within_limits_has_no_size(pattern: str) -> None:
    assert pattern_bytes(pattern) is None
    with pytest.raises(ValueError):
        LinearPattern(pattern)


def test_larger_patterns_have_larger_sizes() -> None:
    sizes = [pattern_bytes(pattern) or 0 for pattern in ("^a$", r"^\p{L}+$", "^.{1,255}$")]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= MAX_PATTERN_BYTES


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/schema", "file:///etc/hostname", "https://json-schema.org/x"])
def test_nothing_is_ever_fetched(address: str) -> None:
    with pytest.raises(ValueError, match=r"[Rr]etriev"):
        compile_validator({"$ref": address})
