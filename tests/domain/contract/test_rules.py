"""Rules as data: valid ones are parsed, all others rejected."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from portico.domain.contract.rules import Compare, Custom, Length, NotEmpty, OneOf, Regex, Rule

RULE: TypeAdapter[Rule] = TypeAdapter(Rule)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"type": "not_empty"}, NotEmpty),
        ({"type": "length", "max": 5, "path": "$.name", "severity": "warning"}, Length),
        ({"type": "regex", "pattern": "^a"}, Regex),
        ({"type": "compare", "path": "$.a", "operator": "lt", "value": 3}, Compare),
        ({"type": "compare", "path": "$.a", "operator": "ge", "other": "$.b"}, Compare),
        ({"type": "one_of", "values": ["a", None, 1]}, OneOf),
        ({"type": "custom", "name": "polite", "options": {"language": "en"}}, Custom),
    ],
)
def test_a_rule_is_parsed_by_its_type(data: dict[str, Any], kind: type) -> None:
    rule = RULE.validate_python(data, strict=True)
    assert isinstance(rule, kind)
    assert RULE.dump_python(rule, exclude_unset=True) == data


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({}, ""),
        ({"type": "polite"}, ""),
        ({"type": "not_empty", "pattern": "a"}, "pattern"),
        ({"type": "length"}, "length"),
        ({"type": "length", "min": 2, "max": 1}, "length"),
        ({"type": "length", "min": -1}, "min"),
        ({"type": "length", "min": "1"}, "min"),
        ({"type": "regex", "pattern": ""}, "pattern"),
        ({"type": "regex", "pattern": "a" * 5_000}, "pattern"),
        ({"type": "not_empty", "path": "name"}, "path"),
        ({"type": "not_empty", "path": "$[?@.a]"}, "path"),
        ({"type": "compare", "operator": "lt", "value": 1}, "path"),
        ({"type": "compare", "path": "$", "operator": "<"}, "operator"),
        ({"type": "compare", "path": "$", "operator": "lt", "value": float("nan")}, "value"),
        ({"type": "one_of", "values": []}, "values"),
        ({"type": "one_of", "values": [0] * 1_001}, "values"),
        ({"type": "custom"}, "name"),
        ({"type": "custom", "name": "../x"}, "name"),
        ({"type": "not_empty", "severity": "fatal"}, "severity"),
    ],
)
def test_an_invalid_rule_is_rejected_with_its_path(data: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        RULE.validate_python(data, strict=True)
    assert any(where in map(str, error["loc"]) or not where for error in caught.value.errors())
