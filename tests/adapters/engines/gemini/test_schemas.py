"""JSON Schemas as Gemini takes them: only what it knows, never less than was allowed, and never without end."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.adapters.engines.gemini.schemas import MAX_BYTES, MAX_DEPTH, MAX_UNROLLED, sanitize_schema
from tests.support.emulators.answers import EmulatedAnswer
from tests.support.emulators.gemini import respond
from tests.support.emulators.server import KEY

TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"]
NAMES = st.sampled_from(["a", "b", "c", "properties", "$ref"])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "y"]) | st.sampled_from([0.5, 2.0])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/definitions/a", "#/properties/c", "#/$defs/none", "x#"])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas that other schemas are part of; each says its type and at most five things more."""
    members = st.dictionaries(NAMES, inner, max_size=3)
    several = st.lists(inner, min_size=1, max_size=2)
    keywords = {
        "description": st.just("What it is."),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "format": st.sampled_from(["date-time", "email"]),
        "minimum": st.integers(-5, 5),
        "maximum": st.integers(-5, 5),
        "exclusiveMinimum": st.integers(-5, 5) | st.just(0.5),
        "exclusiveMaximum": st.integers(-5, 5),
        "minLength": st.just(1),
        "multipleOf": st.just(2),
        "uniqueItems": st.booleans(),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "properties": members,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
        "additionalProperties": inner,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "items": inner,
        "prefixItems": several,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "$defs": members,
        "$ref": REFERENCES,
        "default": VALUES,
    }
    said = st.one_of(*(st.tuples(st.just(keyword), value) for keyword, value in keywords.items()))
    kinds = st.tuples(
        st.just("type"), st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True)
    )
    return st.tuples(kinds, st.lists(said, max_size=5)).map(lambda drawn: dict([drawn[0], *drawn[1]]))


