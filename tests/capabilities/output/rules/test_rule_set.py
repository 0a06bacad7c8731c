"""All rules run, all that are broken are told, and nothing a rule does gets out."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.capabilities.output.rules.rule_set import (
    MAX_VIOLATIONS_PER_RULE,
    AnswerContent,
    RuleRegistry,
    RuleReport,
    RuleViolation,
)
from app.domain.contract.rules import Rule
from app.domain.failures import Code, RequestFailure, ValidationFailure

RULE: TypeAdapter[Rule] = TypeAdapter(Rule)
ORDER = {"lines": [{"n": 1, "sku": "a-1"}, {"n": 5, "sku": "b"}], "total": 6, "limit": 10, "note": " ", "paid": True}


def polite(answer: AnswerContent, options: Mapping[str, Any]) -> str | None:
    word = options.get("word", "please")
    return None if word in answer.text else f"does not say {word}"


def broken(answer: AnswerContent, options: Mapping[str, Any]) -> str | None:
    raise KeyError(f"{answer.text} {options}")


BOOK = RuleRegistry({"polite": polite, "broken": broken})
SHORT = {"type": "length", "max": 5}


def judged(*rules: str | dict[str, Any], text: str = "", value: Any = None, strict: bool = False) -> RuleReport:
    asked = [rule if isinstance(rule, str) else RULE.validate_python(rule) for rule in rules]
    return BOOK.compile(asked).validate(AnswerContent(text, value), strict=strict)


def told(verdict: RuleReport) -> list[tuple[str, str]]:
    return [(finding.path, finding.message) for finding in verdict.errors]


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
def test_a_rule_without_a_path_speaks_of_the_text(rule: str | dict[str, Any], text: str) -> None:
    verdict = judged(rule, text=text)
    assert (verdict.valid, verdict.confidence, verdict.errors, verdict.warnings) == (True, 1.0, (), ())


@pytest.mark.parametrize(
    ("rule", "findings"),
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
def test_a_rule_with_a_path_speaks_of_each_place_it_means(
    rule: dict[str, Any], findings: list[tuple[str, str]]
) -> None:
    verdict = judged(rule, value=ORDER)
    assert told(verdict) == findings
    assert verdict.confidence == (0.0 if findings else 1.0)


def test_all_rules_run_and_each_broken_one_is_told_by_its_name() -> None:
    verdict = judged("not_empty", "polite", {"type": "regex", "pattern": "^a"}, SHORT, text="bananas")
    assert verdict.errors == (
        RuleViolation("polite", "$", "does not say please"),
        RuleViolation("regex", "$", "does not match the pattern"),
        RuleViolation("length", "$", "has more than 5 characters"),
    )
    failure = verdict.failure()
    assert isinstance(failure, ValidationFailure)
    assert failure.code is Code.VALIDATION_RULE_FAILED
    assert failure.message == "the answer breaks polite, regex, length"
    assert failure.details["violations"] == [finding.as_dict() for finding in verdict.errors]
    assert "bananas" not in f"{failure.message} {failure.details}"


def test_a_rule_that_fails_itself_is_one_that_is_broken_and_tells_nothing_else() -> None:
    verdict = judged("broken", "not_empty", text="sk-secret")
    assert told(verdict) == [("$", "the rule itself failed: KeyError")]


def test_warnings_leave_an_answer_valid_unless_validation_is_strict() -> None:
    rules = ({"type": "length", "max": 1, "severity": "warning"}, "not_empty")
    lenient = judged(*rules, text="two")
    assert (lenient.valid, lenient.confidence) == (True, 1.0)
    assert [finding.rule for finding in lenient.warnings] == ["length"]
    strict = judged(*rules, text="two", strict=True)
    assert (strict.valid, strict.confidence, strict.warnings) == (False, 0.0, ())
    assert strict.errors == lenient.warnings


def test_unknown_names_and_patterns_that_cannot_be_used_are_refused_all_at_once() -> None:
    asked = ["polite", "none", RULE.validate_python({"type": "custom", "name": "nobody"})]
    asked += [
        RULE.validate_python({"type": "regex", "pattern": pattern}) for pattern in (r"(a)\1", "(?:a{1000}){1000}", "a+")
    ]
    with pytest.raises(RequestFailure) as caught:
        BOOK.compile(asked)
    assert caught.value.code is Code.REQUEST_INVALID
    assert [error["field"] for error in caught.value.details["errors"]] == [
        f"output.rules.{index}" for index in (1, 2, 3, 4)
    ]


def test_a_comparison_is_with_a_value_or_with_a_place() -> None:
    comparison = {"type": "compare", "path": "$.a", "operator": "eq"}
    BOOK.compile(
        [RULE.validate_python(comparison | {"value": None}), RULE.validate_python(comparison | {"other": "$.b"})]
    )
    for against in ({}, {"value": 1, "other": "$.b"}):
        with pytest.raises(RequestFailure, match=r"output\.rules\.0: must have value or other"):
            BOOK.compile([RULE.validate_python(comparison | against)])


def test_a_book_names_its_rules() -> None:
    assert BOOK.names() == ("broken", "not_empty", "polite")


def test_a_pattern_takes_linear_time_whatever_it_is() -> None:
    hostile = [r"^(a+)+$", r"^(a|aa)*$", r"(.*a){20}b", r"(?:a?){400}a{400}$"]
    rules = BOOK.compile([RULE.validate_python({"type": "regex", "pattern": pattern}) for pattern in hostile])
    rules.validate(AnswerContent("a" * 12_000 + "!"))


def test_a_text_that_is_too_long_for_its_pattern_breaks_the_rule() -> None:
    verdict = judged({"type": "regex", "pattern": r"a.{200}b"}, text="x" * 500_000)
    assert told(verdict) == [("$", "is too long to be searched for the pattern")]


def test_only_the_first_places_of_a_rule_are_told() -> None:
    verdict = judged({"type": "not_empty", "path": "$[*]"}, value=[""] * 1_000)
    assert told(verdict) == [(f"$[{index}]", "is empty") for index in range(MAX_VIOLATIONS_PER_RULE)]


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "compare", "path": "$[*]", "operator": "le", "other": "$[*]"},
        {"type": "one_of", "path": "$[*]", "values": [[1.5]]},
        {"type": "regex", "path": "$[*]", "pattern": "a.{50}"},
        {"type": "not_empty", "path": "$" + "[*]" * 60},
    ],
)
def test_rules_that_there_is_too_much_for_are_broken_and_take_no_longer(rule: dict[str, Any]) -> None:
    deep: Any = reduce(lambda inner, _: [inner], range(59), 1)
    value = {"compare": [1] * 20_000, "one_of": [[1.5]] * 2_000, "regex": ["a" * 60] * 1_000}.get(
        rule["type"], [deep] * 1_000
    )
    verdict = judged(*[rule] * 64, value=value)
    assert verdict.errors[-1].message == "cannot be judged: there is too much of it"
    assert len(verdict.errors) >= 32


def test_no_more_rules_that_cannot_be_used_are_looked_for_than_are_told() -> None:
    rules = [RULE.validate_python({"type": "regex", "pattern": rf"\p{{L}}{{500}}{number}"}) for number in range(64)]
    with pytest.raises(RequestFailure) as caught:
        BOOK.compile(rules)
    assert [error["field"] for error in caught.value.details["errors"]] == [f"output.rules.{n}" for n in range(8)]


def test_patterns_that_are_too_large_together_are_refused_by_field() -> None:
    rules = [RULE.validate_python({"type": "regex", "pattern": f"\\p{{L}}{{9}}{number}"}) for number in range(30)]
    with pytest.raises(RequestFailure, match="too large together") as caught:
        BOOK.compile(rules)
    assert caught.value.details["errors"][0]["field"].startswith("output.rules.")
