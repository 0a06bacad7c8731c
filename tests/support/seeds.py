"""Seeds of randomised tests: a tenth of them in every run, all of them and a new one in `make torture`."""

import os

import pytest

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
