"""A client's schema is checked and compiled within limits, and validates answers within limits."""

import gc
import json
from contextlib import suppress
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.capabilities.output.schema import compiled as schemas
from portico.capabilities.output.schema.compiled import compile_schema
from portico.domain.failures import Category, Code, ConfigurationFailure
from tests.support.hostile_schemas import tree
from tests.support.seeds import randomised

MEGABYTES = 50
"""Memory that a hostile schema may take here: four times as much as in service, since tests share the process."""


def refused(document: dict[str, Any]) -> ConfigurationFailure:
    with pytest.raises(ConfigurationFailure) as caught:
        compile_schema(document)
    assert (caught.value.code, caught.value.category) == (Code.CONFIG_SCHEMA_INVALID, Category.CONFIGURATION)
    return caught.value


@pytest.mark.parametrize(
    ("document", "fitting", "unfit"),
    [
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
        ({"properties": {"a": {"$ref": "#/$defs/x~1y%25"}}, "$defs": {"x/y%": {"const": 1}}}, {"a": 1}, {"a": 2}),
        ({"$ref": "#low", "$defs": {"a": {"$anchor": "low", "maximum": 1}}}, 1, 2),
        ({"$dynamicRef": "#low", "$defs": {"a": {"$dynamicAnchor": "low", "maximum": 1}}}, 1, 2),
        ({"items": {"$ref": "#"}, "type": "array"}, [[]], [[1]]),
        ({"allOf": [{"$ref": "#/x/0"}], "x": [{"type": "null"}]}, None, 1),
        ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": True}}]}, {"a": 1}, {"b": 1}),
        ({"format": "date"}, "2026-02-28", "2026-02-30"),
        ({"format": "email"}, "ada@example.org", "ada"),
        ({"format": "regex"}, "(", None),
        ({"pattern": "^(a+)+$"}, "a" * 5000, "a" * 5000 + "!"),
        ({"pattern": r"^\p{Lu}[\p{L} .'-]+$"}, "Zoë d'Ör", "zoë"),
        ({"pattern": "^.{1,255}$"}, "x" * 255, "x" * 256),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/s", "type": "null"},
            None,
            1,
        ),
        (
            {"properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}}},
            {"$id": "a", "$ref": "b"},
            {"$id": 1},
        ),
        ({"enum": [1.5, "a", None, [1], {"b": 2}]}, {"b": 2}, {"b": 3}),
        ({"maximum": 2**64 - 1}, 2**64 - 1, 2.0**65),
        ({"format": "no-such-format", "type": "string"}, "anything", 1),
    ],
)
def test_an_answer_is_validated_by_2020_12(document: dict[str, Any], fitting: Any, unfit: Any) -> None:
    schema = compile_schema(document)
    assert schema.fits(fitting)
    assert schema.violations(fitting) == ()
    if unfit is not None:
        assert not schema.fits(unfit)
        assert schema.violations(unfit)


@pytest.mark.parametrize(
    ("document", "path", "what"),
    [
        ({"properties": {"a": {"type": "strng"}}}, "$.properties.a.type", "the value is not valid"),
        ({"properties": 5}, "$.properties", 'the value is not of type "object"'),
        ({"items": [{"type": "string"}]}, "$.items", "the value is not of types"),
        ({"required": "a"}, "$.required", "the value is not of type"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "$.properties.a.pattern", "linear time"),
        ({"pattern": r"(a)\1"}, "$.pattern", "linear time"),
        ({"pattern": "(["}, "$.pattern", "no pattern"),
        ({"patternProperties": {"(": {}}}, "$.patternProperties", "no pattern"),
        ({"$ref": "https://example.org/schema"}, "$['$ref']", "must lead to a place in this schema"),
        ({"$ref": "http://169.254.169.254/latest"}, "$['$ref']", "must lead to a place in this schema"),
        ({"items": {"$ref": "file:///etc/passwd"}}, "$.items['$ref']", "must lead to a place in this schema"),
        ({"$ref": "other.json#/a"}, "$['$ref']", "must lead to a place in this schema"),
        ({"$dynamicRef": "https://example.org/#a"}, "$['$dynamicRef']", "must lead to a place in this schema"),
        ({"$id": "https://example.org/a", "$ref": "https://example.org/a"}, "$['$ref']", "must lead to a place"),
        ({"anyOf": [{"$ref": "#/$defs/none"}]}, "$.anyOf[0]['$ref']", "nothing stands"),
        ({"$ref": "#none"}, "$['$ref']", "no such anchor"),
        ({"$ref": "#/enum", "enum": [1]}, "$['$ref']", "no schema"),
        ({"properties": {"a": {"$id": "https://example.org/b"}}}, "$.properties.a['$id']", "only the whole schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$['$schema']", "only JSON Schema 2020-12"),
        ({"$schema": "https://example.org/dialect"}, "$['$schema']", "only JSON Schema 2020-12"),
        ({"enum": ["x" * 300_000]}, "$", "longer than 262144 bytes"),
        ({"properties": {f"p{number}": {} for number in range(2_000)}}, "$", "more than 2,000 nodes"),
        ({"enum": [2**64]}, "$", "holds what JSON does not"),
        ({"enum": ["\ud800"]}, "$", "holds what JSON does not"),
        ({"default": {1, 2}}, "$", "holds what JSON does not"),
        ({"allOf": [{"pattern": f"^{number}$"} for number in range(101)]}, "$.allOf", "more than 100 patterns"),
        ({"pattern": "(?:a{1000}){1000}"}, "$.pattern", "too large"),
        ({"pattern": "a" * 5_000}, "$.pattern", "too large"),
    ],
)
def test_an_unusable_schema_is_refused_with_the_place(document: dict[str, Any], path: str, what: str) -> None:
    failure = refused(document)
    assert failure.details["path"].startswith(path)
    assert what in failure.message
    assert failure.details["field"] == "output.schema"


