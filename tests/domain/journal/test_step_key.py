"""Step keys: construction, order, and the stored text."""

import orjson
import pytest

from portico.domain.journal.step_key import PLAN_KEY, PREPARE_KEY, ROOT, STOP_KEY, StepKey


def test_a_key_is_stored_hashed_and_compared_as_its_text() -> None:
    key = StepKey("2/1/0")
    assert key == "2/1/0"
    assert hash(key) == hash("2/1/0")
    assert {"2/1/0": "found"}[key] == "found"
    assert orjson.dumps([key]) == b'["2/1/0"]'
    assert f"{key}" == str(key) == "2/1/0"


def test_a_child_extends_the_path() -> None:
    assert ROOT.child(2) == "2"
    assert ROOT.child(2).child(1, 0) == "2/1/0"
    assert type(ROOT.child(2, 1)) is StepKey


@pytest.mark.parametrize(("key", "parent"), [("2/1/0", "2/1"), ("2/1", "2"), ("2", ""), ("plan", "")])
def test_a_parent_is_the_path_without_its_last_number(key: str, parent: str) -> None:
    assert StepKey(key).parent == parent
    assert type(StepKey(key).parent) is StepKey


@pytest.mark.parametrize(("key", "number"), [("0", 0), ("12/1/0", 12), ("plan", None), ("init", None), ("", None)])
def test_the_step_number_is_that_of_the_top_level_step(key: str, number: int | None) -> None:
    assert StepKey(key).step_number == number


def test_the_numbers_are_those_of_the_path() -> None:
    assert StepKey("10/2/3").numbers == (10, 2, 3)
    with pytest.raises(ValueError, match="plan"):
        _ = PLAN_KEY.numbers


@pytest.mark.parametrize(
    ("key", "expected"), [("3/0", True), ("3/1/0/0", True), ("3/1", False), ("3/10", False), ("0", False)]
)
def test_the_first_attempt_has_number_0_below_its_step(key: str, *, expected: bool) -> None:
    assert StepKey(key).is_first_attempt is expected


@pytest.mark.parametrize(
    ("key", "ancestors", "expected"),
    [
        ("2/1/0", ("2/1",), True),
        ("2/1", ("2/1",), True),
        ("2/10/0", ("2/1",), False),
        ("2/1/0", ("2/0", "2/1"), True),
        ("2/1/0", ("2/1/0/0",), False),
        ("2/1/0", (), False),
        ("plan", ("2",), False),
    ],
)
def test_a_key_is_within_itself_and_what_it_lies_below(key: str, ancestors: tuple[str, ...], *, expected: bool) -> None:
    assert StepKey(key).is_within(*map(StepKey, ancestors)) is expected


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("0", "1"), ("2", "10"), ("0/1/5", "1"), ("0/1/0", "0/1/1"), ("0/1/0/7/3", "0/1/1")],
)
def test_a_smaller_ordinal_precedes_a_larger_one(earlier: str, later: str) -> None:
    assert StepKey(earlier).precedes(StepKey(later))
    assert not StepKey(later).precedes(StepKey(earlier))


@pytest.mark.parametrize(
    ("one", "other"),
    [("0/0", "0/1"), ("0/0/5", "0/1/0"), ("3/2/0/1", "3/4/9"), ("0", "0"), ("0", "0/1"), ("0/1", "0/1/4")],
)
def test_branches_and_a_step_with_its_parts_do_not_precede_each_other(one: str, other: str) -> None:
    assert not StepKey(one).precedes(StepKey(other))
    assert not StepKey(other).precedes(StepKey(one))


def test_named_keys_have_their_stored_text() -> None:
    assert [PLAN_KEY, PREPARE_KEY, STOP_KEY] == ["plan", "prepare", "stop"]
