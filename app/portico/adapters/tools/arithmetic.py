"""Evaluator of arithmetic expressions, exact and with limits on everything that could grow.

    sum      = product { ("+" | "-") product }
    product  = unary { ("*" | "/" | "//" | "%") unary }
    unary    = ("-" | "+") unary | power
    power    = operand [ "**" unary ]
    operand  = digits [ "." [ digits ] ] | "." digits | "(" sum ")"

Signs and precedence are those of Python: `-2 ** 2` is -4 and `2 ** 3 ** 2` is 512. Every value is a `Fraction`, so
nothing is rounded: `0.1 + 0.2` is 0.3. A result is formatted as an integer, as a decimal of at most 100 places, or as a
fraction in lowest terms with 15 digits of its value: `1/3 (about 0.333333333333333)`.
"""

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from types import MappingProxyType

MAX_CHARACTERS = 1000
MAX_DEPTH = 50
MAX_BITS = 3322
MAX_DECIMAL_PLACES = 100

_TOKEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+|\*\*|//|[-+*/%()])")
_MARKS = frozenset({"+", "-", "*", "/", "//", "%", "**", "(", ")"})
_SIGNS = MappingProxyType({"+": 1, "-": -1})
_ABOUT = Context(prec=15)
_ALLOWED = "allowed are numbers, + - * / // % ** and parentheses"
_TOO_LARGE = "a number is too large; the limit is about 1000 digits"

_Operation = Callable[[Fraction, Fraction], Fraction]
_SUMS: Mapping[str, _Operation] = MappingProxyType({"+": operator.add, "-": operator.sub})
_PRODUCTS: Mapping[str, _Operation] = MappingProxyType(
    {
        "*": operator.mul,
        "/": operator.truediv,
        "//": lambda left, right: Fraction(left // right),
        "%": operator.mod,
    }
)


class ExpressionError(Exception):
    """Failure of an expression that has no value; the message says why."""


def evaluate(expression: str) -> Fraction:
    """Return the exact value. Raises: ExpressionError."""
    if len(expression) > MAX_CHARACTERS:
        raise ExpressionError(f"the expression is longer than {MAX_CHARACTERS} characters")
    parser = _Parser(_tokens(expression))
    try:
        value = parser.sum()
    except ZeroDivisionError:
        raise ExpressionError("it divides by zero") from None
    parser.expect("")
    return value


def format_value(value: Fraction) -> str:
    """Return the value as text, exact if possible."""
    if value.denominator == 1:
        return str(value.numerator)
    places = _places(value.denominator)
    if places > MAX_DECIMAL_PLACES:
        about = _ABOUT.divide(Decimal(value.numerator), Decimal(value.denominator))
        return f"{value} (about {about})"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


class _Parser:
    """Recursive-descent parser; each rule of the grammar is the method of its name and returns its value."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def expect(self, token: str) -> None:
        """Consume that token, or raise ExpressionError."""
        if self._next != token:
            raise ExpressionError(f"unexpected {self._next or 'end'} where {token or 'the end'} was expected")
        self._position += 1

    def sum(self) -> Fraction:
        return self._chain(_SUMS, self.product)

    def product(self) -> Fraction:
        return self._chain(_PRODUCTS, self.unary)

    def unary(self) -> Fraction:
        if self._depth == MAX_DEPTH:
            raise ExpressionError(f"it is nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        sign = _SIGNS.get(self._next)
        if sign is None:
            value = self.power()
        else:
            self._position += 1
            value = sign * self.unary()
        self._depth -= 1
        return value

    def power(self) -> Fraction:
        base = self.operand()
        if self._next != "**":
            return base
        self._position += 1
        return _power(base, self.unary())

    def operand(self) -> Fraction:
        found = self._next
        if found == "(":
            self._position += 1
            value = self.sum()
            self.expect(")")
            return value
        if not found or found in _MARKS:
            raise ExpressionError(f"unexpected {found or 'end'} where a number was expected")
        self._position += 1
        return Fraction(found)

    @property
    def _next(self) -> str:
        """Return the next token, or an empty text at the end."""
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _chain(self, operations: Mapping[str, _Operation], operand: Callable[[], Fraction]) -> Fraction:
        value = operand()
        while (operation := operations.get(self._next)) is not None:
            self._position += 1
            value = _bounded(operation(value, operand()))
        return value


def _tokens(expression: str) -> list[str]:
    """Split the expression into numbers and marks."""
    tokens = []
    position = 0
    text = expression.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ExpressionError(f"unexpected character at position {position + 1}; {_ALLOWED}")
        tokens.append(found[1])
        position = found.end()
    return tokens


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Return the power; raise ExpressionError before computing a value that would be too large."""
    if exponent.denominator != 1:
        raise ExpressionError("an exponent must be a whole number")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if bits * abs(exponent.numerator) > MAX_BITS:
        raise ExpressionError(_TOO_LARGE)
    return _bounded(Fraction(base**exponent.numerator))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError(_TOO_LARGE)
    return value


def _places(denominator: int) -> int:
    """Return the decimal places of a fraction in lowest terms; more than `MAX_DECIMAL_PLACES` if it never ends."""
    return next(
        (places for places in range(MAX_DECIMAL_PLACES + 1) if 10**places % denominator == 0), MAX_DECIMAL_PLACES + 1
    )
