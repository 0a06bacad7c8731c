"""Schemas filled without a model: what is made fits them, and what no value fits does no harm."""

from time import process_time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.adapters.engines.rehearsal.schema_values import fill
from app.capabilities.output.schema.compiled import compile_schema
from app.domain.failures import ConfigurationFailure
from tests.support.hostile_schemas import HOSTILE

Schema = dict[str, Any]
NODE = {"$ref": "#/$defs/n"}
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
FORMATS = (
    *("date", "time", "date-time", "duration", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6", "uri"),
    *(
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "uuid",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    ),
)


def obj(properties: Schema, required: tuple[str, ...] | None = None, **more: Any) -> Schema:
    needed = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": needed, **more}


def fits(schema: Schema, value: Any) -> bool:
    return compile_schema(schema).fits(value)


SAID: list[tuple[Schema, str, Any]] = [
    ({"type": "integer"}, "There are 7 of them", 7),
    ({"type": "number"}, "It weighs 2.5 kilos", 2.5),
    ({"type": "string"}, 'Call it "Hall"', "Hall"),
    ({"type": "string"}, "Say something", "Say something"),
    ({"enum": ["low", "high"]}, "That is HIGH", "high"),
    ({"type": "string", "enum": ["low", "high"]}, "No idea", "low"),
    ({"oneOf": [{"const": "low"}, {"const": "high"}]}, "That is high", "high"),
    ({"type": "array", "items": {"type": "integer"}}, "1, 2 and 3", [1, 2, 3]),
    ({"type": "array", "items": {"type": "string"}}, "`a` or `b`", ["a", "b"]),
    ({"type": "array", "items": {"enum": ["red", "blue", "green"]}}, "green and red", ["red", "green"]),
    ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, "1, 2 and 3", [1, 2]),
    ({"type": "array", "items": {"type": "integer", "minimum": 2}}, "1, 2 and 3", [2, 3]),
    ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "4 4 5", [4, 5]),
    ({"type": "integer", "maximum": 5}, "of 9 take 3", 3),
    ({"type": "integer", "maximum": 5}, "of 9 take 8", 1),
    (obj({"city": {"type": "string"}, "days": {"type": "integer"}}), 'For "Bonn", 3 days', {"city": "Bonn", "days": 3}),
    (obj({"a": {"type": "integer"}, "b": {"type": "integer"}}), "4 then 5", {"a": 4, "b": 5}),
    (obj({"a": {"type": "integer"}, "b": obj({"c": {"type": "integer"}})}), "4 then 5", {"a": 4, "b": {"c": 5}}),
    (obj({"b": {"type": "integer"}, "a": {"type": "integer"}}), "4 then 5", {"b": 4, "a": 5}),
    (obj({"sum": {"type": "integer"}}), "Rolled 2d6: [3 5] (sum: 8)", {"sum": 8}),
    (obj({"note": {"type": "string"}}, ()), "Nothing", {}),
    (obj({"note": {"type": "string"}}, ()), 'With a note "hi"', {"note": 'With a note "hi"'}),
    (obj({"note": {"type": "string"}}, ()), "note: hi", {"note": "hi"}),
    (obj({"days": {"type": "integer"}, "rooms": {"type": "integer"}}, ()), "2 rooms", {"rooms": 2}),
    (obj({"mood": {"enum": ["sad", "glad"]}}, ()), "I am glad", {"mood": "glad"}),
    (obj({"x": {"type": "boolean"}}), "x: true", {"x": True}),
    (obj({"x": {"type": "integer", "default": 9}}), "none", {"x": 9}),
    (obj({"x": {"type": "integer", "default": 9}}), "x is 4", {"x": 4}),
    (obj({"x": {"type": "integer", "default": "nine"}}), "none", {"x": 1}),
    ({"type": "integer", "examples": ["no", 12]}, "none", 12),
    ({"type": "string", "format": "email"}, "I am ann@example.org.", "ann@example.org"),
    ({"type": "string", "format": "date"}, "From 2025-02-03, please", "2025-02-03"),
    ({"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$"}, "See ticket ABC-12!", "ABC-12"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
    ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "none", 1),
    (
        {"oneOf": [obj({"kind": {"const": kind}}) for kind in ("cat", "dog")]},
        "A dog",
        {"kind": "dog"},
    ),
    (
        {
            "$ref": "#/$defs/n",
            "$defs": {"n": {"anyOf": [obj({"left": NODE, "right": NODE}), {"type": "integer"}]}},
        },
        "Add 2 and 3",
        {"left": 2, "right": 3},
    ),
]


