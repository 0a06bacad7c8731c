"""All rules run, all broken ones are reported, and no error of a rule escapes."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter

from portico.capabilities.output.rules.rule_set import (
    MAX_VIOLATIONS_PER_RULE,
    AnswerContent,
    RuleRegistry,
    RuleReport,
    RuleViolation,
)
from portico.domain.contract.rules import Rule
from portico.domain.failures import Code, RequestFailure, ValidationFailure

RULE: TypeAdapter[Rule] = TypeAdapter(Rule)
ORDER = {"lines": [{"n": 1, "sku": "a-1"}, {"n": 5, "sku": "b"}], "total": 6, "limit": 10, "note": " ", "paid": True}


def polite(answer: AnswerContent, options: Mapping[str, Any]) -> str | None:
    word = options.get("word", "please")
    return None if word in answer.text else f"does not say {word}"


def broken(answer: AnswerContent, options: Mapping[str, Any]) -> str | None:
    raise KeyError(f"{answer.text} {options}")


REGISTRY = RuleRegistry({"polite": polite, "broken": broken})
SHORT = {"type": "length", "max": 5}


def validated(*rules: str | dict[str, Any], text: str = "", value: Any = None) -> RuleReport:
    asked = [rule if isinstance(rule, str) else RULE.validate_python(rule) for rule in rules]
    return REGISTRY.compile(asked).validate(AnswerContent(text, value))


def violations(report: RuleReport) -> list[tuple[str, str]]:
    return [(finding.path, finding.message) for finding in report.errors]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("not_empty", "yes"),
        (SHORT, "yes"),
        ("polite", "yes please"),
        ({"type": "custom", "name": "polite", "options": {"word": "yes"}}, "yes"),
        ({"type": "length", "min": 2, "max": 3}, "日本語"),
        ({"type": "regex", "pattern": r"^\d+ (eggs|ducks)$"}, "12 ducks"),
        ({"type": "regex", "pattern": "uck"}, "12 ducks"),
        ({"type": "one_of", "values": ["yes", "no"]}, " yes\n"),
    ],
)
def test_a_rule_without_a_path_applies_to_the_text(rule: str | dict[str, Any], text: str) -> None:
    report = validated(rule, text=text)
    assert (report.valid, report.confidence, report.errors, report.warnings) == (True, 1.0, (), ())


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"type": "not_empty", "path": "$.total"}, []),
        ({"type": "not_empty", "path": "$.note"}, [("$.note", "is empty")]),
        ({"type": "not_empty", "path": "$.gone"}, [("$.gone", "is missing")]),
        ({"type": "not_empty", "path": "$.gone[*]"}, []),
        ({"type": "length", "path": "$.lines", "min": 3}, [("$.lines", "has fewer than 3 entries")]),
        ({"type": "length", "path": "$.total", "min": 3}, [("$.total", "has no length")]),
        ({"type": "length", "path": "$.lines[*].sku", "min": 2}, [("$.lines[1].sku", "has fewer than 2 characters")]),
        (
            {"type": "regex", "path": "$.lines[*].sku", "pattern": r"-\d$"},
            [("$.lines[1].sku", "does not match the pattern")],
        ),
        ({"type": "regex", "path": "$.total", "pattern": "6"}, [("$.total", "is no text")]),
        (
            {"type": "compare", "path": "$.lines[*].n", "operator": "le", "value": 4},
            [("$.lines[1].n", "must be at most the value asked for")],
        ),
        ({"type": "compare", "path": "$.total", "operator": "le", "other": "$.limit"}, []),
        ({"type": "compare", "path": "$.total", "operator": "gt", "other": "$.lines[*].n"}, []),
        (
            {"type": "compare", "path": "$.total", "operator": "gt", "other": "$.limit"},
            [("$.total", "must be above $.limit")],
        ),
        (
            {"type": "compare", "path": "$.total", "operator": "eq", "other": "$.gone"},
            [("$.total", "cannot be compared: $.gone is missing")],
        ),
        (
            {"type": "compare", "path": "$.total", "operator": "lt", "value": "7"},
            [("$.total", "cannot be compared with the value asked for")],
        ),
        (
            {"type": "compare", "path": "$.paid", "operator": "lt", "value": 7},
            [("$.paid", "cannot be compared with the value asked for")],
        ),
        (
            {"type": "compare", "path": "$.paid", "operator": "eq", "value": 1},
            [("$.paid", "must be the value asked for")],
        ),
        ({"type": "compare", "path": "$.paid", "operator": "ne", "value": 1}, []),
        ({"type": "compare", "path": "$.total", "operator": "eq", "value": 6.0}, []),
        ({"type": "compare", "path": "$.lines[0]", "operator": "eq", "value": {"sku": "a-1", "n": 1.0}}, []),
        ({"type": "compare", "path": "$.lines[0].sku", "operator": "lt", "value": "b"}, []),
        ({"type": "one_of", "path": "$.total", "values": [5, 7]}, [("$.total", "is none of the values allowed")]),
        ({"type": "one_of", "path": "$.paid", "values": [1]}, [("$.paid", "is none of the values allowed")]),
        ({"type": "one_of", "path": "$.note", "values": [" "]}, []),
    ],
)
def test_a_rule_with_a_path_applies_to_each_matching_place(
    rule: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    report = validated(rule, value=ORDER)
    assert violations(report) == expected
    assert report.confidence == (0.0 if expected else 1.0)


def test_all_rules_run_and_each_broken_one_is_reported_by_name() -> None:
    report = validated("not_empty", "polite", {"type": "regex", "pattern": "^a"}, SHORT, text="bananas")
    assert report.errors == (
        RuleViolation("polite", "$", "does not say please"),
        RuleViolation("regex", "$", "does not match the pattern"),
        RuleViolation("length", "$", "has more than 5 characters"),
    )
    failure = report.failure()
    assert isinstance(failure, ValidationFailure)
    assert failure.code is Code.VALIDATION_RULE_FAILED
    assert failure.message == "the answer breaks polite, regex, length"
    assert failure.details["violations"] == [finding.as_dict() for finding in report.errors]
    assert "bananas" not in f"{failure.message} {failure.details}"


def test_a_rule_that_raises_is_broken_and_reports_only_the_class() -> None:
    report = validated("broken", "not_empty", text="sk-secret")
    assert violations(report) == [("$", "the rule itself failed: KeyError")]


def test_warnings_leave_an_answer_valid() -> None:
    report = validated({"type": "length", "max": 1, "severity": "warning"}, "not_empty", text="two")
    assert (report.valid, report.confidence) == (True, 1.0)
    assert [finding.rule for finding in report.warnings] == ["length"]


def test_unknown_names_and_unusable_patterns_are_refused_together() -> None:
    asked = ["polite", "none", RULE.validate_python({"type": "custom", "name": "missing"})]
    asked += [
        RULE.validate_python({"type": "regex", "pattern": pattern}) for pattern in (r"(a)\1", "(?:a{1000}){1000}", "a+")
    ]
    with pytest.raises(RequestFailure) as caught:
        REGISTRY.compile(asked)
    assert caught.value.code is Code.REQUEST_INVALID
    assert [error["field"] for error in caught.value.details["errors"]] == [
        f"output.rules.{index}" for index in (1, 2, 3, 4)
    ]


def test_a_comparison_has_a_value_or_a_path() -> None:
    comparison = {"type": "compare", "path": "$.a", "operator": "eq"}
    REGISTRY.compile(
        [RULE.validate_python(comparison | {"value": None}), RULE.validate_python(comparison | {"other": "$.b"})]
    )
    for against in ({}, {"value": 1, "other": "$.b"}):
        with pytest.raises(RequestFailure, match=r"output\.rules\.0: must have value or other"):
            REGISTRY.compile([RULE.validate_python(comparison | against)])


def test_the_registry_lists_the_names_of_rules() -> None:
    assert REGISTRY.names() == ("broken", "not_empty", "polite")


@pytest.mark.timeout(20)
def test_any_pattern_takes_linear_time() -> None:
    hostile = [r"^(a+)+$", r"^(a|aa)*$", r"(.*a){20}b", r"(?:a?){400}a{400}$"]
    rules = REGISTRY.compile([RULE.validate_python({"type": "regex", "pattern": pattern}) for pattern in hostile])
    report = rules.validate(AnswerContent("a" * 12_000 + "!"))
    assert {violation.rule for violation in report.errors} == {"regex"}


def test_only_the_first_places_of_a_rule_are_reported() -> None:
    report = validated({"type": "not_empty", "path": "$[*]"}, value=[""] * 1_000)
    assert violations(report) == [(f"$[{index}]", "is empty") for index in range(MAX_VIOLATIONS_PER_RULE)]


def test_the_search_for_unusable_rules_ends_at_the_number_reported() -> None:
    rules = [RULE.validate_python({"type": "regex", "pattern": rf"\p{{L}}{{500}}{number}"}) for number in range(64)]
    with pytest.raises(RequestFailure) as caught:
        REGISTRY.compile(rules)
    assert [error["field"] for error in caught.value.details["errors"]] == [f"output.rules.{n}" for n in range(8)]
