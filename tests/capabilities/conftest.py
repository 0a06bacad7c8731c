"""What is timed here is timed as the service runs it: what was there before is not looked through for garbage.

Before, in a test run, are all the tests that ran already, which takes a second to look through.
"""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def only_new_garbage() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()
