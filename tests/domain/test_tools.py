"""Safety of tools and groups of concurrent calls."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.tools import SideEffects, ToolInfo, concurrent_groups

NAMES = ("look", "count", "pay", "send")
replies = st.lists(st.sampled_from(NAMES), max_size=12)
unsafe_sets = st.frozensets(st.sampled_from(NAMES))


@given(replies, unsafe_sets)
def test_every_call_is_in_one_group_in_call_order(names: list[str], unsafe: frozenset[str]) -> None:
    assert list(itertools.chain(*concurrent_groups(names, unsafe))) == list(range(len(names)))
    assert all(concurrent_groups(names, unsafe))


@given(replies, unsafe_sets)
def test_an_unsafe_call_is_alone_in_its_group(names: list[str], unsafe: frozenset[str]) -> None:
    for wave in concurrent_groups(names, unsafe):
        assert len(wave) == 1 or not any(names[index] in unsafe for index in wave)


@given(replies, unsafe_sets)
def test_adjacent_safe_calls_run_concurrently(names: list[str], unsafe: frozenset[str]) -> None:
    for before, after in itertools.pairwise(concurrent_groups(names, unsafe)):
        assert names[before[-1]] in unsafe or names[after[0]] in unsafe


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        ([], []),
        (["look"], [[0]]),
        (["look", "count", "look"], [[0, 1, 2]]),
        (["pay", "pay"], [[0], [1]]),
        (["look", "count", "pay", "look", "count"], [[0, 1], [2], [3, 4]]),
    ],
)
def test_the_calls_of_a_reply_are_grouped(names: list[str], groups: list[list[int]]) -> None:
    assert concurrent_groups(names, frozenset({"pay"})) == groups


@pytest.mark.parametrize(
    ("side_effects", "idempotent", "unsafe"),
    [
        (SideEffects.NONE, False, False),
        (SideEffects.READ, False, False),
        (SideEffects.WRITE, False, True),
        (SideEffects.WRITE, True, False),
        (SideEffects.EXTERNAL, False, True),
        (SideEffects.EXTERNAL, True, False),
    ],
)
def test_a_call_is_unsafe_only_if_it_could_act_twice(side_effects: SideEffects, idempotent: bool, unsafe: bool) -> None:
    assert ToolInfo("tool", "builtin", "A tool.", side_effects, idempotent).unsafe == unsafe
