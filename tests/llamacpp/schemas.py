"""A hundred schemas and more, each of another form, that a model must keep while it writes."""

from itertools import product
from typing import Any

Schema = dict[str, Any]
_INTEGER: Schema = {"type": "integer"}
_SHORT: Schema = {"type": "string", "maxLength": 6}


def _record(*required: str, **members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False}


_NUMBERS = [
    {"type": kind, **bounds}
    for kind, bounds in product(
        ("integer", "number"),
        (
            {"minimum": 0, "maximum": 9},
            {"minimum": -5, "maximum": 5},
            {"exclusiveMinimum": 0, "maximum": 1000},
            {"minimum": 17, "exclusiveMaximum": 18.5},
            {"maximum": -1, "minimum": -999},
        ),
    )
]
_MULTIPLES = [{"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100}, {"type": "integer", "multipleOf": 3}]
_TEXTS: list[Schema] = [
    *({"type": "string", "minLength": least, "maxLength": most} for least, most in ((0, 0), (1, 1), (2, 5), (9, 20))),
    *(
        {"type": "string", "pattern": pattern}
        for pattern in (
            "^[a-z]+$",
            "^[A-Z]{3}-[0-9]{4}$",
            "^(red|green|blue)$",
            "^#[0-9a-f]{6}$",
            "^\\d{2}:\\d{2}$",
            "^(a|b)*c$",
            "^[^x]{1,4}$",
            "^é+$",
            "^(a+)+$",
        )
    ),
    *({"type": "string", "format": name} for name in ("date", "uuid", "ipv4", "ipv6", "duration")),
    {"type": "string", "format": "email", "maxLength": 40},
]
_CHOICES: list[Schema] = [
    {"enum": ["red", "green", "blue"]},
    {"enum": [1, 2, 3]},
    {"enum": ["1", 1, None, True, 1.5]},
    {"enum": [{"a": 1}, [1, 2], "é"]},
    {"enum": ["<unk>", "<s>", "</s>", "<|im_end|>"]},
    {"enum": ["a", "ab", "abc", "abcd"]},
    {"const": "only this"},
    {"const": 'quoted "and" \\ escaped\n'},
    {"const": {"nested": [1, {"deep": None}]}},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["integer", "null"]},
    {"type": ["boolean", "string"], "maxLength": 4},
    {"anyOf": [_INTEGER, {"type": "boolean"}]},
    {"anyOf": [{"type": "null"}, _record("a", a=_INTEGER)]},
    {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
    {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 30}]},
    {"allOf": [_record("a", a=_INTEGER), {"type": "object"}]},
]
_LISTS: list[Schema] = [
    *(
        {"type": "array", "items": _INTEGER, "minItems": least, "maxItems": most}
        for least, most in ((0, 0), (1, 1), (2, 4), (7, 7))
    ),
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 5},
    {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 3, "maxItems": 6},
    {"type": "array", "items": {"type": "array", "items": _INTEGER, "maxItems": 2}, "maxItems": 3},
    {"type": "array", "prefixItems": [_INTEGER, _SHORT], "items": False, "minItems": 2},
    {"type": "array", "prefixItems": [{"const": "head"}], "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": _record("id", id=_INTEGER), "minItems": 1, "maxItems": 2},
    {"type": "array", "items": {"anyOf": [_INTEGER, {"type": "null"}]}, "minItems": 1, "maxItems": 4},
]
_RECORDS: list[Schema] = [
    _record(),
    _record("a", a=_INTEGER),
    _record(a=_INTEGER),
    _record("a", "b", a=_INTEGER, b=_SHORT),
    _record("a", a=_INTEGER, b=_SHORT, c={"type": "boolean"}),
    _record("b", "a", a={"type": "null"}, b={"enum": [0, 1]}),
    _record("ä ö", **{"ä ö": _INTEGER, 'with "quotes"': _SHORT}),
    _record("a", a=_record("b", b=_record("c", c=_record("d", d=_INTEGER)))),
    _record("list", list={"type": "array", "items": _SHORT, "maxItems": 3}),
    _record("when", "who", when={"type": "string", "format": "date"}, who=_SHORT),
    _record(
        "point",
        point={"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 2},
    ),
    _record("kind", kind={"const": "circle"}, radius={"type": "number", "minimum": 0, "maximum": 10}),
    _record(*"abcdefgh", **{name: {"type": "boolean"} for name in "abcdefgh"}),
    _record(**{name: {"type": "boolean"} for name in "abcdefgh"}),
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    {"type": "object", "patternProperties": {"^x[0-9]$": _INTEGER}, "additionalProperties": False},
    {"type": "object", "properties": {"a": _INTEGER}, "required": ["a"], "additionalProperties": {"type": "null"}},
    {"type": "object", "properties": {"a": _INTEGER, "b": False}, "required": ["a"], "additionalProperties": False},
]
_REFERENCES: list[Schema] = [
    {"$ref": "#/$defs/one", "$defs": {"one": _INTEGER}},
    {"$defs": {"id": {"type": "string", "pattern": "^[a-f]{4}$"}}, **_record("id", id={"$ref": "#/$defs/id"})},
    {
        "$ref": "#/$defs/chain",
        "$defs": {
            "chain": _record(
                "value", "next", value=_INTEGER, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/chain"}]}
            )
        },
    },
    {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": _record("leaves", leaves={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1})
        },
    },
    {
        "type": "array",
        "maxItems": 2,
        "items": {"$ref": "#/definitions/pair"},
        "definitions": {"pair": _record("k", k=_SHORT)},
    },
    {
        "$defs": {"a": _record("b", b={"anyOf": [{"$ref": "#/$defs/c"}, {"type": "null"}]}), "c": {"enum": ["end"]}},
        "$ref": "#/$defs/a",
    },
]
_COMBINED: list[Schema] = [
    {"anyOf": [_record("kind", kind={"const": kind}, **{kind: _INTEGER}) for kind in ("circle", "square", "line")]},
    *(
        _record("answer", "sure", answer=answer, sure={"type": "number", "minimum": 0, "maximum": 1})
        for answer in (*_CHOICES[:4], *_TEXTS[1:7], *_LISTS[:6], *_NUMBERS[:8])
    ),
]
SCHEMAS = [*_NUMBERS, *_MULTIPLES, *_TEXTS, *_CHOICES, *_LISTS, *_RECORDS, *_REFERENCES, *_COMBINED]
