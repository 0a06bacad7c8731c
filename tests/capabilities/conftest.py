"""Objects that exist before a test are exempt from garbage collection, so `gc.collect()` in a test is fast."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def only_new_garbage() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()
