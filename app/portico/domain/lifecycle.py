"""Lifecycle of one execution: which state may follow which, one table per mode.

Theory of operation

1. Every execution starts in INIT at attempt 1 and ends in exactly one of COMPLETE, ERROR, CANCELLED.
2. Every live state may end in ERROR or CANCELLED; EXECUTE and SUSPENDED lead to each other in every mode.
3. All other edges are in `_EDGES`. Redundant mode votes instead of retrying, and a flow is not retried as a whole.
4. A retry is the edge VALIDATE→EXECUTE and nothing else; it increments `attempt`.
5. An edge that the table lacks is refused and changes nothing: it is a bug of the caller.

Only the outermost pattern moves the lifecycle. The deadline runs unless the execution is queued or SUSPENDED.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from portico.domain.failures import Code, OrchestrationFailure
from portico.domain.value import value


class Mode(StrEnum):
    """Pattern that a request runs."""

    CHAT = "chat"
    STRUCTURED = "structured"
    PLAN = "plan"
    REDUNDANT = "redundant"
    FLOW = "flow"


class State(StrEnum):
    """State of an execution."""

    INIT = "INIT"
    PLAN = "PLAN"
    PREPARE = "PREPARE"
    EXECUTE = "EXECUTE"
    SUSPENDED = "SUSPENDED"
    VALIDATE = "VALIDATE"
    COMPLETE = "COMPLETE"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"


TERMINAL = frozenset({State.COMPLETE, State.ERROR, State.CANCELLED})

_S = State
# fmt: off
_EDGES: Mapping[Mode, tuple[tuple[State, State], ...]] = {
    Mode.CHAT:       ((_S.INIT, _S.PREPARE), (_S.PREPARE, _S.EXECUTE),
                      (_S.EXECUTE, _S.COMPLETE), (_S.EXECUTE, _S.VALIDATE),
                      (_S.VALIDATE, _S.COMPLETE), (_S.VALIDATE, _S.EXECUTE)),
    Mode.STRUCTURED: ((_S.INIT, _S.PREPARE), (_S.PREPARE, _S.EXECUTE), (_S.EXECUTE, _S.VALIDATE),
                      (_S.VALIDATE, _S.COMPLETE), (_S.VALIDATE, _S.EXECUTE)),
    Mode.PLAN:       ((_S.INIT, _S.PLAN), (_S.PLAN, _S.PREPARE), (_S.PREPARE, _S.EXECUTE), (_S.EXECUTE, _S.VALIDATE),
                      (_S.VALIDATE, _S.COMPLETE), (_S.VALIDATE, _S.EXECUTE)),
    Mode.REDUNDANT:  ((_S.INIT, _S.PREPARE), (_S.PREPARE, _S.EXECUTE), (_S.EXECUTE, _S.VALIDATE),
                      (_S.VALIDATE, _S.COMPLETE)),
    Mode.FLOW:       ((_S.INIT, _S.PREPARE), (_S.PREPARE, _S.EXECUTE), (_S.EXECUTE, _S.VALIDATE),
                      (_S.VALIDATE, _S.COMPLETE)),
}
# fmt: on
SUSPENSION_EDGES = ((_S.EXECUTE, _S.SUSPENDED), (_S.SUSPENDED, _S.EXECUTE))
"""Edges to a suspension and back, in every mode. They belong to the record, so no replay matches them."""


def _table(edges: tuple[tuple[State, State], ...]) -> Mapping[State, frozenset[State]]:
    visited = {state for edge in (*edges, *SUSPENSION_EDGES) for state in edge} - TERMINAL
    following = {state: {_S.ERROR, _S.CANCELLED} for state in visited}
    for before, after in (*edges, *SUSPENSION_EDGES):
        following[before].add(after)
    return MappingProxyType({state: frozenset(following.get(state, ())) for state in State})


NEXT: Mapping[Mode, Mapping[State, frozenset[State]]] = MappingProxyType(
    {mode: _table(edges) for mode, edges in _EDGES.items()}
)


def max_transitions(mode: Mode, attempts: int, avoided: frozenset[State] = frozenset()) -> int:
    """Return the maximum number of state changes in that many attempts, from nothing to INIT and to the end.

    The `avoided` states are not entered, and the execution is never suspended.
    """
    return 1 + _longest(mode, _S.INIT, attempts - 1, avoided | {_S.SUSPENDED})


def _longest(mode: Mode, state: State, retries: int, avoided: frozenset[State]) -> int:
    after = [Lifecycle(mode, state).transition_to(to) for to in NEXT[mode][state] - avoided]
    walks = [(place.state, retries + 1 - place.attempt) for place in after]
    return max((1 + _longest(mode, to, left, avoided) for to, left in walks if left >= 0), default=0)


def was_left_suspended(edges: Iterable[tuple[State | None, State]]) -> bool:
    """Return whether an execution that took these edges is suspended, or went from there to its end."""
    suspended = False
    for before, after in edges:
        if State.SUSPENDED in (before, after):
            suspended = after is not State.EXECUTE
    return suspended


@value
class Lifecycle:
    """State of one execution in its mode's table."""

    mode: Mode
    state: State = State.INIT
    attempt: int = 1

    def transition_to(self, to: State) -> "Lifecycle":
        """Return the lifecycle after that edge.

        Raises: OrchestrationFailure (ORCHESTRATION_INVALID_TRANSITION) if the table has no such edge.
        """
        if to not in NEXT[self.mode][self.state]:
            raise OrchestrationFailure(
                Code.ORCHESTRATION_INVALID_TRANSITION, f"{self.mode} has no edge {self.state} to {to}"
            )
        retried = (self.state, to) == (State.VALIDATE, State.EXECUTE)
        return Lifecycle(self.mode, to, self.attempt + retried)
