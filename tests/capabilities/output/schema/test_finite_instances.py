"""A schema that requires itself without end is found, and no other."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.schema.finite_instances import endless_subschema
from portico.capabilities.output.schema.outline import SchemaOutlineError, outline_schema
from tests.support.seeds import randomised

SELF = {"$ref": "#"}
NODE = {"type": "object", "required": ["next"], "properties": {"next": SELF}}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        (NODE, ()),
        ({"type": "array", "minItems": 1, "items": SELF}, ()),
        ({"type": "array", "contains": SELF}, ()),
        ({"type": "array", "minItems": 2, "prefixItems": [{}, SELF]}, ()),
        ({"type": "object", "minProperties": 1, "additionalProperties": SELF}, ()),
        ({"type": "object", "required": ["a"], "additionalProperties": SELF}, ()),
        ({"type": "object", "allOf": [{"required": ["next"], "properties": {"next": SELF}}]}, ()),
        ({"anyOf": [NODE, {"type": "array", "minItems": 1, "items": SELF}]}, ()),
        ({"$ref": "#/$defs/a", "$defs": {"a": {**NODE, "properties": {"next": {"$ref": "#/$defs/b"}}},
          "b": {**NODE, "properties": {"next": {"$ref": "#/$defs/a"}}}}}, ("$defs", "a")),
        ({"required": ["tree"], "type": "object", "properties": {"tree": {"$ref": "#/$defs/n"}},
          "$defs": {"n": {**NODE, "properties": {"next": {"$ref": "#/$defs/n"}}}}}, ("$defs", "n")),
    ],
)  # fmt: skip
def test_a_schema_that_requires_itself_without_end_is_found(schema: dict[str, Any], place: tuple[str, ...]) -> None:
    assert endless_subschema(outline_schema(schema)) == place


@pytest.mark.parametrize(
    "schema",
    [
        {**NODE, "type": ["object", "null"]},
        {"required": ["next"], "properties": {"next": SELF}},
        {"type": "object", "properties": {"next": SELF}},
        {"type": "object", "required": ["next"], "properties": {"next": {"anyOf": [SELF, {"type": "null"}]}}},
        {"type": "object", "required": ["children"], "properties": {"children": {"type": "array", "items": SELF}}},
        {"type": "array", "minItems": 1, "prefixItems": [{"type": "string"}], "items": SELF},
        {"type": "array", "contains": SELF, "minContains": 0},
        {"type": "object", "minProperties": 1, "properties": {"a": {}, "b": SELF}, "additionalProperties": False},
        {"type": "object", "minProperties": 1, "properties": {"b": SELF}, "required": []},
        {"type": "object", "required": ["other"], "properties": {"next": SELF}},
        {"type": "object", "required": ["x1"], "patternProperties": {"^x": {}}, "additionalProperties": SELF},
        {"properties": {"unused": {"$ref": "#/$defs/n"}},
         "$defs": {"n": {**NODE, "properties": {"next": {"$ref": "#/$defs/n"}}}}},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
    ],
)  # fmt: skip
def test_a_schema_that_a_finite_answer_fits_is_not_refused(schema: dict[str, Any]) -> None:
    assert endless_subschema(outline_schema(schema)) is None


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    leaf = st.sampled_from([SELF, {"type": "null"}, {}])
    return st.recursive(
        leaf,
        lambda inner: (
            st.builds(lambda one: {"type": "object", "required": ["a"], "properties": {"a": one}}, inner)
            | st.builds(lambda one: {"type": "array", "minItems": 1, "items": one}, inner)
            | st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
            | st.builds(lambda one, other: {"allOf": [one, other]}, inner, inner)
        ),
        max_leaves=4,
    )


def values(levels: int) -> Iterator[Any]:
    yield None
    if levels:
        for inner in values(levels - 1):
            yield from ({"a": inner}, [inner])
        for first, second in product(values(0), repeat=2):
            yield [first, second]


@randomised(200)
@given(schemas())
def test_no_small_value_fits_a_schema_that_is_refused(schema: dict[str, Any]) -> None:
    with suppress(SchemaOutlineError):
        if endless_subschema(outline_schema(schema)) is not None:
            validator = jsonschema_rs.validator_for(schema)
            assert not any(map(validator.is_valid, values(4)))
