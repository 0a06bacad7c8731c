"""Validation of an answer by rules: all rules run, and all broken ones are reported.

A rule with a path applies to the value there in the structured output: to each place if the path means several; it is
broken if a path that means one place leads to none. A rule without a path applies to the answer's text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, Final

from portico.capabilities.output.rules.checks import value_check, values_at
from portico.capabilities.output.schema.validators import is_linear
from portico.domain import json_path
from portico.domain.contract.rules import AnswerContent, Compare, Custom, NotEmpty, Regex, Rule
from portico.domain.failures import Code, RequestFailure, ValidationFailure
from portico.domain.raised_exception import RaisedException
from portico.domain.value import value

MAX_REPORTED_ERRORS: Final = 8
"""Most reported errors of unusable rules, since finding that a pattern is too large takes long."""
MAX_VIOLATIONS_PER_RULE: Final = 20
"""Most reported places of one rule."""


@value
class RuleViolation:
    """A broken rule: its name or type, the place as a JSON path, and the reason, without the value itself."""

    rule: str
    path: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """Return the violation as clients and models see it."""
        return {"rule": self.rule, "path": self.path, "message": self.message}


@value
class RuleReport:
    """The result of all rules. Under strict validation there are no warnings: all are errors."""

    errors: tuple[RuleViolation, ...] = ()
    warnings: tuple[RuleViolation, ...] = ()
    exceptions: tuple[tuple[str, RaisedException], ...] = ()
    """What custom rules raised, with their names."""

    @property
    def valid(self) -> bool:
        return not self.errors

    @property
    def confidence(self) -> float:
        """Return 1.0 or 0.0; the score of a judge, if there is one, takes its place."""
        return 1.0 if self.valid else 0.0

    def failure(self) -> ValidationFailure:
        """Return the failure of an answer with errors."""
        details = {
            "violations": [finding.as_dict() for finding in self.errors],
            "warnings": [finding.as_dict() for finding in self.warnings],
        }
        rules = ", ".join(dict.fromkeys(finding.rule for finding in self.errors))
        return ValidationFailure(Code.VALIDATION_RULE_FAILED, f"the answer breaks {rules}", details)


CustomRule = Callable[[AnswerContent, Mapping[str, Any]], str | None]
"""A custom rule: returns the reason why an answer breaks it, by the rule's options, or None."""


@value
class DeclaredRule:
    """A custom rule with the name of its function and of the module that defines it."""

    name: str
    module: str
    check: CustomRule

    def __call__(self, answer: AnswerContent, options: Mapping[str, Any]) -> str | None:
        return self.check(answer, options)


def rule(check: CustomRule) -> DeclaredRule:
    """Declare a function as a custom rule. Raises: TypeError for a coroutine function, since rules never wait."""
    name = check.__name__
    if iscoroutinefunction(check):
        raise TypeError(f"{name} must be a plain function: rules never wait")
    return DeclaredRule(name, check.__module__, check)


def rules_of(module: ModuleType) -> list[DeclaredRule]:
    """Return the rules that the module defines itself, each once."""
    found = [each for each in vars(module).values() if isinstance(each, DeclaredRule)]
    return list({each.name: each for each in found if each.module == module.__name__}.values())


@value
class _NamedRule:
    """A rule and its name."""

    name: str
    rule: Rule


