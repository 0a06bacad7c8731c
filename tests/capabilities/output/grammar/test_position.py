"""Positions in a text that is being written agree with checks of the whole text."""

import pytest

from portico.capabilities.output.grammar import Grammar, GrammarPosition, TooAmbiguousError

SUMS = Grammar('root ::= term ("+" term)*\nterm ::= [0-9]{1,2} | "(" root ")"')
BRACKETS = Grammar('root ::= "x" | "(" root ")" | "(" root "]"')
WORDS = Grammar('root ::= ("é" | "日本" | [а-я])+ [^a-z]?')  # noqa: RUF001 - Cyrillic on purpose


def follow(grammar: Grammar, text: str) -> GrammarPosition | None:
    place: GrammarPosition | None = grammar.start()
    for character in text:
        place = place and place.advance(character)
    return place


@pytest.mark.parametrize("grammar", [SUMS, BRACKETS, WORDS])
@pytest.mark.parametrize(
    "text", ["", "1", "12+(3", "(1+2)+3", "123", "((x])", "((x]))", "x(", "éя日", "日本!", "日本a"]
)
def test_a_position_agrees_with_a_check(grammar: Grammar, text: str):
    for size in range(len(text) + 1):
        place, verdict = follow(grammar, text[:size]), grammar.check(text[:size])
        assert (place is not None) == (verdict.position == size)
        assert (place is not None and place.is_complete) == verdict.accepted


def test_a_position_is_usable_without_a_reference_to_its_grammar():
    place = follow(Grammar('root ::= ("a" | "b"){3}'), "a")
    assert place is not None
    after = place.advance("b")
    assert after is not None
    assert [after.advance(last) is not None for last in "abc"] == [True, True, False]


def test_any_number_of_characters_can_be_tried_from_one_position():
    place = follow(SUMS, "1")
    assert place is not None
    assert place.advance("a") is None
    assert place.advance("2") is not None
    assert place.advance("+") is not None
    assert place.is_complete
    assert place.advance("2") is not None


@pytest.mark.parametrize(
    ("text", "first", "last", "expected"),
    [
        ("", 0xE9, 0xE9, True),
        ("", 0xEA, 0xFF, False),
        ("", 0xC0, 0xFF, True),
        ("", 0x3000, 0x9FFF, True),
        ("", 0x450, 0x2FFF, False),
        ("", 0x430, 0x430, True),
        ("日", 0x3000, 0x9FFF, True),
        ("日", 0x61, 0xFFF, False),
        ("é", 0x61, 0x7A, False),
        ("é", 0x61, 0x7B, True),
        ("é", 0xD800, 0xDFFF, False),
        ("é", 0x10FFFF, 0x10FFFF, True),
    ],
)
def test_a_position_tests_a_range_of_characters(text: str, first: int, last: int, expected: bool):
    place = follow(WORDS, text)
    assert place is not None
    assert place.accepts_any_of(first, last) is expected


def test_many_readings_are_followed_together():
    place = follow(BRACKETS, "(" * 200 + "x" + ")]" * 100)
    assert place is not None
    assert place.is_complete


def test_too_many_readings_raise_an_error():
    deep = "".join(f'r{number} ::= "a" r{number + 1} | r{number + 1} | "a" | r{number + 2}\n' for number in range(900))
    grammar = Grammar(f'root ::= (r0 | r1 | r2){{500}}\n{deep}r900 ::= "a"\nr901 ::= "a"')
    with pytest.raises(TooAmbiguousError):
        follow(grammar, "a" * 2_000)