ROOTS = schemas(st.recursive(st.booleans() | schemas(st.booleans()), schemas, max_leaves=4))
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = (
    "type enum const properties required items prefixItems anyOf oneOf allOf $ref $defs minimum exclusiveMaximum"
    " minItems title description format nullable additionalProperties propertyOrdering"
)
WILD = st.dictionaries(st.sampled_from(KEYWORDS.split()), JUNK | REFERENCES | ROOTS)
BOUNDED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def taken(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that is sent, which the emulated server takes."""
    result = sanitize_schema(schema)
    config = {"responseMimeType": "application/json", "responseJsonSchema": result}
    body = {"contents": [{"parts": [{"text": "Go."}]}], "generationConfig": config}
    answer = respond("/v1beta/models/m:generateContent", {"x-goog-api-key": KEY}, orjson.dumps(body), EmulatedAnswer())
    assert answer.status == 200, answer.pieces
    return result


@BOUNDED
@given(ROOTS | WILD)
def test_only_what_gemini_knows_is_left_and_the_schema_stays_as_it_was(schema: dict[str, Any]):
    before = deepcopy(schema)
    result = taken(schema)
    assert schema == before
    assert sanitize_schema(schema) == result
    assert len(orjson.dumps(result)) < 2 * MAX_BYTES


@BOUNDED
@given(ROOTS | WILD)
def test_what_gemini_takes_already_is_left_alone(schema: dict[str, Any]):
    result = sanitize_schema(schema)
    assert sanitize_schema(result) == result


@BOUNDED
@given(ROOTS, VALUES)
def test_what_the_schema_allows_is_still_allowed(schema: dict[str, Any], value: Any):
    try:
        allowed = jsonschema_rs.validator_for(schema).is_valid(value)
    except (ValueError, jsonschema_rs.ReferencingError):
        return
    if allowed:
        assert jsonschema_rs.validator_for(sanitize_schema(schema)).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "result"),
    [
        ({}, {}),
        ({"$schema": "x", "$id": "y", "examples": [1], "default": 1, "deprecated": True}, {}),
        ({"type": "string", "minLength": 1, "pattern": "x", "format": "email"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": 1}, {"type": "integer", "enum": [1]}),
        ({"const": True}, {"type": "boolean"}),
        ({"const": None}, {"type": "null"}),
        ({"const": {"a": 1}}, {"type": "object"}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a"]}),
        ({"type": "string", "enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a"]}),
        ({"enum": ["a", 1]}, {"type": ["string", "integer"]}),
        ({"enum": ["", "a"]}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "text"}, {}),
        (
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9},
            {"type": "integer", "minimum": 1, "maximum": 8},
        ),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "minimum": 1}),
        ({"type": "integer", "maximum": 2**64}, {"type": "integer"}),
        ({"type": "string", "minimum": 1, "minItems": 2, "items": {}}, {"type": "string"}),
        (
            {"type": "array", "items": [{"type": "string"}, True], "minItems": 2, "maxItems": 2.5},
            {"type": "array", "prefixItems": [{"type": "string"}, {}], "minItems": 2},
        ),
        (
            {"properties": {"a": True, "b": {"type": "null"}}, "required": ["a", "c", "a", 3]},
            {"type": "object", "properties": {"a": {}, "b": {"type": "null"}}, "required": ["a"]},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}},
            {"type": "object", "additionalProperties": {"type": "string"}},
        ),
        (
            {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False},
            {"type": "object"},
        ),
        (
            {"description": "d", "oneOf": [{"type": "string"}, {"type": "null"}], "discriminator": {}},
            {"description": "d", "anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"type": "object", "oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
            {
                "anyOf": [
                    {"type": "object", "properties": {"a": {}}},
                    {"type": "object", "properties": {"b": {}}},
                ]
            },
        ),
        (
            {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": {}}},
        ),
        (
            {
                "allOf": [
                    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "null"}, "a": {"type": "null"}}, "required": ["b"]},
                ]
            },
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "null"}},
                "required": ["a", "b"],
            },
        ),
    ],
)
def test_a_keyword_is_said_in_words_that_gemini_knows_or_left_out(schema: dict[str, Any], result: dict[str, Any]):
    assert taken(schema) == result


@pytest.mark.parametrize("reference", ["#/$defs/A", "#/definitions/B", "#/x~1y/z%7E0/0", "#/properties/p"])
def test_a_definition_is_put_in_place_and_what_stands_beside_it_goes_before(reference: str):
    target = {"type": "string", "title": "A", "description": "what it is"}
    schema = {
        "type": "object",
        "properties": {"p": target, "q": {"$ref": reference, "description": "what it is for"}},
        "$defs": {"A": target},
        "definitions": {"B": target},
        "x/y": {"z~": [target]},
    }
    assert taken(schema)["properties"]["q"] == target | {"description": "what it is for"}


@pytest.mark.parametrize(
    "reference", ["other.json", "#/$defs/none", "#/$defs/list/9", "#/$defs/list/x", "#anchor/x", 3]
)
def test_a_reference_that_leads_nowhere_is_left_out(reference: Any):
    schema = {"type": "array", "items": {"$ref": reference, "title": "T"}, "$defs": {"list": [1]}}
    assert taken(schema)["items"] == {"title": "T"}


def test_a_definition_within_itself_is_laid_out_a_few_times_and_then_says_its_type_only():
    tree = {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    place, levels = taken({"$ref": "#/$defs/Tree", "$defs": {"Tree": tree}}), 0
    while "properties" in place:
        place, levels = place["properties"]["below"]["items"], levels + 1
    assert levels == MAX_UNROLLED
    assert place == {"type": "object"}


def test_the_whole_schema_may_stand_within_itself():
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}, "name": {"type": "string"}}}
    assert taken(schema)["properties"]["next"]["properties"]["name"] == {"type": "string"}


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_definitions_that_are_nothing_but_each_other_end(names: list[str]):
    circle = {name: {"$ref": f"#/$defs/{after}"} for name, after in zip(names, names[1:] + names[:1], strict=True)}
    assert taken({"$ref": "#/$defs/a", "$defs": circle}) == {}
    all_of = {name: {"allOf": [node]} for name, node in circle.items()}
    assert taken({"$ref": "#/$defs/a", "$defs": all_of}) == {}


def test_what_lies_near_the_root_is_said_though_something_grows_without_end():
    deep = {"type": "object", "properties": {str(number): {"$ref": "#/$defs/d"} for number in range(50)}}
    members = {"grows": {"$ref": "#/$defs/d"}, "name": {"type": "string", "description": "the name"}}
    result = taken({"type": "object", "properties": members, "required": ["name"], "$defs": {"d": deep}})
    assert result["properties"]["name"] == members["name"]
    assert result["required"] == ["name"]


def test_it_ends_at_the_deepest_level():
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"type": "array", "items": schema}
    assert json.dumps(taken(schema)).count("items") == MAX_DEPTH


def hostile() -> Iterator[tuple[str, dict[str, Any]]]:
    doubled = {f"d{n}": {"properties": {m: {"$ref": f"#/$defs/d{n + 1}"} for m in "ab"}} for n in range(60)}
    yield "doubled at every level", {"$ref": "#/$defs/d0", "$defs": doubled}
    joined = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 60} for n in range(60)}
    yield "joined at every level", {"$ref": "#/$defs/d0", "$defs": joined}
    yield "itself many times", {"properties": {str(n): {"$ref": "#"} for n in range(40)}}
    yield "alternatives of alternatives", {"anyOf": [{"anyOf": [{"$ref": "#"}] * 50}] * 50}
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(10_000)}
    many = {f"p{n}": {"$ref": "#/$defs/d0"} for n in range(5_000)}
    yield "a long chain", {"properties": many, "$defs": chain}
    yield "a long text many times", {"properties": many, "$defs": {"d0": {"description": "x" * 100_000}}}
    yield "many values many times", {"properties": many, "$defs": {"d0": {"enum": ["a", 1] * 50_000}}}
    yield "many types many times", {"properties": many, "$defs": {"d0": {"type": ["string"] * 100_000}}}
    yield "long references", {"properties": {str(n): {"$ref": "#" + "/x" * 50_000} for n in range(50)}}
    wide = {f"d{n}": {"properties": {f"p{m}": {"type": "string"} for m in range(1_000)}} for n in range(1, 61)}
    both = {"d0": {"allOf": [{"$ref": f"#/$defs/d{n}"} for n in range(1, 61)]}} | wide
    yield "wide ones joined many times", {"properties": many, "$defs": both}


@pytest.mark.parametrize("schema", [pytest.param(schema, id=name) for name, schema in hostile()])
def test_a_hostile_schema_is_sent_small(schema: dict[str, Any]):
    result = sanitize_schema(schema)
    assert len(orjson.dumps(result)) < 2 * MAX_BYTES
