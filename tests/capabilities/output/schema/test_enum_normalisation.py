"""Values of an enumeration get its spelling if only the case of letters differs and one option matches."""

from typing import Any

import pytest

from portico.capabilities.output.repair import Repair, RepairAction
from portico.capabilities.output.schema import enum_normalisation
from portico.capabilities.output.schema.compiled import compile_schema
from portico.capabilities.output.schema.enum_normalisation import MAX_REPORTED_CHANGES, MAX_VISITS

STATUS = {"enum": ["open", "Closed", "on hold"]}


def normalise(schema: dict[str, Any], value: Any) -> tuple[Any, tuple[Repair, ...]]:
    return enum_normalisation.normalise_enums(compile_schema(schema).outline, value)


@pytest.mark.parametrize(
    ("schema", "value", "normalised", "places"),
    [
        (STATUS, "OPEN", "open", ["$"]),
        ({"properties": {"s": STATUS}}, {"s": "closed", "t": "OPEN"}, {"s": "Closed", "t": "OPEN"}, ["$.s"]),
        ({"additionalProperties": STATUS}, {"s": "closed"}, {"s": "Closed"}, ["$.s"]),
        ({"items": STATUS}, ["Open", "open", "On Hold"], ["open", "open", "on hold"], ["$[0]", "$[2]"]),
        ({"prefixItems": [True, STATUS], "items": False}, ["OPEN", "OPEN"], ["OPEN", "open"], ["$[1]"]),
        ({"anyOf": [STATUS, {"type": "null"}]}, "Open", "open", ["$"]),
        ({"allOf": [{"$ref": "#/$defs/s"}], "$defs": {"s": STATUS}}, "Open", "open", ["$"]),
        ({"if": {"required": ["a"]}, "then": {"properties": {"s": STATUS}}}, {"s": "OPEN"}, {"s": "open"}, ["$.s"]),
        ({"properties": {"kind": {"const": "Circle"}}}, {"kind": "circle"}, {"kind": "Circle"}, ["$.kind"]),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "B", "b", ["$"]),
        (
            {"properties": {"n": {"$ref": "#"}, "s": STATUS}},
            {"n": {"n": {"s": "OPEN"}}},
            {"n": {"n": {"s": "open"}}},
            ["$.n.n.s"],
        ),
        ({"enum": ["STRASSE"]}, "straße", "STRASSE", ["$"]),
    ],
)
def test_an_option_is_recognised_in_any_case(
    schema: dict[str, Any], value: Any, normalised: Any, places: list[str]
) -> None:
    found, repairs = normalise(schema, value)
    assert found == normalised
    assert list(repairs) == [Repair(RepairAction.ENUM_NORMALISED, place) for place in places]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": ["open", "OPEN"]}, "Open"),
        ({"anyOf": [{"enum": ["open"]}, {"enum": ["OPEN"]}]}, "Open"),
        ({"anyOf": [{"enum": ["open"]}, {"enum": ["OPEN"]}]}, "OPEN"),
        (STATUS, "opened"),
        (STATUS, "on-hold"),
        (STATUS, " open"),
        (STATUS, "open1"),
        ({"enum": ["v1", "v2"]}, "V3"),
        ({"enum": ["x²"]}, "X2"),
        ({"enum": ["1", "2"]}, 1),
        ({"enum": [1, 2]}, "1"),
        ({"enum": [1.0]}, 1),
        ({"not": STATUS}, "OPEN"),
        ({"type": "string"}, "OPEN"),
    ],
)
def test_an_ambiguous_value_is_unchanged(schema: dict[str, Any], value: Any) -> None:
    found, repairs = normalise(schema, value)
    assert (found, repairs) == (value, ())
    assert type(found) is type(value)


def test_digits_are_unchanged() -> None:
    schema = {"properties": {"model": {"enum": ["GPT-4o", "GPT-4"]}, "id": {"type": "integer"}}}
    value = {"model": "gpt-4O", "id": 2**64 - 1}
    assert normalise(schema, value)[0] == {"model": "GPT-4o", "id": 2**64 - 1}


def test_the_original_answer_is_not_modified() -> None:
    value = {"s": ["OPEN"], "t": {"u": 1}}
    found, _ = normalise({"properties": {"s": {"items": STATUS}}}, value)
    assert value == {"s": ["OPEN"], "t": {"u": 1}}
    assert found == {"s": ["open"], "t": {"u": 1}}


def test_visits_of_a_large_answer_are_limited_and_only_the_first_changes_are_reported_singly() -> None:
    found, repairs = normalise({"items": STATUS}, ["OPEN"] * 50_000)
    assert [repair.path for repair in repairs] == [f"$[{index}]" for index in range(MAX_REPORTED_CHANGES)]
    assert found.count("open") == sum(repair.times for repair in repairs) < MAX_VISITS
    assert found[-1] == "OPEN"


def test_members_that_match_only_a_pattern_are_respelled_too() -> None:
    schema = {"patternProperties": {"^s_": STATUS}, "additionalProperties": {"const": "X"}}
    found, _ = normalise(schema, {"s_1": "OPEN", "other": "x"})
    assert found == {"s_1": "open", "other": "X"}
