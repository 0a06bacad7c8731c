"""Evaluations of a schema at one place of an answer are never counted too low."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.capabilities.output.schema.outline import SchemaOutlineError, outline_schema
from app.capabilities.output.schema.pattern_cost import pattern_cost
from tests.support.seeds import randomised

NAMES = ("a", "b")
LEVELS = 3


def nodes(references: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Return schemas that refer only to these names."""
    plain = st.just({"type": "object"}) | st.sampled_from([{"$ref": name} for name in references] or [{}])
    return st.recursive(
        plain,
        lambda inner: (
            st.builds(lambda key, some: {key: some}, st.sampled_from(["allOf", "anyOf"]), st.lists(inner, max_size=3))
            | st.builds(lambda some: {"properties": some}, st.dictionaries(st.sampled_from(NAMES), inner))
            | st.builds(lambda one: {"additionalProperties": one}, inner)
            | st.builds(lambda one, other: {"items": one, "not": other}, inner, inner)
        ),
        max_leaves=4,
    )


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    for number in range(LEVELS):
        definitions[f"d{number}"] = draw(nodes([f"#/$defs/{name}" for name in definitions]))
    return {"allOf": [draw(nodes([f"#/$defs/{name}" for name in definitions]))], "$defs": definitions}


def looked_at(document: dict[str, Any], subschema: Any, place: tuple[str, ...] = ()) -> Counter[tuple[str, ...]]:
    """Return the places of some answer, with the number of evaluations at each, counted one by one."""
    found = Counter({place: 1})
    for inner in (*subschema.get("allOf", ()), *subschema.get("anyOf", ())):
        found += looked_at(document, inner, place)
    if "not" in subschema:
        found += looked_at(document, subschema["not"], place)
    for name, inner in subschema.get("properties", {}).items():
        found += looked_at(document, inner, (*place, name))
    if "additionalProperties" in subschema:
        for name in NAMES:
            found += looked_at(document, subschema["additionalProperties"], (*place, name))
    if "items" in subschema:
        found += looked_at(document, subschema["items"], (*place, "[]"))
    if "$ref" in subschema:
        found += looked_at(document, document["$defs"][subschema["$ref"].removeprefix("#/$defs/")], place)
    return found


@randomised(60)
@given(documents())
def test_counted_evaluations_are_at_least_the_actual_ones(document: dict[str, Any]) -> None:
    assert outline_schema(document).evaluations() >= max(looked_at(document, document).values())


@pytest.mark.parametrize(
    ("document", "evaluations"),
    [
        ({}, 1),
        ({"properties": {"a": {}, "b": {}}}, 1),
        ({"allOf": [{}, {"anyOf": [{}, {}]}]}, 5),
        ({"properties": {"a": {"allOf": [{}, {}]}, "b": {}}}, 3),
        ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": {}}}]}, 3),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}, "unused": {"allOf": [{}] * 9}}}, 2),
        ({"items": {"$ref": "#"}}, 3),
        ({"unevaluatedProperties": False, "allOf": [{}]}, 16),
        ({"enum": ["a", "b", "c"]}, 1 + 2),
        ({"enum": [1, 2, 3]}, 1 + 2),
        ({"enum": [0.5, 1.5, None, "a"]}, 1 + 4 * 2 + 400),
        ({"const": 1e-300}, 1 + 2 * 2 + 4000),
        ({"enum": [[1], {}, [{"a": [0.5]}], "a"]}, 1 + (16 + 25) + 16 + (16 + 400) + 2),
        ({"format": "regex", "uniqueItems": True}, 1 + 10),
    ],
)
def test_expensive_keywords_count_for_more(document: dict[str, Any], evaluations: int) -> None:
    assert outline_schema(document).evaluations() == evaluations


def test_comparisons_are_counted_by_number_unless_they_are_metered() -> None:
    document = {"properties": {"a": {"minimum": 0, "maximum": 1.5}, "b": {"multipleOf": 0.01}, "c": {"multipleOf": 3}}}
    assert outline_schema(document).number_comparisons() == 140
    assert outline_schema(document["properties"]["a"]).number_comparisons() == 10
    assert outline_schema(document["properties"]["b"]).number_comparisons() == 0


def test_characters_are_counted_by_the_keywords_that_read_them() -> None:
    document = {
        "properties": {"a": {"pattern": "^x$", "maxLength": 5}, "b": {"format": "date"}, "c": {"pattern": "a.{9}b"}},
        "patternProperties": {"^y": {"pattern": "z"}},
    }
    parts = outline_schema(document)
    assert sorted(pattern for _, pattern in parts.patterns()) == ["^x$", "^y", "a.{9}b", "z"]
    assert parts.character_matches() == pattern_cost("^y") + max(pattern_cost("z"), pattern_cost("^x$") + 1)


@pytest.mark.parametrize("reference", ["other.json", "https://example.org", "#/$defs/none", "#none", "#/$defs/a/0"])
def test_a_reference_without_a_target_is_refused_with_its_place(reference: str) -> None:
    with pytest.raises(SchemaOutlineError) as caught:
        outline_schema({"items": {"$ref": reference}, "$defs": {"a": {}}})
    assert caught.value.path == "$.items['$ref']"


def test_an_invalid_schema_has_an_outline_too() -> None:
    for document in ({"properties": [1]}, {"allOf": {"a": 1}}, {"items": 5}, {"$ref": 5}, {"enum": 3}, {"pattern": 1}):
        assert outline_schema(document).evaluations() >= 1