def test_a_secret_in_a_refused_schema_is_not_shown() -> None:
    for document in ({"type": "sk-secret"}, {"pattern": "(sk-secret"}, {"$ref": "https://sk-secret/"}):
        failure = refused(document)
        assert "sk-secret" not in f"{failure.message} {failure.details}"


def test_equal_schemas_are_compiled_once() -> None:
    first = compile_schema({"type": "object", "required": ["once"]})
    assert compile_schema({"required": ["once"], "type": "object"}) is first
    assert compile_schema({"required": ["twice"], "type": "object"}) is not first


@pytest.mark.parametrize(
    ("document", "value"),
    [
        (tree("abcdefghijklmnopqrst"), reduce(lambda inner, _: {"k": "q", "c": inner}, range(55), 1)),
        (
            {
                "properties": {
                    f"p{n}": {"type": "string", "pattern": f"^[a-z]{{{n}}}", "maxLength": 200} for n in range(1, 90)
                }
            },
            {"p20": "a" * 100},
        ),
        (
            {
                "items": {"$ref": "#/$defs/row"},
                "$defs": {"row": {"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}},
            },
            [{"a": 1, "b": "x"}] * 20_000,
        ),
        ({"properties": {"text": {"type": "string", "maxLength": 2_000_000}}}, {"text": "words " * 200_000}),
        ({"properties": {"name": {"pattern": r"^\p{Lu}\p{L}+$"}}}, {"name": "Ada", "text": "x" * 40_000}),
        (
            {"properties": {f"p{n}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(300)}},
            {f"p{n}": None for n in range(300)},
        ),
    ],
    ids=["an expression", "many patterns", "many rows", "a long text", "letters", "many optional properties"],
)
def test_large_ordinary_schemas_and_answers_are_accepted(document: dict[str, Any], value: Any) -> None:
    assert compile_schema(document).fits(value)


@pytest.mark.parametrize(
    "document",
    [
        {"$ref": "#"},
        {"not": {"$ref": "#"}},
        {"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"if": {"$ref": "#/$defs/a"}}}},
        {"$ref": "#x", "$defs": {"x": {"$anchor": "x", "dependentSchemas": {"a": {"$ref": "#x"}}}}},
    ],
)
def test_a_subschema_that_applies_itself_to_the_same_value_is_refused(document: dict[str, Any]) -> None:
    assert "without end" in refused(document).message


def test_a_subschema_that_applies_itself_to_inner_values_is_accepted() -> None:
    schema = compile_schema({"allOf": [{"properties": {"next": {"$ref": "#"}}}, {"type": "object"}]})
    assert schema.fits({"next": {"next": {}}})
    assert not schema.fits({"next": {"next": 1}})


TEXTS = st.sampled_from(["", "(", "a{3}", "#/x"])
NAMES = st.sampled_from(["a", "type", "$ref"])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
KEYWORDS = (
    *("multipleOf", "minimum", "exclusiveMaximum", "uniqueItems", "pattern", "patternProperties", "enum", "const"),
    *("format", "items", "allOf", "$ref", "minLength"),
)


@randomised(500)
@given(st.dictionaries(st.sampled_from(KEYWORDS), JUNK, max_size=4), JUNK)
def test_any_schema_validates_or_is_refused(document: dict[str, Any], value: Any) -> None:
    with suppress(ConfigurationFailure):
        schema = compile_schema(document)
        assert schema.fits(value) == (not schema.violations(value))
        assert schema.fits(value) == schema.fits(json.loads(json.dumps(value)))


def test_violations_of_numbers_and_patterns_are_explained() -> None:
    schema = compile_schema(
        {
            "items": {"minimum": 0.5, "multipleOf": 0.25},
            "uniqueItems": True,
            "contains": {"type": "string", "pattern": "a.{20}b"},
        }
    )
    assert schema.fits([1, 0.75, "a" * 21 + "b"])
    assert [(found.path, found.message) for found in schema.violations([1, 0.25, 0.6, 1.0])] == [
        ("$", "the value has non-unique elements"),
        ("$", "has too few or too many elements of the kind that the schema asks for"),
        ("$[1]", "the value is less than the minimum of 0.5"),
        ("$[2]", "the value is not a multiple of 0.25"),
    ]


def test_a_violation_in_a_large_answer_has_its_path() -> None:
    schema = compile_schema(
        {
            "properties": {"rows": {"items": {"$ref": "#/$defs/row"}}},
            "$defs": {"row": {"properties": {"n": {"minimum": 0.5}}}},
        }
    )
    rows = [{"n": number, "text": "words " * 5} for number in range(1, 1_200)]
    assert [found.path for found in schema.violations({"rows": [*rows, {"n": 0}]})] == ["$.rows[1199].n"]


def test_an_unused_schema_leaves_nothing_to_the_garbage_collector() -> None:
    document = {"properties": {f"p{number}": {"minimum": 0.5, "uniqueItems": True} for number in range(200)}}
    value = {f"p{number}": number - 1 for number in range(200)}
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            compile_schema(document | {"$comment": f"another one, {number}"}).violations(value)
        assert gc.collect() < 100
    finally:
        gc.enable()


def test_few_large_schemas_are_cached() -> None:
    for number in range(20):
        compile_schema({"enum": [f"{number} {'x' * 20_000}"]})
    assert schemas._large.cache_info().currsize == 8
    assert schemas._small.cache_info().maxsize == 128