class RuleRegistry:
    """The named rules: `not_empty`, and those written in Python, used by name without options."""

    def __init__(self, checks: Mapping[str, CustomRule]) -> None:
        self._checks = dict(checks)
        self._named: dict[str, Rule] = {name: Custom(type="custom", name=name) for name in checks}
        self._named["not_empty"] = NotEmpty(type="not_empty")

    def names(self) -> tuple[str, ...]:
        """Return every name that a request can use."""
        return tuple(sorted(self._named))

    def has(self, requested: str | Rule) -> bool:
        """Return True if the rule, given by name or inline, needs no function beside those that are registered."""
        if isinstance(requested, str):
            return requested in self._named
        return not isinstance(requested, Custom) or requested.name in self._checks

    def with_rules(self, rules: Iterable[DeclaredRule]) -> "RuleRegistry":
        """Return a registry with these rules as well."""
        return RuleRegistry({**self._checks, **{each.name: each for each in rules}})

    def compile(self, requested: Sequence[str | Rule]) -> "RuleSet":
        """Return the requested rules, given by name or inline.

        Raises: RequestFailure (REQUEST_INVALID) for unknown names and unusable patterns, several at once.
        """
        errors_found: list[tuple[int, str]] = []
        for index, rule in enumerate(requested):
            if (error := self._error_of(rule)) is not None:
                errors_found.append((index, error))
            if len(errors_found) == MAX_REPORTED_ERRORS:
                break
        if errors_found:
            errors_shown = [{"field": f"output.rules.{index}", "message": error} for index, error in errors_found]
            first = f"{errors_shown[0]['field']}: {errors_shown[0]['message']}"
            raise RequestFailure(Code.REQUEST_INVALID, first, {"errors": errors_shown})
        return RuleSet([self._named_rule(rule) for rule in requested], self._checks)

    def _named_rule(self, requested: str | Rule) -> _NamedRule:
        if isinstance(requested, str):
            return _NamedRule(requested, self._named[requested])
        return _NamedRule(requested.name if isinstance(requested, Custom) else requested.type, requested)

    def _error_of(self, requested: str | Rule) -> str | None:
        if not self.has(requested):
            return f"there is no {'' if isinstance(requested, str) else 'custom '}rule of that name"
        if isinstance(requested, Compare) and ("value" in requested.model_fields_set) is (requested.other is not None):
            return "must have value or other, and not both"
        if isinstance(requested, Regex) and not is_linear(requested.pattern):
            return "the pattern cannot be searched for in linear time, or is too large"
        return None


class RuleSet:
    """The rules of one request, ready to validate any number of answers."""

    def __init__(self, rules: Iterable[_NamedRule], checks: Mapping[str, CustomRule]) -> None:
        self._rules = tuple(rules)
        self._checks = checks

    def validate(self, answer: AnswerContent) -> RuleReport:
        """Validate the answer by all rules."""
        errors: list[RuleViolation] = []
        warnings: list[RuleViolation] = []
        exceptions: list[tuple[str, RaisedException]] = []
        for named in self._rules:
            reported = warnings if named.rule.severity == "warning" else errors
            try:
                broken = self._broken(named.rule, answer)
            except _RuleFailedError as failed:
                broken = [(named.rule.path or "$", str(failed))]
                exceptions.append((named.name, failed.raised))
            reported += (RuleViolation(named.name, path, message) for path, message in broken)
        return RuleReport(tuple(errors), tuple(warnings), tuple(exceptions))

    def _broken(self, rule: Rule, answer: AnswerContent) -> list[tuple[str, str]]:
        """Return the first places that break the rule, and the reasons. Raises: _RuleFailedError."""
        if isinstance(rule, Custom):
            message = _run_custom_rule(self._checks[rule.name], answer, rule)
            return [] if message is None else [(rule.path or "$", message)]
        broken: list[tuple[str, str]] = []
        check = value_check(rule, answer.value)
        for place, target in _targets(rule, answer):
            message = "is missing" if target is _MISSING else check(target)
            if message is not None:
                broken.append((json_path.format_path(place), message))
            if len(broken) == MAX_VIOLATIONS_PER_RULE:
                break
        return broken


_MISSING: Final = object()


def _targets(rule: Rule, answer: AnswerContent) -> json_path.Matches:
    if rule.path is None:
        return [((), answer.text)]
    steps = json_path.parse(rule.path)
    found = values_at(answer.value, steps)
    return found if found or None in steps else [(steps, _MISSING)]


class _RuleFailedError(Exception):
    """The function of a rule raised an exception, so the rule is not kept."""

    def __init__(self, raised: RaisedException) -> None:
        super().__init__(f"the rule itself failed: {raised.type}")
        self.raised = raised


def _run_custom_rule(check: CustomRule, answer: AnswerContent, rule: Custom) -> str | None:
    try:
        message: object = check(answer, rule.options)
    except (Exception, SystemExit) as crash:  # other people's code may raise anything
        raise _RuleFailedError(RaisedException.of(crash)) from crash
    return message if isinstance(message, str | None) else "the rule itself failed: it returned no text"
