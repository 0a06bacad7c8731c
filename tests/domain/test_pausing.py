"""Long work comes to the same whoever does it, and however often it is put aside."""

import pytest

from app.domain.pausing import Pausing, at_once, within


def summed(numbers: list[int]) -> Pausing[int]:
    total = 0
    for number in numbers:
        total += number
        yield number
    return total


def test_work_that_is_done_at_once_comes_to_what_it_comes_to() -> None:
    assert at_once(summed([1, 2, 3])) == 6
    assert at_once(summed([])) == 0


@pytest.mark.parametrize(("most", "found"), [(6, 6), (5, None), (0, None)])
def test_work_that_takes_more_than_it_may_comes_to_nothing(most: int, found: int | None) -> None:
    assert within(summed([1, 2, 3]), most) == found


def test_what_it_raises_is_raised() -> None:
    def failing() -> Pausing[int]:
        yield 1
        raise KeyError("why")

    for do in (at_once, lambda work: within(work, 10)):
        with pytest.raises(KeyError, match="why"):
            do(failing())
