"""Hostile schemas, each with an answer that makes it most expensive."""

from collections.abc import Callable
from functools import reduce
from typing import Any, cast

SELF = {"$ref": "#/$defs/n"}


def nested(levels: int, leaf: Any = None, name: str = "c") -> Any:
    return reduce(lambda inner, _: {name: inner}, range(levels), {} if leaf is None else leaf)


def chain(
    links: int, keyword: str, last: dict[str, Any], wrap: Callable[[Any], Any] = lambda link: link
) -> dict[str, Any]:
    """Return definitions each of which refers to the next one twice."""
    links_by_name: dict[str, Any] = {
        f"d{number}": {keyword: [wrap({"$ref": f"#/$defs/d{number + 1}"})] * 2} for number in range(links)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**links_by_name, f"d{links}": last}}


def recursive(node: dict[str, Any]) -> dict[str, Any]:
    return {**SELF, "$defs": {"n": node}}


def wrapped(times: int, inner: Any, **beside: Any) -> Any:
    return reduce(lambda schema, _: {"allOf": [schema], **beside}, range(times), inner)


def below(schema: Any) -> dict[str, Any]:
    return {"properties": {"c": schema}}


def tree(kinds: str) -> dict[str, Any]:
    """Return nodes of several kinds, each with a child of any kind: recursive alternatives."""
    node = {"type": "object", "required": ["k", "c"], "additionalProperties": False}
    branches = [{**node, "properties": {"k": {"const": kind}, "c": SELF}} for kind in kinds]
    return recursive({"anyOf": [*branches, {"type": "number"}]})


HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "itself": ({"$ref": "#"}, 1),
    "itself as alternatives": ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1),
    "not itself": ({"not": {"$ref": "#"}}, 1),
    "each other": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, 1),
    **{
        f"{key} twice, {links} times": (chain(links, key, {"type": "null"}), 1)
        for key in ("anyOf", "oneOf")
        for links in (10, 12, 40, 300)
    },
    "allOf twice, 30 times": (chain(30, "allOf", {"type": "number"}), 1),
    "twice below, 40 times": (chain(40, "anyOf", {"type": "null"}, below), nested(60, 1)),
    "twice and back again": (
        chain(30, "anyOf", {"allOf": [below({"$ref": "#/$defs/d0"}), {"type": "null"}]}),
        nested(60, 1),
    ),
    "a few twice and back again": (
        chain(9, "anyOf", {"allOf": [below({"$ref": "#/$defs/d0"}), {"type": "object"}]}),
        nested(60, 1),
    ),
    "a long way round": (
        {
            "$ref": "#/$defs/d0",
            "$defs": {**{f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1_990)}, "d1990": {"type": "null"}},
        },
        1,
    ),
    "everything refers to everything": (
        {
            "$ref": "#/$defs/n0",
            "$defs": {
                f"n{n}": {"type": "object", "properties": {f"k{k}": {"$ref": f"#/$defs/n{k}"} for k in range(0, 60, 2)}}
                for n in range(60)
            },
        },
        nested(60, 1, "k0"),
    ),
    "everything is an alternative of everything": (
        {
            "$ref": "#/$defs/n0",
            "$defs": {f"n{n}": {"anyOf": [{"$ref": f"#/$defs/n{k}"} for k in range(60)]} for n in range(30)}
            | {f"n{n}": {"type": "null"} for n in range(30, 60)},
        },
        1,
    ),
    "alternatives below alternatives": (
        recursive({"anyOf": [below(SELF), below(SELF)], "type": "object"}),
        nested(60, 1),
    ),
    "one of many below": (
        recursive({"oneOf": [{**below(SELF), "required": ["c"]}] * 2 + [{"maxProperties": 0}]}),
        nested(60),
    ),
    "names and patterns": (
        recursive({**below(SELF), "patternProperties": {"c": SELF, "^c": SELF}, "type": "object"}),
        nested(60, 1),
    ),
    "a deep tree of kinds": (
        tree("abcdefgh"),
        reduce(lambda inner, _: {"k": "h", "c": inner}, range(60), cast(Any, "bad")),
    ),
    **{
        f"unevaluated {times} times": (wrapped(times, below({"type": "null"}), unevaluatedProperties=False), {"c": 1})
        for times in (3, 4, 12, 20)
    },
    "unevaluated and back again": (recursive(wrapped(3, below(SELF), unevaluatedProperties=False)), nested(60, 1)),
    "deep allOf": (wrapped(31, {"type": "null"}), 1),
    "deeper allOf": (wrapped(60, {"type": "null"}), 1),
    "bottomless allOf": (wrapped(10_000, {"type": "null"}), 1),
    "a bomb of repetitions": ({"pattern": "(?:a{1000}){1000}"}, "a" * 9_000),
    "a bomb of classes": ({"pattern": r"\p{L}{500}"}, "a" * 9_000),
    "backtracking": ({"pattern": "^(a|a)*(a+)+(a*)*$"}, "a" * 50_000 + "!"),
    "ambiguous repetitions": ({"pattern": "(?:a?){900}a{900}$"}, "a" * 9_000),
    "many ambiguous repetitions": (
        {"allOf": [{"pattern": f"(?:a?){{{n}}}a{{{n}}}$"} for n in range(300, 308)]},
        "a" * 20_000,
    ),
    "a hundred patterns": ({"allOf": [{"pattern": f"(a|b|c)*{n}\\d{{20}}$"} for n in range(100)]}, "a" * 2_000),
    "one pattern everywhere": ({"items": {"allOf": [{"pattern": "^(a|aa)+$"}] * 900}}, ["a" * 100] * 500),
    "large classes": ({"allOf": [{"pattern": f"^\\p{{L}}{{1,2}}{n}$"} for n in range(40)]}, "é" * 1_000),
    "a pattern for each name": (
        {"patternProperties": {f"a.*{n}$": {"type": "null"} for n in range(90)}},
        {f"a{n}": 1 for n in range(3_000)},
    ),
    "long international addresses": (
        {"items": {"allOf": [{"format": "iri"}] * 900}},
        ["http://" + "é" * 1_000] * 1_000,
    ),
    "what answers call patterns": ({"items": {"format": "regex"}}, [r"\p{L}{100}" + str(n) for n in range(2_000)]),
    "2,000 properties": (
        {"properties": {f"p{n}": {"type": "null"} for n in range(1_990)}},
        {f"p{n}": 1 for n in range(1_990)},
    ),
    "2,000 alternatives": ({"anyOf": [{"const": n} for n in range(1_990)]}, "none"),
    "alternatives of each element": (
        {"items": {"anyOf": [{"required": [f"r{n}"], "type": "object"} for n in range(900)]}},
        [{"a": 1}] * 2_500,
    ),
    "fractions to choose from": ({"items": {"enum": [n + 0.5 for n in range(5_000)]}}, [0.25] * 5_000),
    "lists to choose from": ({"items": {"enum": [[n] for n in range(1_900)]}}, [[-1]] * 1_000),
    "texts to choose from": ({"items": {"enum": [f"v{n}" for n in range(20_000)]}}, ["w"] * 5_000),
    "a large constant": ({"allOf": [{"const": list(range(5_000))}] * 40}, [*list(range(4999)), 0]),
    "fractional multiples": ({"items": {"allOf": [{"multipleOf": 0.1}] * 100}}, [1e10] * 1_000),
    "unlike elements, again and again": ({"allOf": [{"uniqueItems": True}] * 900}, [[n] for n in range(20_000)]),
    "dependent names": ({"items": {"dependentRequired": {f"p{n}": ["x"] for n in range(1_900)}}}, [{"q": 1}] * 5_000),
    "contained in contained": ({"contains": {"contains": {"contains": {"const": 1}}}}, [[[0] * 30] * 30] * 30),
    "deep and wide": (
        reduce(
            lambda inner, _: {"properties": {f"k{n}": {"minLength": 1} for n in range(25)} | {"c": inner}},
            range(30),
            {"type": "null"},
        ),
        nested(30, 1),
    ),
    "nothing but brackets": ({"type": "object"}, reduce(lambda inner, _: [inner], range(64), cast(Any, 1))),
}

