"""Seeds of randomised tests: a tenth of them in every run, all of them and a new one in `make torture`."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
import pytest

Test = TypeVar("Test", bound=Callable[..., object])

NEW_SEED = "TORTURE_SEED"
"""Environment variable with the seed that is new in this run; `make torture` sets and prints it."""


def seeds(count: int) -> list[object]:
    """Return the values of a test parameter that runs over `count` seeds.

    Every tenth seed is marked `seeded` and part of each run. The others are marked `torture`, and so is the new seed
    of this run if there is one.
    """
    fixed = [
        pytest.param(seed, marks=pytest.mark.torture if seed % 10 else pytest.mark.seeded) for seed in range(count)
    ]
    return [*fixed, *(pytest.param(seed, marks=pytest.mark.torture, id=f"new-{seed}") for seed in new_seeds())]


def new_seeds() -> list[int]:
    """Return the new seed of this run, or nothing if no seed is set."""
    return [int(os.environ[NEW_SEED])] if NEW_SEED in os.environ else []


def randomised(examples: int, **options: Any) -> Callable[[Test], Test]:
    """Return a decorator for a test of random examples, put above `hypothesis.given`.

    Every run tries a tenth of the examples, the same ones each time; `make torture` tries all of them, by its new seed.
    """
    new = new_seeds()

    def decorate(test: Test) -> Test:
        chosen = examples if new else max(examples // 10, 5)
        settings = hypothesis.settings(max_examples=chosen, derandomize=not new, deadline=None, **options)
        test = settings(test)
        for seed in new:
            test = hypothesis.seed(seed)(test)
        return pytest.mark.seeded(test)

    return decorate
