"""Values for JSON Schemas: the simple keywords are kept, and no schema does harm."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.engines.rehearsal.schema_values import MAX_CHARACTERS, MAX_ITEMS, fill
from portico.capabilities.output.schema.compiled import compile_schema
from tests.support.hostile_schemas import HOSTILE

Schema = dict[str, Any]


def record(properties: Schema, *required: str, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required or properties), **more}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "There are 7 of them", 7),
        ({"type": "integer"}, "It weighs 2.5 kilos, or 3", 3),
        ({"type": "number"}, "It weighs 2.5 kilos", 2.5),
        ({"type": "string"}, 'Call it "Hall"', "Hall"),
        ({"enum": ["low", "high"]}, "That is HIGH", "high"),
        ({"type": "array", "items": {"type": "integer"}}, "1, 2 and 3", [1, 2, 3]),
        ({"type": "array", "items": {"type": "string"}}, "`a` or `b`", ["a", "b"]),
        (
            record({"city": {"type": "string"}, "days": {"type": "integer"}}),
            'For "Bonn", 3 days',
            {"city": "Bonn", "days": 3},
        ),
        (
            record({"a": {"type": "integer"}, "b": record({"c": {"type": "integer"}})}),
            "4 then 5",
            {"a": 4, "b": {"c": 5}},
        ),
        (record({"sum": {"type": "integer"}}), "Rolled 2d6: [3 5] (sum: 8)", {"sum": 8}),
        (record({"is_open": {"type": "boolean"}}), "is_open: false", {"is_open": False}),
        (record({"days": {"type": "integer", "default": 9}}), "days: 4", {"days": 4}),
    ],
)
def test_values_that_the_text_names_are_taken(schema: Schema, text: str, value: Any):
    assert fill(schema, text) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": {"a": None}}, {"a": None}),
        ({"const": None}, None),
        ({"enum": [None, "x"]}, None),
        ({"enum": ["low", "high"]}, "low"),
        ({"type": "integer", "default": 9}, 9),
        ({"type": "string", "examples": ["no", "yes"]}, "no"),
        ({"type": "null"}, None),
        ({"type": "boolean"}, True),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "number", "maximum": -2.5}, -2.5),
        ({"minimum": 3}, 3),
        ({"type": "string"}, "rehearsal"),
        ({"type": "string", "maxLength": 3}, "reh"),
        ({"type": "string", "minLength": 12}, "rehearsal..."),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, []),
        ({"items": {"type": "boolean"}}, [True]),
        ({"type": ["null", "integer"]}, 1),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, True),
        ({"oneOf": [{"const": 1}, {"const": 2}]}, 1),
        ({"allOf": [record({"a": {"type": "integer"}}), record({"b": {"type": "boolean"}})]}, {"a": 1, "b": True}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}}, True),
        (record({"a": {"type": "integer"}, "b": {"type": "integer"}}, "b"), {"b": 1}),
        (record({}, "a"), {"a": "rehearsal"}),
        ({"properties": {"a": {}}}, {}),
    ],
)
def test_values_that_the_text_does_not_name_are_invented_by_type(schema: Schema, value: Any):
    assert fill(schema, "Go on") == value
    assert fill(schema, "Go on") == fill(schema, "Go on")
    assert compile_schema(schema).fits(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^[A-Z]+$"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True},
        {"not": {}},
        {"type": "object", "minProperties": 2},
    ],
)
def test_a_schema_with_other_keywords_may_be_answered_invalidly(schema: Schema):
    assert not compile_schema(schema).fits(fill(schema, "Go on"))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_has_a_value_too(name: str):
    orjson.dumps(fill(HOSTILE[name], "Take 7"))


def test_the_size_of_a_value_is_limited():
    assert len(fill({"type": "array", "minItems": 10**9}, "")) == MAX_ITEMS
    assert len(fill({"type": "string", "minLength": 10**9}, "")) == MAX_CHARACTERS
    endless = {"$ref": "#/$defs/n", "$defs": {"n": record({"n": {"$ref": "#/$defs/n"}})}}
    assert len(orjson.dumps(fill(endless, ""))) < 1000
    assert orjson.dumps(fill({"type": "integer", "minimum": 1e300}, ""))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["string", "object", "array", "#", "a"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "required",
                    "items",
                    "enum",
                    "anyOf",
                    "allOf",
                    "$ref",
                    "minItems",
                    "maxLength",
                    "a",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(
    schema=st.dictionaries(st.sampled_from(["type", "properties", "required", "items", "enum", "anyOf", "$ref"]), JSON)
)
def test_anything_in_place_of_a_schema_has_a_value(schema: Schema):
    orjson.dumps(fill(schema, "Take 7"))
