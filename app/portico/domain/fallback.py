"""Provider-fallback machine: what one inference does when a provider fails.

Theory of operation

1. One machine serves one inference. It is never shared, and knows neither clocks nor providers: it counts.
2. Two counters belong to the grid: `candidates_left` (not yet attempted) and `retries_spent` (on this candidate).
3. SELECTING takes the next candidate on PROVIDER_SUCCESS while one is left; entering ATTEMPTING from there resets
   `retries_spent` to 0. With none left it goes to EXHAUSTED.
4. RETRYING goes back to ATTEMPTING on RETRYABLE_ERROR or PROVIDER_SUCCESS while a retry is left, and spends it;
   otherwise it goes to SELECTING. TIMEOUT there gives up the candidate at once.
5. SUCCEEDED, EXHAUSTED and ABORTED are terminal: they ignore every event, uncounted.
6. A list of candidates for a cause of failure replaces those that are left, once for each cause; n counts those of
   all lists. An engine with several deployments has a candidate for each that may be asked, and n counts these. The
   number that is left may also fall, when an engine is given up with all of its deployments.
7. A blank cell is refused with `InvalidTransition` and changes nothing: it is a bug of the driver.

With n candidates and r retries each, a candidate is left after at most r+1 visits of ATTEMPTING and of RETRYING and
one of SELECTING, so every event sequence is terminal within n(2r+3)+2 state changes. The pipeline seed's own bounds,
2n+1 and n(2r+2)+1, are both exceeded by its own table.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """State of the fallback of one inference."""

    IDLE = "IDLE"
    SELECTING = "SELECTING"
    ATTEMPTING = "ATTEMPTING"
    RETRYING = "RETRYING"
    SUCCEEDED = "SUCCEEDED"
    EXHAUSTED = "EXHAUSTED"
    ABORTED = "ABORTED"


class Event(StrEnum):
    """Event of the fallback machine."""

    START = "START"
    PROVIDER_SUCCESS = "PROVIDER_SUCCESS"
    RETRYABLE_ERROR = "RETRYABLE_ERROR"
    FATAL_ERROR = "FATAL_ERROR"
    USER_ABORT = "USER_ABORT"
    TIMEOUT = "TIMEOUT"


class InvalidTransition(RuntimeError):  # noqa: N818 - the pipeline seed's name
    """Error of a driver that fired an event for which the state has no cell."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"{state} has no cell for {event}")
        self.state = state
        self.event = event


TERMINAL = frozenset({State.SUCCEEDED, State.EXHAUSTED, State.ABORTED})


class FallbackFsm:
    """Walk of one inference through the grid.

    `transitions` counts state changes. The machine is terminal within `max_transitions` of them, whichever events are
    fired.
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
        """Take the cell's edge and return the new state.

        Raises: InvalidTransition if the grid has no cell; nothing is changed then.
        """
        cell = TABLE[self.state].get(event)
        if cell is None:
            raise InvalidTransition(self.state, event)
        if self.state not in TERMINAL:
            self.state = cell if isinstance(cell, State) else cell(self)
            self.transitions += 1
        return self.state

    def replace_candidates(self, candidates: int) -> None:
        """Continue with so many candidates instead of those that are left."""
        self.candidates_left = candidates

    @property
    def retry_left(self) -> bool:
        """Return True if RETRYING would go back to this candidate."""
        return self.retries_spent < self.max_retries


def max_transitions(candidates: int, max_retries: int) -> int:
    """Return the maximum number of state changes that any event sequence can cause."""
    return candidates * (2 * max_retries + 3) + 2


def max_transitions_if_answered(candidates: int, max_retries: int) -> int:
    """Return the maximum number of state changes of an event sequence that ends in SUCCEEDED.

    There is no such sequence without a candidate.
    """
    return candidates * (2 * max_retries + 3)


def max_attempts(candidates: int, max_retries: int) -> int:
    """Return the maximum number of visits of ATTEMPTING that any event sequence can cause."""
    return candidates * (max_retries + 1)


def next_candidate(fsm: FallbackFsm) -> State:
    """Return ATTEMPTING with fresh retries while a candidate is left, otherwise EXHAUSTED."""
    if fsm.candidates_left == 0:
        return State.EXHAUSTED
    fsm.candidates_left -= 1
    fsm.retries_spent = 0
    return State.ATTEMPTING


def retry_or_next(fsm: FallbackFsm) -> State:
    """Return ATTEMPTING while a retry is left, and spend it; otherwise SELECTING."""
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
