"""What every test runs on: virtual time, a clock that follows it, and chance that repeats."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import settings

from tests.support.entropy import SeededEntropy
from tests.support.postgres import postgres_server
from tests.support.virtual_time import VirtualClock, VirtualTimeLoop

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"virtual": VirtualTimeLoop}


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server:
        yield server.url


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def entropy() -> SeededEntropy:
    return SeededEntropy(0)
