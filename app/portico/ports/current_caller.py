"""The caller for whom other people's code runs now: tools, steps, rules, planners, nodes, and what they call."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from portico.domain.tools import Caller

CALLER: Final[ContextVar[Caller | None]] = ContextVar("portico_caller", default=None)
"""The caller of the code that runs now; None outside a call."""


def current_caller() -> Caller:
    """Return for whom the code acts that runs now, also on a thread of its own. Raises: LookupError outside a call."""
    caller = CALLER.get()
    if caller is None:
        raise LookupError("there is no caller outside of an execution")
    return caller


@contextmanager
def acting_for(caller: Caller | None) -> Iterator[None]:
    """Let the code within act for the caller."""
    token = CALLER.set(caller)
    try:
        yield
    finally:
        CALLER.reset(token)
