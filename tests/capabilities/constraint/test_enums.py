"""Values of an enumeration get its spelling where only letters' case differs and one option is meant."""

from typing import Any

import pytest

from app.capabilities.constraint.enums import normalise
from app.capabilities.constraint.repair import Action, Repair
from app.capabilities.constraint.schema import compile_schema

STATUS = {"enum": ["open", "Closed", "on hold"]}


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
def test_an_option_is_recognised_whatever_its_case(
    schema: dict[str, Any], value: Any, normalised: Any, places: list[str]
) -> None:
    found, repairs = normalise(compile_schema(schema).outline, value)
    assert found == normalised
    assert list(repairs) == [Repair(Action.ENUM_NORMALISED, place) for place in places]


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
def test_what_is_not_plainly_meant_stays_as_it_is(schema: dict[str, Any], value: Any) -> None:
    found, repairs = normalise(compile_schema(schema).outline, value)
    assert (found, repairs) == (value, ())
    assert type(found) is type(value)


def test_digits_are_kept() -> None:
    schema = {"properties": {"model": {"enum": ["GPT-4o", "GPT-4"]}, "id": {"type": "integer"}}}
    value = {"model": "gpt-4O", "id": 2**64 - 1}
    assert normalise(compile_schema(schema).outline, value)[0] == {"model": "GPT-4o", "id": 2**64 - 1}


def test_the_answer_itself_is_left_as_it_was() -> None:
    value = {"s": ["OPEN"], "t": {"u": 1}}
    found, _ = normalise(compile_schema({"properties": {"s": {"items": STATUS}}}).outline, value)
    assert value == {"s": ["OPEN"], "t": {"u": 1}}
    assert found == {"s": ["open"], "t": {"u": 1}}


def test_a_large_answer_is_only_looked_at_so_far() -> None:
    found, repairs = normalise(compile_schema({"items": STATUS}).outline, ["OPEN"] * 50_000)
    assert 0 < len(repairs) < 20_000
    assert found[-1] == "OPEN"
