"""Ordinary contracts and answers are small and plain; hostile ones are not."""

import json
from typing import Any

import pytest

from portico.capabilities.output.contract_size import SMALL_ANSWER_CHARACTERS, contract_size
from portico.capabilities.output.schema.plainness import pattern_size
from portico.domain.contract.request import OutputContract
from tests.support.hostile_schemas import HOSTILE, PLAIN

PERSON = {
    "type": "object",
    "required": ["name", "born"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "born": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4}$"},
        "score": {"anyOf": [{"type": "number", "minimum": 0.0, "maximum": 1.0}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "kind": {"enum": ["a", "b", None]},
    },
}


def size_of(**output: Any) -> Any:
    return contract_size(OutputContract.model_validate(output))


@pytest.mark.parametrize(
    "output",
    [
        {},
        {"rules": ["not_empty", {"type": "length", "max": 5}]},
        {"schema": PERSON},
        {"schema": {"type": "array", "items": {"$ref": "#/$defs/person"}, "$defs": {"person": PERSON}}},
        {"schema": {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}}} for kind in "abcd"]}},
        {"schema": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(150)}}},
        {"schema": {"x-vendor": [1], "title": "Any", "examples": [{"$ref": "none"}]}},
        {"schema": PERSON, "rules": [{"type": "regex", "path": "$.code", "pattern": "^AB"}]},
    ],
)
def test_an_ordinary_contract_is_small_and_plain(output: dict[str, Any]) -> None:
    assert size_of(**output).is_small_with("{}")


@pytest.mark.parametrize(
    "output",
    [
        {"schema": {"items": {"$ref": "#"}}},
        {"rules": ["of_a_module"]},
        {"rules": [{"type": "custom", "name": "of_a_module"}]},
        {"schema": {"anyOf": [{"const": n} for n in range(20)]}},
        {"schema": {"enum": [["a"]]}},
        {"schema": {"patternProperties": {"^a": {}}}},
        {"schema": {"pattern": "(ab){9}"}},
        {"schema": {"pattern": "a{300}"}},
        {"schema": {"pattern": r"\p{L}"}},
        {"schema": {"properties": {f"p{n}": {"pattern": "a{50}"} for n in range(5)}}},
        {"schema": {"properties": {f"p{n}": {"type": "string"} for n in range(400)}}},
        {"schema": {"enum": ["x" * 9_000]}},
        {"schema": {"$ref": "#/$defs/none"}},
        {"schema": {"$ref": "https://example.org"}},
        {"schema": {"properties": 5}},
        {"schema": {"format": ["date"]}},
        {"schema": {"items": [{}]}},
        {"rules": [{"type": "compare", "path": "$[*]", "operator": "le", "other": "$[*]"}]},
        {"rules": [{"type": "regex", "pattern": "a" * 201}]},
    ],
)
def test_what_is_costly_or_not_understood_is_not_plain(output: dict[str, Any]) -> None:
    assert not size_of(**output).is_plain


def test_a_large_answer_is_not_small_unless_nothing_reads_it() -> None:
    large = "x" * (SMALL_ANSWER_CHARACTERS + 1)
    assert not size_of(schema={}).is_small_with(large)
    assert not size_of(rules=[{"type": "regex", "pattern": "a"}]).is_small_with(large)
    assert size_of(rules=["not_empty"]).is_small_with(large)
    assert size_of(grammar='root ::= "a"').is_small_with(large)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_left_to_a_worker_with_its_answer_unless_it_is_small(name: str) -> None:
    schema, value = HOSTILE[name]
    if name != "bottomless allOf" and len(json.dumps(schema)) > 1_000:
        assert not size_of(schema=schema).is_small_with(json.dumps(value))


@pytest.mark.parametrize("name", PLAIN)
def test_the_costliest_plain_contracts_are_validated_in_place(name: str) -> None:
    output, value = PLAIN[name]
    assert size_of(**output).is_small_with(value if isinstance(value, str) else json.dumps(value))


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("^a+$", 4),
        (r"^\d{4}$", 11),
        ("a{2,30}b", 38),
        ("a{5,}", 10),
        ("(a{9})", 15),
        ("(a){2}", None),
        ("a{2}{3}", None),
    ],
)
def test_counted_repetitions_are_written_out(pattern: str, size: int | None) -> None:
    assert pattern_size(pattern) == size