@pytest.mark.parametrize(("schema", "text", "value"), SAID)
def test_what_the_text_says_is_preferred(schema: Schema, text: str, value: Any) -> None:
    assert orjson.dumps(fill(schema, text)) == orjson.dumps(value)
    assert fits(schema, value)


FITTING: list[Schema] = [
    {},
    *({"type": kind} for kind in KINDS),
    *({"type": [one, other]} for one in KINDS for other in KINDS if one != other),
    *({"type": "string", "format": form} for form in FORMATS),
    *({"type": "array", "items": {"format": form, "type": "string"}, "minItems": 5} for form in FORMATS),
    *(
        {"type": "array", "items": {"format": form, "type": "string"}, "minItems": 40, "uniqueItems": True}
        for form in FORMATS
    ),
    *({"type": "string", "minLength": size, "maxLength": size} for size in (0, 1, 2, 7, 100, 1000, 65_536)),
    *({"const": value} for value in (None, False, 0, 1.5, "x", "", [], [1, [2]], {}, {"a": {"b": None}})),
    *({"enum": [value, "other"], "type": "object"} for value in ({}, {"a": 1})),
    *(
        {"type": kind, **bounds}
        for kind in ("integer", "number")
        for bounds in (
            {"minimum": 0},
            {"minimum": -5, "maximum": -5},
            {"maximum": -3},
            {"exclusiveMaximum": 1},
            {"exclusiveMaximum": 0.5},
            {"exclusiveMinimum": 3},
            {"exclusiveMinimum": 3, "exclusiveMaximum": 5},
            {"exclusiveMinimum": 3.2, "maximum": 4},
            {"minimum": 1, "exclusiveMinimum": 1},
            {"maximum": 1e300, "minimum": 1e299},
            {"minimum": -9_223_372_036_854_775_808, "maximum": -9_223_372_036_854_775_800},
            {"minimum": 9_223_372_036_854_775_000},
            {"multipleOf": 7},
            {"multipleOf": 7, "minimum": 8},
            {"multipleOf": 7, "maximum": -1},
            {"multipleOf": 7, "exclusiveMinimum": 7, "maximum": 14},
            {"multipleOf": 0.5, "exclusiveMinimum": 1},
            {"multipleOf": 0.1, "minimum": 0.25},
            {"allOf": [{"multipleOf": 4}, {"multipleOf": 6}, {"minimum": 1}]},
            {"not": {"const": 1}},
            {"not": {"maximum": 4}},
        )
    ),
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.11},
    {"type": "number", "not": {"type": "integer"}},
    {"type": "number", "minimum": 0, "maximum": 0.05, "multipleOf": 0.05},
    {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    {"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer", "minimum": 6},
    *(
        {"type": "string", "pattern": pattern}
        for pattern in (
            "^a$",
            "^[a-c]{3}$",
            r"^\d{4}-\d{2}$",
            "^(yes|no)$",
            r"^[A-Z][a-z]+( [A-Z][a-z]+)*$",
            r"^#[0-9a-fA-F]{6}$",
            r"^\+?[1-9]\d{1,14}$",
            r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$",
            r"^(?:x|y){2,4}z?$",
            r"^\p{Lu}\p{L}*$",
            r"^\w+\W\S$",
            r"^[\w.-]+$",
            r"^[\]\\\-]$",
            r"^$",
            "^é{2}$",
            "^é[\u0400-\u04ff]$",
            "^.{3}$",
            r"^a\.b\*c$",
            r"^(?<year>\d{4})(a(b(c)))$",
            "x",
            "[0-9]$",
            r"\bword\b",
            "^a+?b*?c??$",
            "^[^a-z]{2}$",
            r"^\x41\t$",
        )
    ),
    {"type": "string", "pattern": "^[a-z]+$", "minLength": 30},
    {"type": "string", "pattern": "^([a-z][0-9])*$", "minLength": 7, "maxLength": 8},
    {"type": "string", "pattern": "^[a-z]+-[a-z]+-[a-z]+$", "minLength": 40, "maxLength": 44},
    {"type": "string", "allOf": [{"pattern": "^[a-z]+$"}, {"minLength": 3}, {"maxLength": 3}]},
    {"type": "array", "items": {"pattern": "^[a-z]$", "type": "string"}, "minItems": 26, "uniqueItems": True},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True},
    {"type": "array", "items": {"type": "integer"}, "minItems": 100, "uniqueItems": True},
    {"type": "array", "items": {"type": "number"}, "minItems": 20, "uniqueItems": True},
    {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "minItems": 9, "uniqueItems": True},
    {"type": "array", "items": {"enum": list("abcdef")}, "minItems": 6, "uniqueItems": True},
    {"type": "array", "items": {"type": "string", "maxLength": 1}, "minItems": 9, "uniqueItems": True},
    {"type": "array", "items": {"type": "string", "default": "same"}, "minItems": 9, "uniqueItems": True},
    {
        "type": "array",
        "items": obj({"a": {"enum": [1, 2]}, "b": {"type": "boolean"}, "c": {"enum": list("xyz")}}),
        "minItems": 12,
        "uniqueItems": True,
    },
    {
        "type": "array",
        "items": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "uniqueItems": True},
        "minItems": 2,
        "uniqueItems": True,
    },
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2, "items": False},
    {"type": "array", "prefixItems": [{"type": "string"}], "items": {"const": 1}, "minItems": 4},
    {"type": "array", "contains": {"const": "x"}},
    {"type": "array", "contains": {"type": "integer"}, "minContains": 3, "items": {"minimum": 5}, "minItems": 4},
    {"type": "array", "minItems": 3},
    {"type": "array", "maxItems": 0},
    {"type": "object", "minProperties": 3},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {"type": "object", "minProperties": 2, "propertyNames": {"pattern": "^[a-z]{2}$"}},
    {"type": "object", "minProperties": 2, "patternProperties": {"^x_": {"const": 1}}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^x_": {"const": 1}}, "required": ["x_1"]},
    {"type": "object", "required": ["undescribed"]},
    obj({"a": {"type": "integer"}, "b": {"type": "string"}}, (), minProperties=1, additionalProperties=False),
    obj({"a": False, "b": {}}, (), minProperties=1, additionalProperties=False),
    obj({"a": {}, "b": {}}, ("a",), dependentRequired={"a": ["b"]}),
    obj({"a": {}}, dependentSchemas={"a": {"required": ["b"], "properties": {"b": {"const": 2}}}}),
    obj(
        {"a": {"enum": [1, 2]}, "b": {}},
        ("a",),
        **{"if": {"properties": {"a": {"const": 1}}}},
        then={"required": ["b"]},
    ),
    {"if": {"type": "string"}, "then": {"const": "x"}, "else": {"const": 1}},
    {"if": {"type": "string"}, "then": False, "else": {"const": 1}},
    {"type": "string", "if": {"const": "a"}, "then": {"const": "b"}},
    {"allOf": [obj({"a": {"type": "integer"}}), obj({"b": {"type": "string"}})], "unevaluatedProperties": False},
    {"allOf": [{"type": ["integer", "string"]}, {"type": ["string", "null"]}]},
    {"allOf": [{"type": "number"}, {"type": "integer"}]},
    {"allOf": [{"enum": [1, 2, 3]}, {"enum": [3, 4]}]},
    {"anyOf": [False, {"type": "integer"}]},
    {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], **obj({"a": False, "b": {"type": "null"}}, ())},
    {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], **obj({"a": {}, "b": {}}, ())},
    {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2}]},
    {"not": {"type": "string"}},
    {"not": {"type": ["string", "integer", "number", "object", "array"]}},
    {"type": "string", "not": {"enum": ["Please fill this"]}, "maxLength": 40, "minLength": 2},
    {"$ref": "#/$defs/a%20b", "$defs": {"a b": {"const": 1}}},
    {"$ref": "#named", "$defs": {"x": {"$anchor": "named", "type": "integer"}}},
    {"$id": "https://example.com/x", "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "integer"},
    {"$defs": {"n": obj({"value": {"type": "integer"}, "next": {"anyOf": [NODE, {"type": "null"}]}})}, **NODE},
    {"$defs": {"n": obj({"children": {"type": "array", "items": NODE}})}, **NODE},
    {"$defs": {"n": obj({"name": {}, "parent": NODE}, ("name",))}, **NODE},
    {"$defs": {"n": {"type": ["object", "null"], "properties": {"next": NODE}, "required": ["next"]}}, **NODE},
    {"$defs": {"n": {"properties": {"next": NODE}, "required": ["next"]}}, **NODE},
    {
        "$ref": "#/$defs/n",
        "$defs": {
            "n": {
                "oneOf": [
                    *(obj({"op": {"const": str(each)}, "l": NODE, "r": NODE}) for each in range(20)),
                    obj({"op": {"const": "number"}, "value": {"type": "number"}}),
                ]
            }
        },
    },
    {"type": "object", "properties": {"a": {"type": "array", "items": NODE, "minItems": 3}}, "required": ["a"]}
    | {"$defs": {"n": obj({"id": {"type": "string", "format": "uuid"}, "size": {"type": "integer", "minimum": 3}})}},
]


