"""What every test runs on: virtual time, a clock that follows it, and entropy that repeats."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping

import pytest

from tests.support.entropy import SeededEntropy
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    return SeededEntropy(0)
