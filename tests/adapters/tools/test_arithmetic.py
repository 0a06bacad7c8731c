"""Arithmetic expressions: exact values, limits and refusals."""

import re
from contextlib import suppress
from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.tools.arithmetic import MAX_CHARACTERS, ExpressionError, evaluate, format_value

Tree: TypeAlias = "str | tuple[str, Tree, Tree]"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1/3", "1/3 (about 0.333333333333333)"),
        ("-10/4", "-2.5"),
        ("1/8 - 1", "-0.875"),
        ("1 / 3 * 3", "1"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("10 - 3 - 2", "5"),
        ("100 / 10 / 5", "2"),
        ("-2 ** 2", "-4"),
        ("(-2) ** 2", "4"),
        ("2 ** 3 ** 2", "512"),
        ("2 ** -1", "0.5"),
        ("0 ** 0", "1"),
        ("1 ** 99999999999", "1"),
        ("7 // -2", "-4"),
        ("-7 % 3", "2"),
        ("7.5 // 2", "3"),
        ("7.5 % 2", "1.5"),
        ("--1", "1"),
        ("+.5 + 5.", "5.5"),
        (" ( 1 ) ", "1"),
        ("10 ** 999", "1" + "0" * 999),
        ("1 / 2 ** 100", f"0.{'0' * 30}{5**100}"),
        ("1 / 2 ** 101", f"1/{2**101} (about 3.94430452610506E-31)"),
    ],
)
def test_the_value_is_exact_and_formatted_exactly_if_possible(expression: str, text: str) -> None:
    assert format_value(evaluate(expression)) == text


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "unexpected end where a number was expected"),
        ("1 +", "unexpected end where a number was expected"),
        ("(1", r"unexpected end where \) was expected"),
        ("1)", r"unexpected \) where the end was expected"),
        ("1 2", "unexpected 2 where the end was expected"),
        ("* 2", r"unexpected \* where a number was expected"),
        ("2 ^ 3", r"unexpected character at position 2; allowed are numbers, \+ - \* / // % \*\* and parentheses"),
        ("__import__('os')", "unexpected character at position 1"),
        ("1e3", "unexpected character at position 2"),
        ("1_000", "unexpected character at position 2"),
        ("\u0663", "unexpected character at position 1"),
        ("1 / 0", "it divides by zero"),
        ("1 // 0.0", "it divides by zero"),
        ("1 % (2 - 2)", "it divides by zero"),
        ("0 ** -1", "it divides by zero"),
        ("2 ** 0.5", "an exponent must be a whole number"),
    ],
)
def test_an_expression_without_value_is_refused_with_the_reason(expression: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        evaluate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**9**9**9**9",
        "2**99999999999999999999",
        "(1/2)**-99999999999999999999",
        "0.1**99999",
        "(" * 300 + "1" + ")" * 300,
        "-" * 900 + "1",
        "2**" * 300 + "1",
        "9**900 * 9**900",
        "1" * (MAX_CHARACTERS + 1),
        "*".join(["(3/7)**1000"] * 80),
    ],
)
def test_large_expressions_are_refused_fast(expression: str) -> None:
    with pytest.raises(ExpressionError, match=r"too large|nested deeper|longer than"):
        evaluate(expression)


NUMBERS = st.one_of(
    st.integers(0, 10**6).map(str), st.decimals(0, 1000, places=3, allow_nan=False).map(lambda number: f"{number:f}")
)
TREES = st.recursive(
    NUMBERS, lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner, inner), max_leaves=12
)


def _text(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({_text(tree[1])} {tree[0]} {_text(tree[2])})"


def _value(tree: Tree) -> Fraction:
    if isinstance(tree, str):
        return Fraction(tree)
    left, right = _value(tree[1]), _value(tree[2])
    results = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right,
        "//": lambda: Fraction(left // right),
        "%": lambda: left % right,
    }
    return results[tree[0]]()


@given(TREES)
def test_every_expression_agrees_with_fractions(tree: Tree) -> None:
    try:
        expected = _value(tree)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="divides by zero"):
            evaluate(_text(tree))
    else:
        assert evaluate(_text(tree)) == expected


MARKS = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "+-", "**-", "*-"])


@given(st.integers(0, 9), st.lists(st.tuples(MARKS, st.integers(0, 9)), max_size=6))
def test_precedence_and_associativity_are_those_of_python(first: int, more: list[tuple[str, int]]) -> None:
    text = f"{first}{''.join(f'{mark}{number}' for mark, number in more)}"
    with suppress(ExpressionError):
        ours = evaluate(text)
        assert ours == eval(re.sub(r"(\d+)", r"Fraction(\1)", text))  # noqa: S307 - Python is the oracle


@given(st.fractions())
def test_a_formatted_value_equals_the_value(value: Fraction) -> None:
    text = format_value(value)
    assert Fraction(text.partition(" (about ")[0]) == value


@given(st.text(alphabet="0123456789.+-*/%() ", max_size=60))
def test_any_text_has_a_value_or_is_refused(text: str) -> None:
    with suppress(ExpressionError):
        assert format_value(evaluate(text))