@pytest.mark.parametrize("text", ["Please fill this", "", 'Name "x", parent and children: 3, 4.5 of number 7'])
@pytest.mark.parametrize("schema", FITTING, ids=str)
def test_what_is_made_fits_and_is_the_same_each_time(schema: Schema, text: str) -> None:
    value = fill(schema, text)
    assert fits(schema, value), value
    assert orjson.dumps(fill(schema, text)) == orjson.dumps(value)


UNFITTING: list[Schema] = [
    {"not": {}},
    {"enum": []},
    {"anyOf": [{"enum": []}]},
    {"type": "integer", "minimum": 3, "maximum": 2},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "string", "minLength": 10_000_000_000},
    {"type": "array", "minItems": 10_000_000_000},
    {"type": "object", "minProperties": 10_000_000_000},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "items": False, "minItems": 1},
    {"allOf": [{"type": "string"}, {"type": "integer"}]},
    {"allOf": [False, {"type": "integer"}]},
    {"enum": [1], "const": 2},
    {"type": "string", "allOf": [{"pattern": "^a$"}, {"pattern": "^b$"}]},
    {"$defs": {"n": obj({"next": NODE})}, **NODE},
    {"$defs": {"n": obj({"left": NODE, "right": NODE, "up": NODE})}, **NODE},
    {"$defs": {"n": {"type": "array", "items": NODE, "minItems": 2}}, **NODE},
    {"$defs": {"n": {"anyOf": [obj({"a": NODE}), obj({"b": NODE})]}}, **NODE},
    {"$defs": {"n": {"type": "object", "minProperties": 2, "additionalProperties": NODE}}, **NODE},
    {"type": "object", "required": ["a"], "additionalProperties": {"$ref": "#"}},
    {
        "$ref": "#/$defs/n0",
        "$defs": {f"n{n}": obj({f"k{k}": {"$ref": f"#/$defs/n{k}"} for k in range(0, 60, 3)}) for n in range(60)},
    },
]