_ROWS = {"type": "array", "items": {"anyOf": [{"multipleOf": 0.01, "minimum": 0.5, "maximum": 1e300}]}}
_BOUNDS = {"minimum": 0.5, "exclusiveMinimum": 0.25, "maximum": 1e308, "exclusiveMaximum": 1.5e308}
PLAIN: dict[str, tuple[dict[str, Any], Any]] = {
    "fractions of large numbers": ({"schema": _ROWS}, "[" + "1e299," * 680 + "1]"),
    "fractional bounds": ({"schema": {"items": {"allOf": [_BOUNDS] * 7}}}, "[" + "1e307," * 680 + "1]"),
    "a pattern that follows many places": ({"schema": {"pattern": ".*a.{180}1"}}, '"' + "ab" * 2_040 + '"'),
    "a pattern with branches": ({"schema": {"pattern": "[ab]*a[ab]{160}1"}}, '"' + "abb" * 1_360 + '"'),
    "a rule that searches": ({"rules": [{"type": "regex", "pattern": ".*a.{170}1|.*b"}]}, "aéa" * 1_360),
    "rules of many places": (
        {"schema": {}, "rules": [{"type": "not_empty", "path": "$[*]"}] * 64},
        "[" + "1," * 2_000 + "1]",
    ),
    "lists without equal elements": ({"schema": {"uniqueItems": True}}, [[n, -n] for n in range(300)]),
    "a deep answer": ({"schema": {"items": {"uniqueItems": True}}}, reduce(lambda inner, _: [inner, 1], range(60), 1)),
    "an answer to repair": ({"schema": {"type": "object"}}, "{'a': [" * 400),
    "names that are not allowed": (
        {"schema": {"properties": {f"p{n}": {"type": "null"} for n in range(150)}, "additionalProperties": False}},
        {f"q{n}": n for n in range(250)},
    ),
}
"""Contracts and answers that are small and plain, and as expensive as such can be."""
