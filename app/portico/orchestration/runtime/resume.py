"""Suspension and resume: which suspension an answer belongs to, the step it becomes, and the transitions around it.

The lifecycle table has the edges EXECUTE → SUSPENDED and SUSPENDED → EXECUTE. The driver records the first with the
event that lists the open suspensions; the second is recorded here, once the last suspension has its answer.
"""

from collections.abc import Sequence
from dataclasses import replace

from pydantic import JsonValue

from portico.domain.context.guards import GuardVerdict
from portico.domain.contract.response import Suspension
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.fingerprints import question_digest
from portico.domain.ids import SuspensionId
from portico.domain.journal.events import RESUME_ANCHOR, ExecutionSuspended, LifecycleTransition
from portico.domain.journal.outcomes import RecordedStep, SuspensionAnswer
from portico.domain.journal.status import ExecutionStatus
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import payload_errors
from portico.domain.lifecycle import Lifecycle, State
from portico.orchestration.execution.execution import Execution
from portico.ports.journal import ExecutionHistory


def select_suspension(
    suspensions: Sequence[Suspension], tool_id: str, suspension_id: SuspensionId | None
) -> Suspension:
    """Return the one open suspension that an answer names.

    Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED) if none is open, (REQUEST_RESUME_MISMATCH) if it names none of
    them, or more than one.
    """
    if not suspensions:
        raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution has no open suspension")
    named = [each for each in suspensions if each.tool_id == tool_id and suspension_id in {None, each.suspension_id}]
    if len(named) != 1:
        what = "more than one open suspension; name its suspension_id" if named else "no open suspension"
        raise RequestFailure(Code.REQUEST_RESUME_MISMATCH, f"tool_id and suspension_id name {what}")
    return named[0]


def answer_step(
    suspension: Suspension,
    payload: JsonValue,
    *,
    at: float,
    errors: Sequence[tuple[str, str]] = (),
    guards: tuple[GuardVerdict, ...] = (),
) -> RecordedStep:
    """Return the answer as the recorded step of its suspension; `errors` are those that only its pattern knows.

    Raises: RequestFailure (REQUEST_INVALID) if the payload is not an answer to this suspension.
    """
    errors = payload_errors(suspension.kind, payload) or errors
    if errors:
        raise invalid_request(*errors)
    key, kind, tool_id = StepKey(suspension.suspension_id), suspension.kind, suspension.tool_id
    answer = SuspensionAnswer(payload, guards)
    return RecordedStep(key, question_digest(key, kind, tool_id, suspension.value), answer, at)


def status_of(history: ExecutionHistory) -> ExecutionStatus:
    """Return the status that the history leads to."""
    return ExecutionStatus(history.header.created_at).apply(list(history.steps.values()), history.events)


def resume_if_answered(execution: Execution, history: ExecutionHistory) -> None:
    """Record the transition from SUSPENDED to EXECUTE if the history ends in SUSPENDED and no suspension is open."""
    status = status_of(history)
    if status.state is not State.SUSPENDED:
        return
    resumed = Lifecycle(history.header.mode, status.state, status.attempt).transition_to(State.EXECUTE)
    transition = LifecycleTransition(status.state, resumed.state, resumed.attempt, "resumed")
    execution.recorder.record(RESUME_ANCHOR, execution.correlation, transition)
    execution.recorder.commit()
    execution.recorder.cursor.mark_resumed()


def as_suspended(history: ExecutionHistory) -> ExecutionHistory:
    """Return a suspended history without the answers that were recorded since; any other history unchanged."""
    if status_of(history).state is not State.SUSPENDED:
        return history
    suspended = next(each.event for each in reversed(history.events) if isinstance(each.event, ExecutionSuspended))
    answered = {StepKey(each.suspension_id) for each in suspended.suspensions}
    return replace(history, steps={key: step for key, step in history.steps.items() if key not in answered})
