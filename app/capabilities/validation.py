"""Judges an answer of the right form by rules: all of them run, and all that are broken are reported.

A rule with a path speaks of what stands there in the structured output: of each place where the path means several,
and it is broken where a path that means one leads to none. A rule without a path speaks of the answer's text.
Patterns are searched for by the engine of JSON Schema's `pattern`, in linear time; Python's own can take forever.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import ge, gt, le, lt
from types import MappingProxyType
from typing import Any, Final, assert_never

from app.capabilities.constraint.validators import Pattern, pattern_size
from app.domain import json_path
from app.domain.failures import Code, RequestFailure, ValidationFailure
from app.domain.rules import Compare, Custom, Length, NotEmpty, OneOf, Operator, Regex, Rule

MOST_RULES: Final = 64
_MOST_MATCH_COST: Final = 5_000_000_000
"""Characters of a text times bytes of a pattern: 50 ms at worst."""
_ORDERS = MappingProxyType({"lt": lt, "le": le, "gt": gt, "ge": ge})
_IS = MappingProxyType({"eq": "", "ne": "not ", "lt": "below ", "le": "at most ", "gt": "above ", "ge": "at least "})


@dataclass(frozen=True, slots=True)
class Answer:
    """What is judged: the text, and the value where the answer has one."""

    text: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule: its name or type, the place as a JSON path, and why, without the value itself."""

    rule: str
    path: str
    message: str

    def told(self) -> dict[str, str]:
        """What clients and models are told."""
        return {"rule": self.rule, "path": self.path, "message": self.message}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say together. Under strict validation there are no warnings: all are errors."""

    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.errors

    @property
    def confidence(self) -> float:
        """1.0 or 0.0; where a judge gives a score, that takes its place."""
        return 1.0 if self.valid else 0.0

    def failure(self) -> ValidationFailure:
        """The failure that an answer with errors is."""
        details = {
            "violations": [finding.told() for finding in self.errors],
            "warnings": [finding.told() for finding in self.warnings],
        }
        rules = ", ".join(dict.fromkeys(finding.rule for finding in self.errors))
        return ValidationFailure(Code.VALIDATION_RULE_FAILED, f"the answer breaks {rules}", details)


Check = Callable[[Answer, Mapping[str, Any]], str | None]
"""A custom rule: told the answer and its options, it says why the rule is broken, or None."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A rule and what it is called."""

    name: str
    rule: Rule


class RuleBook:
    """The rules of a deployment: some with names of their own, some written in Python.

    A name stands for a rule of that name, else for the custom rule of that name without options. `not_empty` has its
    name from the start.
    """

    def __init__(self, named: Mapping[str, Rule] | None = None, checks: Mapping[str, Check] | None = None) -> None:
        self._checks = dict(checks or {})
        self._named: dict[str, Rule] = {"not_empty": NotEmpty(type="not_empty")}
        self._named |= {name: Custom(type="custom", name=name) for name in self._checks}
        self._named |= named or {}

    def names(self) -> tuple[str, ...]:
        """Every name that a request can use."""
        return tuple(sorted(self._named))

    def rules(self, asked: Sequence[str | Rule]) -> "Rules":
        """The rules asked for, by name or inline.

        Raises: RequestFailure (REQUEST_INVALID) for unknown names and patterns that cannot be used, all at once.
        """
        faults = [(index, fault) for index, rule in enumerate(asked) if (fault := self._fault(rule))]
        if len(asked) > MOST_RULES:
            faults.append((MOST_RULES, f"there are more than {MOST_RULES} rules"))
        if faults:
            told = [{"field": f"output.rules.{index}", "message": fault} for index, fault in faults]
            first = f"{told[0]['field']}: {told[0]['message']}"
            raise RequestFailure(Code.REQUEST_INVALID, first, {"errors": told})
        return Rules([self._found(rule) for rule in asked], self._checks)

    def _found(self, asked: str | Rule) -> _Named:
        if isinstance(asked, str):
            return _Named(asked, self._named[asked])
        return _Named(asked.name if isinstance(asked, Custom) else asked.type, asked)

    def _fault(self, asked: str | Rule) -> str | None:
        if isinstance(asked, str):
            return None if asked in self._named else "there is no rule of that name"
        if isinstance(asked, Custom) and asked.name not in self._checks:
            return "there is no custom rule of that name"
        if isinstance(asked, Regex) and pattern_size(asked.pattern) is None:
            return "the pattern cannot be searched for in linear time, or is too large"
        return None


