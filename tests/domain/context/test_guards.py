"""Texts of a request: what guards read of it, and which of it is prose."""

from portico.domain.context.guards import texts_of_request, texts_of_schema
from portico.domain.contract.request import SystemRequest

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A lamp",
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"type": "string", "description": "The kind.", "enum": ["table", "floor"]},
        "code": {
            "anyOf": [{"type": "string", "pattern": "^[a-z]+$", "default": "none"}, {"const": {"shape": "round"}}]
        },
    },
    "$defs": {"part": {"$ref": "#", "examples": [["a bulb", 7]]}},
    "maxProperties": 3,
}


def test_the_prose_of_a_schema_is_what_it_says_and_not_how_it_is_built() -> None:
    texts = list(texts_of_schema(SCHEMA))
    assert {each.text for each in texts if each.is_prose} == {
        "A lamp",
        "The kind.",
        "table",
        "floor",
        "none",
        "round",
        "a bulb",
    }
    structure = {each.text for each in texts if not each.is_prose}
    assert {"https://json-schema.org/draft/2020-12/schema", "object", "string", "^[a-z]+$", "#", "3", "7"} <= structure
    assert {"type", "code", "part", "shape"} <= structure


def test_a_request_without_any_format_has_the_texts_of_its_messages_alone() -> None:
    request = SystemRequest.model_validate({"messages": [{"role": "user", "content": "Hello"}]})
    assert [each.text for each in texts_of_request(request, None)] == ["Hello"]
