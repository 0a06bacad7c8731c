"""The calls of our functions that a request costs are bounded, and the bounds follow the code down.

`python -m tests.counts` prints all numbers, `python -m tests.counts chat` the functions of that way, to compare them
with those of another commit.
"""

from collections.abc import Iterator, Mapping

import pytest

import tests.counts
from bench.calls import recorded_calls
from tests.counts.bounds import BOUNDS, CHAT_BOUNDS
from tests.counts.ways import FRAMEWORK, Way, functions, measured_ways, packages, unfreed_objects


@pytest.fixture(scope="module")
def ways() -> Mapping[str, Way]:
    return measured_ways()


def missed(number: int, bound: int) -> str | None:
    """Return how the number misses the bound: above it, or more than a tenth below; None if it keeps it."""
    if number > bound:
        return f"{number}, and the bound is {bound}"
    if bound * 10 > number * 11:
        return f"{number}: lower the bound of {bound} to it"
    return None


def test_each_way_has_a_bound_but_that_of_the_framework(ways: Mapping[str, Way]) -> None:
    assert [*ways] == [*BOUNDS, FRAMEWORK]


@pytest.mark.parametrize("name", BOUNDS)
def test_a_way_keeps_its_bound(ways: Mapping[str, Way], name: str) -> None:
    problem = missed(ways[name].number, BOUNDS[name])
    assert problem is None, f"{name}: {problem}\n{functions(ways[name])}"


def test_a_chat_keeps_the_bound_of_each_package(ways: Mapping[str, Way]) -> None:
    calls = packages(ways["chat"])
    names = sorted({*calls, *CHAT_BOUNDS})
    problems = {name: missed(calls.get(name, 0), CHAT_BOUNDS.get(name, 0)) for name in names}
    broken = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    assert not broken, "\n".join([*broken, functions(ways["chat"])])


@pytest.mark.parametrize(("number", "bound"), [(101, 100), (90, 100), (0, 1), (1, 0)])
def test_a_bound_is_missed_by_more_calls_and_by_a_tenth_fewer(number: int, bound: int) -> None:
    assert missed(number, bound)


@pytest.mark.parametrize(("number", "bound"), [(100, 100), (91, 100), (0, 0)])
def test_a_bound_is_kept_up_to_a_tenth_below_it(number: int, bound: int) -> None:
    assert missed(number, bound) is None


def _words() -> Iterator[str]:
    yield "one"
    yield "two"


def test_a_generator_is_one_call_and_a_comprehension_or_a_lambda_none() -> None:
    with recorded_calls(tests.counts) as recorder:
        words = sorted([word.upper() for word in _words()], key=lambda word: word[::-1])
    assert words == ["ONE", "TWO"]
    assert [call.function for call in recorder.calls()] == ["_words"]


def test_chats_tool_rounds_and_streams_leave_nothing_to_the_garbage_collector() -> None:
    assert unfreed_objects(10) == {"chat": 0, "tool round": 0, "stream": 0}