@pytest.mark.parametrize("text", ["", "left 1 right 2 next, up a b c k0 k3 property"])
@pytest.mark.parametrize("schema", UNFITTING, ids=lambda schema: str(schema)[:80])
def test_what_nothing_fits_is_answered_all_the_same(schema: Schema, text: str) -> None:
    began = process_time()
    value = fill(schema, text)
    assert process_time() - began < 1
    assert len(orjson.dumps(value)) < 500_000
    assert not fits(schema, value)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_means_harm_does_none(name: str) -> None:
    schema = HOSTILE[name][0]
    began = process_time()
    value = fill(schema, "c k0 k1 3 4 5 " * 200)
    assert process_time() - began < 1.5
    assert len(orjson.dumps(value)) < 1_000_000


@pytest.mark.parametrize("schema", [{"type": "no such type"}, {"$ref": "elsewhere"}, {"pattern": "("}, {"enum": 3}])
def test_a_schema_that_cannot_be_used_is_answered_with_null(schema: Schema) -> None:
    with pytest.raises(ConfigurationFailure):
        compile_schema(schema)
    assert fill(schema, "text") is None


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta", "note_text", "ümlaut", "a/b", "x~y", "per cent%"])
SMALL = st.integers(-30, 30)


def _bounded(kind: str) -> st.SearchStrategy[Schema]:
    def made(low: float, width: float, step: float | None) -> Schema:
        kept = {"type": kind, "minimum": low, "maximum": low + width}
        return kept | ({"multipleOf": step} if step is not None and width >= step else {})

    return st.builds(made, SMALL, st.integers(0, 20), st.sampled_from([None, 1, 2, 3, 5, 0.5]))


