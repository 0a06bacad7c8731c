"""Status of an execution, folded from its history."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code
from portico.domain.journal.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    FallbackTransition,
    FlowStep,
    InferenceStart,
    LifecycleTransition,
    NodeStart,
    RetrievalStart,
    StepEnd,
    StepStart,
    StoredEvent,
    ToolEnd,
    ToolStart,
    VoteCast,
    VoteDecided,
)
from portico.domain.journal.outcomes import RecordedStep
from portico.domain.journal.step_key import step_number_of
from portico.domain.lifecycle import TERMINAL, State
from portico.domain.model_call import RULES
from portico.domain.value import value


@value
class ExecutionStatus:
    """State, progress, most recent error, the engine that was asked last, and the response if there is one.

    `entered_at` and `started_at`, the time at which it began to run, are in Unix seconds. `total_steps` counts the plan
    steps that have ended, the waves of a flow in which a node ended, or else the top-level inferences; `last_step` is
    the name of the last plan step, the key of the last node, or `round N`.
    A fork may begin at step 0 to `fork_points`. The execution may have recovered from the error.
    """

    entered_at: float
    state: State = State.INIT
    attempt: int = 1
    total_steps: int = 0
    last_step: str | None = None
    last_round: int = -1
    """Number of the top-level step of the last inference or wave that was counted."""
    last_error: Code | None = None
    response: SystemResponse | None = None
    started_at: float | None = None
    provider: str | None = None
    model: str | None = None
    fork_points: int = 0

    @property
    def ended(self) -> bool:
        """Return True in a terminal state."""
        return self.state in TERMINAL

    def apply(self, steps: Sequence[RecordedStep], events: Sequence[StoredEvent]) -> "ExecutionStatus":
        """Return the status after these steps and events."""
        entered_at, state, attempt, started_at = self.entered_at, self.state, self.attempt, self.started_at
        last_error, response, provider, model = self.last_error, self.response, self.provider, self.model
        relevant = [stored for stored in events if type(stored.event) in _RELEVANT]
        for stored in relevant:
            event = stored.event
            if type(event) is FallbackTransition:
                last_error = _CODES.get(event.reason, last_error)
            elif type(event) is LifecycleTransition:
                state, attempt, entered_at, response = event.to_state, event.attempt, stored.at, None
                if event.from_state is None:
                    started_at = stored.at
                elif event.from_state is State.VALIDATE:
                    last_error = _CODES.get(event.reason, last_error)
            elif type(event) is InferenceStart:
                provider, model = event.provider, event.model
            elif isinstance(event, _RESTING):
                response = event.response
                last_error = response.error.code if response.error else last_error
            elif isinstance(event, _MAY_FAIL):
                last_error = event.error_code or last_error
        counted = [stored for stored in relevant if type(stored.event) in _COUNTED]
        return ExecutionStatus(
            entered_at,
            state,
            attempt,
            *self._count(counted),
            last_error,
            response,
            started_at,
            provider,
            model,
            max(self.fork_points, _last_started(steps, counted)),
        )

    def _count(self, events: Sequence[StoredEvent]) -> tuple[int, str | None, int]:
        """Return `total_steps`, `last_step` and `last_round` after these events."""
        total, last_step, last_round = self.total_steps, self.last_step, self.last_round
        for stored in events:
            event = stored.event
            if type(event) is InferenceStart:
                number = _round(stored, event)
                if number > last_round:
                    total, last_round = total + 1, number
                    last_step = f"round {total}"
            elif type(event) is FlowStep and event.outcome == "continue":
                number, last_step = step_number_of(stored.anchor) or 0, event.node
                if number > last_round:
                    total, last_round = total + 1, number
            elif type(event) is StepStart and event.attempt > 1:
                total -= 1
            elif type(event) is StepEnd:
                total, last_step = total + 1, stored.correlation.step_name
        return total, last_step, last_round


def _round(stored: StoredEvent, start: InferenceStart) -> int:
    """Return the number of the top-level step that the inference is, or of the vote that it is for; -1 if of none."""
    is_round = stored.correlation.step_name is None and (start.replica is not None or stored.anchor.count("/") <= 1)
    return step_number_of(stored.anchor) or 0 if is_round else -1


def _last_started(steps: Sequence[RecordedStep], events: Sequence[StoredEvent]) -> int:
    """Return the highest number of the top-level steps that have an outcome, a start, or an open suspension."""
    keys: list[str] = [step.key for step in steps]
    for stored in events:
        if type(stored.event) in _STARTS:
            keys.append(stored.anchor)
        elif type(stored.event) is ExecutionSuspended:
            keys += [each.suspension_id for each in stored.event.suspensions]
    return max(filter(None, map(step_number_of, keys)), default=0)


_CODES: Mapping[str, Code] = MappingProxyType(
    {reason.value: rule.code for reason, rule in RULES.items()} | {code.lower(): code for code in Code}
)
"""Code of a failed attempt or of a rejected answer, by the reason of the transition that follows it."""
_RESTING = (ExecutionSuspended, ExecutionCompleted, ExecutionFailed, ExecutionCancelled)
_MAY_FAIL = (ToolEnd, StepEnd, VoteCast, VoteDecided)
_STARTS = frozenset({InferenceStart, ToolStart, StepStart, NodeStart, FlowStep, RetrievalStart})
_COUNTED = _STARTS | {StepEnd, ExecutionSuspended}
"""The events that begin or end a step, which the numbers of the status follow from."""
_RELEVANT = _COUNTED | {LifecycleTransition, FallbackTransition, *_RESTING, *_MAY_FAIL}
"""The events that change the status; most others end a stage or an attempt."""
