"""Levels of isolation in tests: tried once for a test run, and skipped with their reason where they do not start."""

from functools import cache

import pytest

from portico.adapters.tools.sandbox.levels import Sandbox, try_levels
from portico.domain.tools import IsolationLevel

NO_ISOLATION = "isolation cannot be tried here"


@cache
def opened_sandbox() -> Sandbox:
    """Return the levels that start here."""
    return Sandbox("bwrap", try_levels("bwrap"))


def require_level(sandbox: Sandbox, level: IsolationLevel) -> None:
    """Skip the test, with the reason, if the level does not start here."""
    state = sandbox.states.get(level)
    if state is not None and state.reason:
        pytest.skip(f"{NO_ISOLATION}: {level} does not start: {state.reason}")
