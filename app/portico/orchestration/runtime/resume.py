"""Suspension and resume: which suspension an answer belongs to, the step it becomes, and the transitions around it.

The lifecycle table has the edges EXECUTE → SUSPENDED and SUSPENDED → EXECUTE. The driver records the first with the
event that lists the open suspensions; the second is recorded here, once the last suspension has its answer.
"""

from collections.abc import Sequence
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from portico.domain.context.guards import GuardVerdict
from portico.domain.contract.response import Suspension
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.fingerprints import question_digest
from portico.domain.ids import SuspensionId, ToolCallId
from portico.domain.journal.events import RESUME_ANCHOR, ExecutionSuspended, LifecycleTransition
from portico.domain.journal.outcomes import Approver, RecordedStep, SuspensionAnswer
from portico.domain.journal.status import ExecutionStatus
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import payload_errors
from portico.domain.lifecycle import Lifecycle, State
from portico.domain.value import replace
from portico.orchestration.execution.execution import Execution
from portico.ports.journal import ExecutionHistory

MAX_ANSWERS: Final = 32
_OF_ONE: Final = ("tool_id", "payload")
"""Fields that a request with one answer gives."""


class GivenAnswer(BaseModel):
    """An answer to one open suspension, which the other fields select."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    payload: JsonValue = Field(description="The answer.")
    suspension_id: SuspensionId | None = Field(None, max_length=256, description="The suspension.")
    tool_call_id: ToolCallId | None = Field(None, max_length=256, description="The tool call that is suspended.")
    tool_id: str | None = Field(None, min_length=1, max_length=256, description="The tool that waits for the answer.")

    def selects(self, suspension: Suspension) -> bool:
        """Return True for a suspension that has all the names that are given."""
        return (
            self.suspension_id in {None, suspension.suspension_id}
            and self.tool_call_id in {None, suspension.tool_call_id}
            and self.tool_id in {None, suspension.tool_id}
        )


class ResumeRequest(BaseModel):
    """An answer to one open suspension, or several, which are accepted together."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tool_id: str | None = Field(
        None, min_length=1, max_length=256, description="The tool that waits for the answer; needed without `answers`."
    )
    payload: JsonValue = Field(None, description="The answer; needed without `answers`.")
    suspension_id: SuspensionId | None = Field(
        None, max_length=256, description="The suspension; needed if the tool has more than one."
    )
    answers: list[GivenAnswer] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ANSWERS,
        description="Answers to several open suspensions, instead of all else; either all are accepted or none.",
    )

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        given = self.model_fields_set
        if self.answers is None:
            missing = [name for name in _OF_ONE if name not in given]
            errors = [InitErrorDetails(type="missing", loc=(name,), input=None) for name in missing]
        else:
            fault = PydanticCustomError("value_error", "{error}", {"error": "does not go with answers"})
            others = given - {"answers"}
            errors = [InitErrorDetails(type=fault, loc=(name,), input=None) for name in sorted(others)]
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self

    @property
    def given(self) -> Sequence[GivenAnswer]:
        """Return the answers, one in either form."""
        one = GivenAnswer(payload=self.payload, suspension_id=self.suspension_id, tool_id=self.tool_id)
        return (one,) if self.answers is None else self.answers


def select_suspensions(suspensions: Sequence[Suspension], answers: Sequence[GivenAnswer]) -> list[Suspension]:
    """Return the open suspensions that the answers select, in the order of the answers.

    Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED) if none is open, (REQUEST_RESUME_MISMATCH) if an answer selects
    none of them, more than one, or the same as an earlier one.
    """
    if not suspensions:
        raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution has no open suspension")
    selected: list[Suspension] = []
    for index, answer in enumerate(answers):
        named = [each for each in suspensions if answer.selects(each)]
        fault = None
        if len(named) != 1:
            fault = "more than one open suspension; name its suspension_id" if named else "no open suspension"
        elif named[0] in selected:
            fault = "a suspension that an earlier answer selects"
        if fault is not None:
            which = f"answer {index + 1}" if len(answers) > 1 else "the answer"
            raise RequestFailure(Code.REQUEST_RESUME_MISMATCH, f"{which} selects {fault}")
        selected += named
    return selected


def require_answer(
    suspension: Suspension, payload: JsonValue, errors: Sequence[tuple[str, str]] = (), *, within: str = ""
) -> None:
    """Raise RequestFailure (REQUEST_INVALID) if the payload `within` that path is not an answer to the suspension.

    `errors` are those that only its pattern knows.
    """
    errors = payload_errors(suspension.kind, payload) or errors
    if errors:
        raise invalid_request(*[(within + field, message) for field, message in errors])


def answer_step(
    suspension: Suspension,
    payload: JsonValue,
    *,
    at: float,
    guards: tuple[GuardVerdict, ...] = (),
    is_untrusted: bool = False,
    by: tuple[Approver, ...] = (),
    expired: bool = False,
) -> RecordedStep:
    """Return the answer as the recorded step of its suspension."""
    key, kind, tool_id = StepKey(suspension.suspension_id), suspension.kind, suspension.tool_id
    answer = SuspensionAnswer(payload, guards, is_untrusted, by, expired)
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
