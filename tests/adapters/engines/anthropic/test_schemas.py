"""Schemas for Anthropic's decoder: the enforced part, and the description of the rest."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from portico.adapters.engines.anthropic.dialect import AnthropicDialect
from portico.adapters.engines.anthropic.schemas import decoder_schema
from portico.domain.contract.request import ExecutionHints
from portico.domain.model_call import EngineCall
from tests.adapters.engines.cases import HELLO
from tests.adapters.engines.engine_calls import profile

CLOSED = {"additionalProperties": False}


def encoded(schema: Mapping[str, Any], **options: Any) -> Any:
    hints = ExecutionHints(options=options)
    asked = EngineCall((HELLO,), (), hints, schema=schema)
    body = AnthropicDialect().encode(asked, profile("claude-sonnet-4-5", frozenset(options)), stream=False).body
    return body["output_config"]


def test_a_schema_is_sent_as_the_format_of_the_output_beside_what_an_option_says():
    schema = {"type": "string"}
    assert encoded(schema) == {"format": {"type": "json_schema", "schema": schema}}
    assert encoded(schema, output_config={"effort": "low", "format": "none"}) == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": schema},
    }


@pytest.mark.parametrize("closing", [{}, {"additionalProperties": True}, {"additionalProperties": False}])
def test_every_object_with_members_is_closed(closing: dict[str, Any]):
    inner = {"type": "object", "properties": {"a": {"type": "null"}}, **closing}
    schema = {"type": "object", "properties": {"one": inner, "many": {"type": "array", "items": inner}}, **closing}
    sent = decoder_schema(schema)
    assert sent == {
        "type": "object",
        "properties": {"one": {**inner, **CLOSED}, "many": {"type": "array", "items": {**inner, **CLOSED}}},
        **CLOSED,
    }


def test_members_stay_optional():
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    assert decoder_schema(schema)["required"] == ["a"]


@pytest.mark.parametrize(
    ("schema", "description"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, '{"minimum":1,"maximum":9}'),
        ({"type": "string", "description": "A name.", "maxLength": 9}, 'A name.\n\n{"maxLength":9}'),
        ({"type": "string", "pattern": "^a(?=b)"}, '{"pattern":"^a(?=b)"}'),
        ({"type": "string", "format": "hostname-ish"}, '{"format":"hostname-ish"}'),
        ({"type": "array", "minItems": 2}, '{"minItems":2}'),
        ({"type": "array", "uniqueItems": True, "maxItems": 3}, '{"uniqueItems":true,"maxItems":3}'),
        ({"enum": [{"a": 1}]}, '{"enum":[{"a":1}]}'),
        ({"const": [1]}, '{"const":[1]}'),
        ({"type": "string", "default": "x", "examples": ["y"]}, '{"default":"x","examples":["y"]}'),
        ({"not": {"type": "null"}}, '{"not":{"type":"null"}}'),
    ],
)
def test_keywords_that_the_decoder_does_not_enforce_are_described(schema: dict[str, Any], description: str):
    sent = decoder_schema(schema)
    assert sent["description"] == description
    assert sent.keys() <= {"type", "description"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "date-time"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": ["string", "null"], "description": "Either."},
        {"enum": ["a", 1, 1.5, True, None], "title": "T"},
        {"const": "a"},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"allOf": [{"type": "string"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"type": "array", "items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "string"}}},
    ],
)
def test_what_the_decoder_keeps_is_sent_as_it_is(schema: dict[str, Any]):
    assert decoder_schema(schema) == schema


def test_one_of_several_is_any_of_them():
    choices = [{"type": "string", "minLength": 1}, {"type": "null"}]
    sent = decoder_schema({"oneOf": choices})
    assert sent == {"anyOf": [{"type": "string", "description": '{"minLength":1}'}, {"type": "null"}]}
    both = decoder_schema({"anyOf": [{"type": "null"}], "oneOf": choices})
    assert both["anyOf"] == [{"type": "null"}]
    assert json.loads(both["description"]) == {"oneOf": choices}


def test_definitions_are_closed_like_everything_else():
    node = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/node",
        "$defs": {"node": node},
    }
    assert decoder_schema(schema) == {"$ref": "#/$defs/node", "$defs": {"node": {**node, **CLOSED}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}},
        {"type": "array", "items": True},
    ],
)
def test_what_cannot_be_said_is_left_for_the_api_to_refuse(schema: dict[str, Any]):
    assert decoder_schema(schema) == schema


def test_names_of_members_are_no_keywords():
    schema = {"type": "object", "properties": {"minimum": {"type": "string"}, "oneOf": {"type": "null"}}, **CLOSED}
    assert decoder_schema(schema) == schema


def test_the_given_schema_stays_as_it_is():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}
    before = deepcopy(schema)
    decoder_schema(schema)
    assert schema == before