class Rules:
    """The rules of one request, ready to judge any number of answers."""

    def __init__(self, rules: Iterable[_Named], checks: Mapping[str, Check]) -> None:
        self._rules = tuple(rules)
        self._checks = checks

    def judge(self, answer: Answer, *, strict: bool = False) -> Verdict:
        """What all the rules say; `strict` makes an error of every warning."""
        errors: list[Finding] = []
        warnings: list[Finding] = []
        for named in self._rules:
            kept_in = warnings if named.rule.severity == "warning" and not strict else errors
            kept_in += (Finding(named.name, path, message) for path, message in self._broken(named.rule, answer))
        return Verdict(tuple(errors), tuple(warnings))

    def _broken(self, rule: Rule, answer: Answer) -> Iterator[tuple[str, str]]:
        """Each place where the rule is broken, and why."""
        if isinstance(rule, Custom):
            message = _checked(self._checks[rule.name], answer, rule)
            if message is not None:
                yield rule.path or "$", message
            return
        for path, value in _spoken_of(rule, answer):
            message = "is missing" if value is _MISSING else _fault(rule, value, answer)
            if message is not None:
                yield path, message


_MISSING: Final = object()


def _spoken_of(rule: Rule, answer: Answer) -> Iterator[tuple[str, Any]]:
    if rule.path is None:
        yield "$", answer.text
        return
    steps = json_path.read(rule.path)
    found = list(json_path.at(answer.value, steps))
    if not found and None not in steps:
        yield rule.path, _MISSING
    yield from ((json_path.written(place), value) for place, value in found)


def _checked(check: Check, answer: Answer, rule: Custom) -> str | None:
    try:
        return check(answer, rule.options)
    except Exception as crash:  # noqa: BLE001 - other people's code: a rule that fails is a rule that is not kept
        return f"the rule itself failed: {type(crash).__name__}"


def _fault(rule: NotEmpty | Length | Regex | Compare | OneOf, value: Any, answer: Answer) -> str | None:
    match rule:
        case NotEmpty():
            empty = not value.strip() if isinstance(value, str) else value is None or value in ([], {})
            return "is empty" if empty else None
        case Length():
            return _length_fault(rule, value)
        case Regex():
            return _regex_fault(rule.pattern, value)
        case Compare():
            return _compare_fault(rule, value, answer)
        case OneOf():
            stripped = value.strip() if isinstance(value, str) and rule.path is None else value
            return (
                None if any(_equal(stripped, allowed) for allowed in rule.values) else "is none of the values allowed"
            )
        case _:
            assert_never(rule)


def _length_fault(rule: Length, value: Any) -> str | None:
    if not isinstance(value, str | list | dict):
        return "has no length"
    unit = "characters" if isinstance(value, str) else "entries"
    if rule.min is not None and len(value) < rule.min:
        return f"has fewer than {rule.min} {unit}"
    if rule.max is not None and len(value) > rule.max:
        return f"has more than {rule.max} {unit}"
    return None


def _regex_fault(pattern: str, value: Any) -> str | None:
    if not isinstance(value, str):
        return "is no text"
    if (pattern_size(pattern) or 0) * len(value) > _MOST_MATCH_COST:
        return "is too long to be searched for the pattern"
    return None if _pattern(pattern).occurs_in(value) else "does not match the pattern"


@lru_cache(maxsize=64)
def _pattern(text: str) -> Pattern:
    return Pattern(text)


def _compare_fault(rule: Compare, value: Any, answer: Answer) -> str | None:
    others = [rule.value]
    if rule.other is not None:
        others = [found for _, found in json_path.at(answer.value, json_path.read(rule.other))]
        if not others:
            return f"cannot be compared: {rule.other} is missing"
    than = rule.other or "the value asked for"
    for other in others:
        holds = _compares(rule.operator, value, other)
        if holds is None:
            return f"cannot be compared with {than}"
        if not holds:
            return f"must be {_IS[rule.operator]}{than}"
    return None


def _compares(operator: Operator, value: Any, other: Any) -> bool | None:
    """Whether it holds; None where values of these kinds have no order."""
    if operator not in _ORDERS:
        return _equal(value, other) is (operator == "eq")
    numbers = _is_number(value) and _is_number(other)
    texts = isinstance(value, str) and isinstance(other, str)
    return bool(_ORDERS[operator](value, other)) if numbers or texts else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(value: Any, other: Any) -> bool:
    """Equality as JSON means it: 1 is 1.0, but true is not 1."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_equal(value[name], other[name]) for name in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_equal, value, other))
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
