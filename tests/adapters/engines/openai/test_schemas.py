"""Schemas that OpenAI's strict mode takes as they are, and the many that it does not."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.engines.openai.schemas import fits_strict, named_schema
from tests.support.emulators.openai_requests import OpenAiRefusedError, check_json_schema

CITY = {
    "type": "object",
    "title": "City",
    "properties": {
        "name": {"type": "string", "description": "Its name."},
        "twin": {"anyOf": [{"$ref": "#/$defs/city"}, {"type": "null"}]},
        "size": {"type": ["integer", "null"]},
        "kind": {"enum": ["town", "city"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["tags", "name", "twin", "size", "kind"],
    "additionalProperties": False,
    "$defs": {"city": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}},
}


def with_member(schema: Any) -> dict[str, Any]:
    changed = copy.deepcopy(CITY)
    changed["properties"]["more"] = schema
    changed["required"].append("more")
    return changed


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return with_member(schema)


def test_a_schema_in_which_every_member_is_named_and_required_is_strict():
    assert fits_strict(CITY)
    assert named_schema(CITY) == {"name": "answer", "schema": CITY, "strict": True}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [CITY]},
        CITY | {"anyOf": [CITY]},
        CITY | {"required": ["name"]},
        CITY | {"required": ["name", "name", "twin", "size", "kind"]},
        CITY | {"required": None},
        CITY | {"additionalProperties": True},
        CITY | {"additionalProperties": {"type": "string"}},
        {key: value for key, value in CITY.items() if key != "additionalProperties"},
        CITY | {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        CITY | {"properties": ["name"]},
        CITY | {"$defs": []},
        with_member(True),
        with_member({}),
        with_member({"description": "Anything."}),
        with_member({"type": "integer", "minimum": 0}),
        with_member({"type": "string", "pattern": "^a"}),
        with_member({"type": "string", "format": "date"}),
        with_member({"type": "array"}),
        with_member({"type": "array", "items": True}),
        with_member({"type": "object"}),
        with_member({"type": "thing"}),
        with_member({"type": [["string"]]}),
        with_member({"allOf": [{"type": "string"}]}),
        with_member({"anyOf": {"type": "string"}}),
        with_member({"enum": "abc"}),
        with_member({"enum": list(range(501))}),
        with_member({"$ref": "#/$defs/city", "description": "Beside it."}),
        with_member({"$ref": "https://example.org/schema"}),
        nested(10),
        nested(20_000),
    ],
)
def test_any_other_schema_is_not_and_is_sent_unchanged(schema: dict[str, Any]):
    assert not fits_strict(schema)
    assert named_schema(schema)["schema"] is not schema
    assert named_schema(schema)["schema"].keys() == schema.keys()


def test_its_limits_are_kept():
    assert fits_strict(nested(8))
    members = {f"m{number}": {"type": "string"} for number in range(95)}
    wide = CITY | {"properties": CITY["properties"] | members, "required": [*CITY["required"], *members]}
    assert fits_strict(wide)
    members["one_more"] = {"type": "string"}
    assert not fits_strict(
        wide | {"properties": CITY["properties"] | members, "required": [*wide["required"], "one_more"]}
    )


ANY_SCHEMA = st.recursive(
    st.sampled_from([{"type": "string"}, {"enum": [1, 2]}, {"const": None}, {"type": "number", "maximum": 3}, {}]),
    lambda inner: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda members, closed, drop: {
                "type": "object",
                "properties": members,
                "required": sorted(members)[drop:],
                **({"additionalProperties": False} if closed else {}),
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.booleans(),
            st.integers(0, 1),
        ),
    ),
    max_leaves=12,
)


@given(ANY_SCHEMA)
def test_what_is_asked_for_strictly_is_taken_by_the_emulated_server(schema: dict[str, Any]):
    form = named_schema(schema)
    if schema.get("type") == "object":
        check_json_schema(form, "response_format")
    else:
        assert not form["strict"]


def test_the_emulated_server_would_notice():
    with pytest.raises(OpenAiRefusedError):
        check_json_schema(named_schema(CITY | {"required": []}) | {"strict": True}, "response_format")