LEAVES = st.one_of(
    st.sampled_from([{}, *({"type": kind} for kind in KINDS)]),
    _bounded("integer").filter(lambda schema: schema.get("multipleOf") != 0.5),
    _bounded("number"),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + 0.5}, SMALL),
    st.builds(lambda low: {"type": "integer", "exclusiveMinimum": low}, SMALL),
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
        st.integers(0, 30),
        st.integers(0, 9),
    ),
    st.builds(lambda form: {"type": "string", "format": form}, st.sampled_from(FORMATS)),
    st.builds(
        lambda pattern: {"type": "string", "pattern": pattern},
        st.from_regex(
            r"\A\^([a-f]|\[a-c\]|\\d|\(x\|y\)|\.)(\{1,3\}|\+|\*)?[k-m]\$\Z", alphabet="abcdefxyklm^$\\d[](){}|,13.+*-"
        ),
    ),
    st.builds(lambda values: {"enum": values}, st.lists(st.one_of(SMALL, st.text(max_size=5), st.none()), min_size=1)),
    st.builds(lambda value: {"const": value}, st.recursive(SMALL | st.text(max_size=3), st.lists, max_leaves=4)),
)


def _containers(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    def an_object(properties: Schema, required: list[str], extra: bool | Schema) -> Schema:
        return obj(properties, tuple(dict.fromkeys(each for each in required if each in properties or extra))) | (
            {"additionalProperties": extra} if extra is not True else {}
        )

    return st.one_of(
        st.builds(
            an_object,
            st.dictionaries(NAMES, inner, max_size=4),
            st.lists(NAMES, max_size=4),
            st.one_of(st.booleans(), inner),
        ),
        st.builds(
            lambda items, least, more: {"type": "array", "items": items, "minItems": least, "maxItems": least + more},
            inner,
            st.integers(0, 4),
            st.integers(0, 2),
        ),
        st.builds(
            lambda first: {"type": "array", "prefixItems": first, "minItems": len(first)},
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda ways: {"anyOf": ways}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda way: {"allOf": [way, {}]}, inner),
        st.builds(lambda way: {"oneOf": [way, False]}, inner),
        st.builds(lambda way, default: {**way, "default": default}, inner, SMALL | st.text(max_size=4)),
        st.builds(lambda way: {"allOf": [{"$ref": "#/$defs/leaf"}], "anyOf": [{}, way]}, inner),
    )


SCHEMAS = st.builds(
    lambda schema, leaf: {**schema, "$defs": {"leaf": leaf}}, st.recursive(LEAVES, _containers, max_leaves=8), LEAVES
)
TEXTS = st.text(max_size=60) | st.just('alpha 3, beta: x, gamma "quoted" and delta 4.5, note text 2025-01-02 a@b.de')


@settings(deadline=None, max_examples=300, derandomize=True)
@given(SCHEMAS, TEXTS)
def test_any_supported_schema_is_filled(schema: Schema, text: str) -> None:
    value = fill(schema, text)
    assert fits(schema, value), value


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.recursive(
        SMALL | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)
    )
)
def test_what_is_constant_is_answered(value: Any) -> None:
    assert fill({"const": value}, "text") == value
