"""Ollama: what of a schema its server takes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.adapters.engines.ollama.schemas import ALL_TYPES, response_format, supported_schema

ANY = {"type": list(ALL_TYPES)}
TAKEN: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}, "additionalProperties": False},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["string", "null"], "description": "either"}}},
    {"anyOf": [{"const": 1}, {"enum": ["a", None]}, {"type": "array", "items": {"type": "integer"}, "maxItems": 9}]},
    {"type": "string", "pattern": "^[a-z]{2}-[0-9]+$"},
    {"type": "object", "properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}}},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number", "minimum": 0.5}]},
    {"const": {"pattern": "x", "properties": {"a": False}}},
    {"type": "string", "format": "date-time", "examples": ["a"], "default": True},
]


@pytest.mark.parametrize("schema", TAKEN, ids=range(len(TAKEN)))
def test_a_schema_that_is_taken_is_sent_as_it_is(schema: dict[str, Any]):
    assert response_format(schema) == schema


@pytest.mark.parametrize("schema", [{}, {"title": "Anything"}, {"description": "x", "$schema": "y"}, {"not": {}}])
def test_where_a_schema_says_nothing_json_mode_is_the_fallback(schema: dict[str, Any]):
    assert response_format(schema) == "json"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#anchor"}, {"type": "string"}]},
        {"$ref": "https://example.com/schema.json"},
        {"type": "object", "$dynamicRef": "#node"},
    ],
)
def test_where_a_reference_cannot_be_followed_json_mode_is_the_fallback(schema: dict[str, Any]):
    assert response_format(schema) == "json"


@pytest.mark.parametrize("pattern", [r"^\d+$", "abc", "^a", "a$", "^(?=a).*$", "", "^a^b$", r"^a\$", 3])
def test_a_pattern_that_makes_no_grammar_is_left_out(pattern: Any):
    assert response_format({"type": "string", "pattern": pattern}) == {"type": "string"}


@pytest.mark.parametrize("keyword", ["minLength", "maxLength", "minItems", "maxItems"])
def test_more_repetitions_than_a_grammar_may_have_are_left_out(keyword: str):
    assert response_format({"type": "string", keyword: 500}) == {"type": "string", keyword: 500}
    assert response_format({"type": "string", keyword: 501}) == {"type": "string"}


def test_what_may_be_anything_says_so_in_types():
    schema = {
        "type": "object",
        "properties": {"a": True, "b": {}, "c": {"description": "free"}},
        "additionalProperties": {},
    }
    assert response_format(schema) == {
        "type": "object",
        "properties": {"a": ANY, "b": ANY, "c": {"description": "free"} | ANY},
        "additionalProperties": ANY,
    }
    assert response_format({"type": "array", "items": True}) == {"type": "array", "items": ANY}


def test_what_can_be_nothing_is_left_out():
    schema = {"type": "array", "prefixItems": [{"type": "string"}], "items": False}
    assert response_format(schema) == {"type": "array", "prefixItems": [{"type": "string"}]}
    assert response_format({"anyOf": [False, {"type": "string"}]}) == {"anyOf": [{"type": "string"}]}
    assert supported_schema({"type": "object", "properties": {"a": False}}) == {"type": "object", "properties": {}}


def test_the_schema_that_was_given_is_left_as_it_was():
    schema = {"type": "object", "properties": {"a": True, "b": {"type": "string", "pattern": "x"}}}
    response_format(schema)
    assert schema == {"type": "object", "properties": {"a": True, "b": {"type": "string", "pattern": "x"}}}


KEYWORDS = ["type", "properties", "items", "anyOf", "$ref", "$defs", "pattern", "maxLength", "additionalProperties"]
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(0, 3000), st.sampled_from(["string", "object", "#/$defs/a", "^a$"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)),
    max_leaves=20,
)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=4))
def test_any_schema_becomes_a_format_and_a_format_stays_as_it_is(schema: dict[str, Any]):
    made = response_format(schema)
    assert made == "json" or response_format(made) in (made, "json")
