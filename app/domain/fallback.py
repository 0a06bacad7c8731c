"""The provider-fallback machine: what one inference does when a provider fails.

Theory of operation

1. One machine serves one inference. It is never shared, and knows neither clocks nor providers: it counts.
2. Two counters stand beside the grid: `candidates_left` (not yet attempted) and `retries_spent` (on this candidate).
3. SELECTING takes the next candidate on PROVIDER_SUCCESS, while one is left; entering ATTEMPTING from there resets
   `retries_spent` to 0. With none left it is EXHAUSTED.
4. RETRYING goes back to ATTEMPTING on RETRYABLE_ERROR or PROVIDER_SUCCESS while a retry is left, and spends it; else
   it moves on to SELECTING. TIMEOUT there gives this candidate up at once.
5. SUCCEEDED, EXHAUSTED and ABORTED are terminal: they ignore every event, uncounted.
6. A blank cell is refused with `InvalidTransition` and changes nothing: a bug in the driver.

With n candidates and r retries each, a candidate is left after at most r+1 visits of ATTEMPTING and of RETRYING and
one of SELECTING, so every event sequence is terminal within n(2r+3)+2 state changes. The pipeline seed's own bounds,
2n+1 and n(2r+2)+1, are both exceeded by its own table.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where one inference stands with its providers."""

    IDLE = "IDLE"
    SELECTING = "SELECTING"
    ATTEMPTING = "ATTEMPTING"
    RETRYING = "RETRYING"
    SUCCEEDED = "SUCCEEDED"
    EXHAUSTED = "EXHAUSTED"
    ABORTED = "ABORTED"


class Event(StrEnum):
    """What can happen to it."""

    START = "START"
    PROVIDER_SUCCESS = "PROVIDER_SUCCESS"
    RETRYABLE_ERROR = "RETRYABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"
    USER_ABORT = "USER_ABORT"
    TIMEOUT = "TIMEOUT"


class InvalidTransition(RuntimeError):  # noqa: N818 - the pipeline seed's name
    """The driver fired an event that the state has no cell for."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{state} has no cell for {event}")
        self.state = state
        self.event = event


TERMINAL = frozenset({State.SUCCEEDED, State.EXHAUSTED, State.ABORTED})


class FallbackFsm:
    """One inference's walk through the grid.

    `transitions` counts state changes. Promises to be terminal within `bound` of them, whatever is fired.
    """

    __slots__ = ("candidates_left", "max_retries", "retries_spent", "state", "transitions")

    def __init__(self, candidates: int, max_retries: int) -> None:
        if candidates < 0 or max_retries < 0:
            raise ValueError("candidates and max_retries must not be negative")
        self.candidates_left = candidates
        self.max_retries = max_retries
        self.retries_spent = 0
        self.state = State.IDLE
        self.transitions = 0

    def fire(self, event: Event) -> State:
        """Takes the cell's edge and returns the new state.

        Raises: InvalidTransition where the grid has no cell; nothing is changed then.
        """
        cell = TABLE[self.state].get(event)
        if cell is None:
            raise InvalidTransition(self.state, event)
        if self.state not in TERMINAL:
            self.state = cell if isinstance(cell, State) else cell(self)
            self.transitions += 1
        return self.state

    @property
    def retry_left(self) -> bool:
        """Whether RETRYING would go back to this candidate."""
        return self.retries_spent < self.max_retries


def max_transitions(candidates: int, max_retries: int) -> int:
    """The most state changes any event sequence can cause."""
    return candidates * (2 * max_retries + 3) + 2


def max_transitions_if_answered(candidates: int, max_retries: int) -> int:
    """The most state changes of an event sequence that ends in SUCCEEDED; there is none without a candidate."""
    return candidates * (2 * max_retries + 3)


def max_attempts(candidates: int, max_retries: int) -> int:
    """The most visits of ATTEMPTING that any event sequence can cause."""
    return candidates * (max_retries + 1)


def next_candidate(fsm: FallbackFsm) -> State:
    """ATTEMPTING with fresh retries while a candidate is left, else EXHAUSTED."""
    if fsm.candidates_left == 0:
        return State.EXHAUSTED
    fsm.candidates_left -= 1
    fsm.retries_spent = 0
    return State.ATTEMPTING


def retry_or_next(fsm: FallbackFsm) -> State:
    """ATTEMPTING while a retry is left, which it spends, else SELECTING."""
    if not fsm.retry_left:
        return State.SELECTING
    fsm.retries_spent += 1
    return State.ATTEMPTING


Guard = Callable[[FallbackFsm], State]
Cell = State | Guard


def _stays(state: State) -> Mapping[Event, Cell]:
    return MappingProxyType(dict.fromkeys(Event, state))


_S, _E = State, Event
# fmt: off
TABLE: Mapping[State, Mapping[Event, Cell]] = MappingProxyType({
    _S.IDLE:       MappingProxyType({_E.START:            _S.SELECTING,
                                     _E.USER_ABORT:       _S.ABORTED,
                                     _E.TIMEOUT:          _S.ABORTED}),
    _S.SELECTING:  MappingProxyType({_E.PROVIDER_SUCCESS: next_candidate,
                                     _E.FATAL_ERROR:      _S.EXHAUSTED,
                                     _E.USER_ABORT:       _S.ABORTED,
                                     _E.TIMEOUT:          _S.ABORTED}),
    _S.ATTEMPTING: MappingProxyType({_E.PROVIDER_SUCCESS: _S.SUCCEEDED,
                                     _E.RETRYABLE_ERROR:  _S.RETRYING,
                                     _E.FATAL_ERROR:      _S.ABORTED,
                                     _E.USER_ABORT:       _S.ABORTED,
                                     _E.TIMEOUT:          _S.RETRYING}),
    _S.RETRYING:   MappingProxyType({_E.PROVIDER_SUCCESS: retry_or_next,
                                     _E.RETRYABLE_ERROR:  retry_or_next,
                                     _E.FATAL_ERROR:      _S.ABORTED,
                                     _E.USER_ABORT:       _S.ABORTED,
                                     _E.TIMEOUT:          _S.SELECTING}),
    _S.SUCCEEDED:  _stays(_S.SUCCEEDED),
    _S.EXHAUSTED:  _stays(_S.EXHAUSTED),
    _S.ABORTED:    _stays(_S.ABORTED),
})
# fmt: on
