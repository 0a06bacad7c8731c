"""Built-in tools."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.adapters.tools.builtin import BUILTIN_TOOLS, calculate, current_time, roll_dice
from portico.domain.tools import SideEffects
from portico.ports.tool import ToolContext, ToolError
from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock


@pytest.fixture
def context(clock: VirtualClock, entropy: SeededEntropy) -> ToolContext:
    return ToolContext("call_1", 10, clock, entropy, "key")


def test_built_in_tools_have_no_side_effects_and_are_idempotent() -> None:
    assert [each.info().name for each in BUILTIN_TOOLS] == ["ask_person", "calculate", "current_time", "roll_dice"]
    assert all(each.info().idempotent and not each.info().unsafe for each in BUILTIN_TOOLS)
    assert {each.info().side_effects for each in BUILTIN_TOOLS} == {SideEffects.NONE, SideEffects.READ}


async def test_dice_are_returned_one_by_one_and_as_a_sum(context: ToolContext) -> None:
    text = await roll_dice.execute({"count": 2, "sides": 6}, context)
    rolled = re.fullmatch(r"Rolled 2d6: \[(\d) (\d)\] \(sum: (\d+)\)", text)
    assert rolled is not None
    assert int(rolled[1]) + int(rolled[2]) == int(rolled[3])


async def test_equal_entropy_rolls_equal_dice(clock: VirtualClock) -> None:
    rolls = {
        await roll_dice.execute({"count": 10, "sides": 20}, ToolContext("c", 1, clock, SeededEntropy(7), "key"))
        for _ in range(3)
    }
    assert len(rolls) == 1


@given(seed=st.integers(), count=st.integers(1, 10), sides=st.integers(2, 1000))
async def test_every_die_shows_one_of_its_sides(seed: int, count: int, sides: int) -> None:
    context = ToolContext("c", 1, VirtualClock(), SeededEntropy(seed), "key")
    text = await roll_dice.execute({"count": count, "sides": sides}, context)
    results = [int(each) for each in text.partition("[")[2].partition("]")[0].split()]
    assert len(results) == count
    assert all(1 <= each <= sides for each in results)
    assert text.endswith(f"(sum: {sum(results)})")


@pytest.mark.parametrize("arguments", [{"count": 0, "sides": 6}, {"count": 11, "sides": 6}, {"count": 1, "sides": 1}])
async def test_dice_out_of_bounds_are_refused(arguments: dict[str, Any], context: ToolContext) -> None:
    with pytest.raises(ToolError):
        await roll_dice.execute(arguments, context)


async def test_calculate_gives_the_exact_value(context: ToolContext) -> None:
    assert await calculate.execute({"expression": "0.1 + 0.2"}, context) == "0.3"


async def test_calculate_reports_what_is_wrong(context: ToolContext) -> None:
    with pytest.raises(ToolError, match=r"^The expression has no value: it divides by zero\.$"):
        await calculate.execute({"expression": "1 / 0"}, context)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "2026-09-21T14:13:20+00:00"),
        ({"timezone": "UTC"}, "2026-09-21T14:13:20+00:00"),
        ({"timezone": "Europe/Berlin"}, "2026-09-21T16:13:20+02:00"),
        ({"timezone": "Asia/Kolkata"}, "2026-09-21T19:43:20+05:30"),
    ],
)
async def test_the_time_is_returned_in_iso_8601_with_its_offset(
    arguments: dict[str, Any], text: str, context: ToolContext
) -> None:
    assert await current_time.execute(arguments, context) == text


@pytest.mark.parametrize(
    "name", ["Nowhere/Land", "", "America", "../../etc/passwd", "/etc/passwd", "a\0b", "\u20ac", "tzdata.zi"]
)
async def test_an_unknown_time_zone_is_reported(name: str, context: ToolContext) -> None:
    with pytest.raises(ToolError, match="There is no time zone of that name"):
        await current_time.execute({"timezone": name}, context)
