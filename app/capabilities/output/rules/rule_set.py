"""Judges an answer of the right form by rules: all of them run, and all that are broken are reported.

A rule with a path speaks of what stands there in the structured output: of each place where the path means several,
and it is broken where a path that means one leads to none. A rule without a path speaks of the answer's text. What all
of them take together is bounded: a rule that there is too much for is broken.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.capabilities.output.rules.checks import RuleBudget, RuleBudgetExceededError, value_check
from app.capabilities.output.schema.compiled import MAX_PATTERNS_BYTES
from app.capabilities.output.schema.validators import pattern_bytes
from app.domain import json_path
from app.domain.contract.rules import Compare, Custom, NotEmpty, Regex, Rule
from app.domain.failures import Code, RequestFailure, ValidationFailure

MAX_FAULTS: Final = 8
"""What is told of rules that cannot be used, since a pattern that is too large takes long to be found so."""
MAX_VIOLATIONS_PER_RULE: Final = 20
"""Places that are told of one rule."""


@dataclass(frozen=True, slots=True)
class AnswerContent:
    """What is judged: the text, and the value where the answer has one."""

    text: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A broken rule: its name or type, the place as a JSON path, and why, without the value itself."""

    rule: str
    path: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """What clients and models are told."""
        return {"rule": self.rule, "path": self.path, "message": self.message}


@dataclass(frozen=True, slots=True)
class RuleReport:
    """What the rules say together. Under strict validation there are no warnings: all are errors."""

    errors: tuple[RuleViolation, ...] = ()
    warnings: tuple[RuleViolation, ...] = ()

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
            "violations": [finding.as_dict() for finding in self.errors],
            "warnings": [finding.as_dict() for finding in self.warnings],
        }
        rules = ", ".join(dict.fromkeys(finding.rule for finding in self.errors))
        return ValidationFailure(Code.VALIDATION_RULE_FAILED, f"the answer breaks {rules}", details)


CustomRule = Callable[[AnswerContent, Mapping[str, Any]], str | None]
"""A custom rule: told the answer and its options, it says why the rule is broken, or None."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A rule and what it is called."""

    name: str
    rule: Rule


class RuleRegistry:
    """The rules that have names: `not_empty`, and those written in Python, named without their options."""

    def __init__(self, checks: Mapping[str, CustomRule]) -> None:
        self._checks = checks
        self._named: dict[str, Rule] = {name: Custom(type="custom", name=name) for name in checks}
        self._named["not_empty"] = NotEmpty(type="not_empty")

    def names(self) -> tuple[str, ...]:
        """Every name that a request can use."""
        return tuple(sorted(self._named))

    def compile(self, asked: Sequence[str | Rule]) -> "RuleSet":
        """The rules asked for, by name or inline.

        Raises: RequestFailure (REQUEST_INVALID) for unknown names and patterns that cannot be used, some at once.
        """
        faults: list[tuple[int, str]] = []
        sizes: dict[str, int] = {}
        for index, rule in enumerate(asked):
            size = pattern_bytes(rule.pattern) if isinstance(rule, Regex) else 0
            if isinstance(rule, Regex):
                sizes[rule.pattern] = size or 0
            if (fault := self._fault(rule, size, sum(sizes.values()))) is not None:
                faults.append((index, fault))
            if len(faults) == MAX_FAULTS:
                break
        if faults:
            told = [{"field": f"output.rules.{index}", "message": fault} for index, fault in faults]
            first = f"{told[0]['field']}: {told[0]['message']}"
            raise RequestFailure(Code.REQUEST_INVALID, first, {"errors": told})
        return RuleSet([self._found(rule) for rule in asked], self._checks)

    def _found(self, asked: str | Rule) -> _Named:
        if isinstance(asked, str):
            return _Named(asked, self._named[asked])
        return _Named(asked.name if isinstance(asked, Custom) else asked.type, asked)

    def _fault(self, asked: str | Rule, pattern_bytes: int | None, patterns_bytes: int) -> str | None:
        if isinstance(asked, str):
            return None if asked in self._named else "there is no rule of that name"
        if isinstance(asked, Custom) and asked.name not in self._checks:
            return "there is no custom rule of that name"
        if isinstance(asked, Compare) and ("value" in asked.model_fields_set) is (asked.other is not None):
            return "must have value or other, and not both"
        if pattern_bytes is None:
            return "the pattern cannot be searched for in linear time, or is too large"
        return "the patterns up to here are too large together" if patterns_bytes > MAX_PATTERNS_BYTES else None


class RuleSet:
    """The rules of one request, ready to judge any number of answers."""

    def __init__(self, rules: Iterable[_Named], checks: Mapping[str, CustomRule]) -> None:
        self._rules = tuple(rules)
        self._checks = checks

    @property
    def are_quick(self) -> bool:
        """True if validating a short answer takes less than about a millisecond: no rule searches for a pattern."""
        return not any(isinstance(named.rule, Regex) for named in self._rules)

    def validate(self, answer: AnswerContent, *, strict: bool = False) -> RuleReport:
        """What all the rules say; `strict` makes an error of every warning."""
        errors: list[RuleViolation] = []
        warnings: list[RuleViolation] = []
        effort = RuleBudget()
        for named in self._rules:
            kept_in = warnings if named.rule.severity == "warning" and not strict else errors
            broken = self._broken(named.rule, answer, effort)
            kept_in += (RuleViolation(named.name, path, message) for path, message in broken)
        return RuleReport(tuple(errors), tuple(warnings))

    def _broken(self, rule: Rule, answer: AnswerContent, effort: RuleBudget) -> list[tuple[str, str]]:
        """The first places where the rule is broken, and why."""
        if isinstance(rule, Custom):
            message = _checked(self._checks[rule.name], answer, rule)
            return [] if message is None else [(rule.path or "$", message)]
        broken: list[tuple[str, str]] = []
        try:
            check = value_check(rule, answer.value, effort)
            for place, value in _spoken_of(rule, answer, effort):
                message = "is missing" if value is _MISSING else check(value)
                if message is not None:
                    broken.append((json_path.format_path(place), message))
                if len(broken) == MAX_VIOLATIONS_PER_RULE:
                    break
        except RuleBudgetExceededError:
            broken.append((rule.path or "$", "cannot be judged: there is too much of it"))
        return broken


_MISSING: Final = object()


def _spoken_of(rule: Rule, answer: AnswerContent, effort: RuleBudget) -> json_path.Matches:
    if rule.path is None:
        return [((), answer.text)]
    steps = json_path.parse(rule.path)
    found = effort.values_at(answer.value, steps)
    return found if found or None in steps else [(steps, _MISSING)]


def _checked(check: CustomRule, answer: AnswerContent, rule: Custom) -> str | None:
    try:
        return check(answer, rule.options)
    except Exception as crash:  # noqa: BLE001 - other people's code: a rule that fails is a rule that is not kept
        return f"the rule itself failed: {type(crash).__name__}"
