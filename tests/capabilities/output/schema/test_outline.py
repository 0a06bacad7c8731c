"""Subschemas and references are found before a schema is compiled."""

import pytest

from portico.capabilities.output.schema.outline import SchemaOutlineError, outline_schema


def test_the_patterns_of_a_schema_are_found_wherever_they_stand() -> None:
    document = {
        "properties": {"a": {"pattern": "^x$", "maxLength": 5}, "b": {"format": "date"}, "c": {"pattern": "a.{9}b"}},
        "patternProperties": {"^y": {"pattern": "z"}},
    }
    assert sorted(pattern for _, pattern in outline_schema(document).patterns()) == ["^x$", "^y", "a.{9}b", "z"]


@pytest.mark.parametrize(
    ("document", "recursive"),
    [
        ({"items": {"$ref": "#"}}, {()}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, {("$defs", "a")}),
        ({"$defs": {"unused": {"$ref": "#/$defs/unused"}}}, set()),
        ({"properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}, set()),
    ],
)  # fmt: skip
def test_a_subschema_in_use_that_leads_back_to_itself_is_recursive(
    document: dict[str, object], recursive: set[tuple[str, ...]]
) -> None:
    assert outline_schema(document).recursive == recursive


@pytest.mark.parametrize("reference", ["other.json", "https://example.org", "#/$defs/none", "#none", "#/$defs/a/0"])
def test_a_reference_without_a_target_is_refused_with_its_place(reference: str) -> None:
    with pytest.raises(SchemaOutlineError) as caught:
        outline_schema({"items": {"$ref": reference}, "$defs": {"a": {}}})
    assert caught.value.path == "$.items['$ref']"


def test_an_invalid_schema_has_an_outline_too() -> None:
    for document in ({"properties": [1]}, {"allOf": {"a": 1}}, {"items": 5}, {"$ref": 5}, {"enum": 3}, {"pattern": 1}):
        assert () in outline_schema(document).subschemas
