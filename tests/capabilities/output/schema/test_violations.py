"""Each violation of an answer is reported once, with its path and without the answer's text."""

from functools import reduce
from typing import Any

import pytest

from portico.capabilities.output.schema.compiled import compile_schema
from portico.capabilities.output.schema.violations import MAX_MESSAGE_CHARACTERS, MAX_VIOLATIONS

CIRCLE = {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["r"]}
SQUARE = {"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "number"}}, "required": ["a"]}


def violations_of(schema: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    return [(violation.path, violation.message) for violation in compile_schema(schema).violations(value)]


@pytest.mark.parametrize(
    ("schema", "value", "violations"),
    [
        ({"type": "object"}, [], [("$", 'the value is not of type "object"')]),
        ({"required": ["a", "b"]}, {}, [("$", '"a" is a required property'), ("$", '"b" is a required property')]),
        (
            {"items": {"properties": {"n": {"minimum": 1}, "s": {"maxLength": 2}}}},
            [{"n": 1}, {"n": 0, "s": "abc"}],
            [
                ("$[1].n", "the value is less than the minimum of 1"),
                ("$[1].s", "the value is longer than 2 characters"),
            ],
        ),
        (
            {"additionalProperties": False, "properties": {"a": True}},
            {"a": 1, "b c": 2},
            [("$['b c']", "is not allowed here")],
        ),
        ({"additionalProperties": {"type": "null"}}, {"x": 1}, [("$.x", 'the value is not of type "null"')]),
        ({"patternProperties": {"^n_": {"type": "null"}}}, {"n_1": 1}, [("$.n_1", 'the value is not of type "null"')]),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, [("$", "has a property whose name is not allowed")]),
        (
            {"prefixItems": [{"type": "null"}], "items": False},
            [1, 2],
            [("$[0]", 'the value is not of type "null"'), ("$[1]", "is not allowed here")],
        ),
        (
            {"contains": {"const": 1}},
            [2],
            [("$", "has too few or too many elements of the kind that the schema asks for")],
        ),
        ({"not": {"type": "null"}}, None, [("$", "is what the schema rules out")]),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, [("$", '"b" is a required property')]),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, [("$", '"b" is a required property')]),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "null"}}},
            1,
            [("$", 'the value is not of type "null"')],
        ),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, "c", [("$", 'the value is not one of "a" or "b"')]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "c", [("$", "fits none of 2 alternatives")]),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1, [("$", "fits more than one of the alternatives")]),
        ({"anyOf": [CIRCLE, SQUARE]}, {"kind": "square", "r": 1}, [("$", '"a" is a required property')]),
        ({"oneOf": [CIRCLE, SQUARE]}, {"kind": "star"}, [("$", "fits none of 2 alternatives")]),
        ({"unevaluatedProperties": False}, {"a": 1}, [("$", "has a part that the schema does not describe")]),
        ({"properties": {"a": False}}, {"a": 1}, [("$.a", "is not allowed here")]),
        ({"pattern": "^a+$"}, "b", [("$", 'the value does not match "^a+$"')]),
        ({"format": "date"}, "today", [("$", 'the value is not a "date"')]),
        ({"type": ["integer", "null"]}, True, [("$", 'the value is not of types "null", "integer"')]),
    ],
)
def test_each_violation_has_its_path(schema: dict[str, Any], value: Any, violations: list[tuple[str, str]]) -> None:
    assert sorted(violations_of(schema, value)) == sorted(violations)


def test_a_violation_within_recursive_alternatives_is_found_at_any_depth() -> None:
    link = {"$ref": "#/$defs/node"}
    kinds = [
        {"type": "object", "properties": {"kind": {"const": kind}, "next": link}, "required": ["kind", "next"]}
        for kind in ("add", "negate", "group")
    ]
    schema = {**link, "$defs": {"node": {"anyOf": [*kinds, {"type": "number"}]}}}
    value = reduce(lambda inner, _: {"kind": "group", "next": inner}, range(40), {"kind": "negate"})
    assert violations_of(schema, value) == [("$" + ".next" * 40, '"next" is a required property')]


def test_the_answer_is_not_shown_in_violations() -> None:
    schema = {
        "properties": {"a": {"type": "integer", "const": 1, "enum": [1], "multipleOf": 3}, "b": {"pattern": "^x$"}},
        "additionalProperties": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
    }
    found = violations_of(schema, {"a": "sk-secret", "b": "sk-secret", "c": "sk-secret"})
    assert {path for path, _ in found} == {"$.a", "$.b", "$.c"}
    assert all("sk-secret" not in message for _, message in found)


def test_the_number_and_the_length_of_violations_are_limited() -> None:
    schema = {"items": {"enum": [f"option {number} " + "x" * 200 for number in range(5)]}}
    found = violations_of(schema, ["none"] * 500)
    assert len(found) == MAX_VIOLATIONS
    assert all(len(message) <= MAX_MESSAGE_CHARACTERS for _, message in found)


def test_a_long_name_is_cut_in_the_path() -> None:
    ((path, _),) = violations_of({"additionalProperties": False}, {"x" * 10_000: 1})
    assert len(path) < 100
