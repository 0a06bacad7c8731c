"""How a suspended execution gets the answers that it waits for."""

from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.contract.response import Suspension
from app.domain.failures import Code, RequestFailure
from app.domain.fingerprints import question_digest
from app.domain.journal.outcomes import RecordedStep, SuspensionAnswer
from app.domain.suspensions import payload_errors


def select_suspension(asked: Sequence[Suspension], tool_id: str, suspension_id: str | None) -> Suspension:
    """The one suspension that is answered.

    Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED) when nothing is suspended, (REQUEST_RESUME_MISMATCH) when none,
    or more than one, is meant.
    """
    if not asked:
        raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution waits for nothing")
    meant = [each for each in asked if each.tool_id == tool_id and suspension_id in {None, each.suspension_id}]
    if len(meant) != 1:
        what = "more than one open question, name its suspension_id" if meant else "no open question"
        raise RequestFailure(Code.REQUEST_RESUME_MISMATCH, f"tool_id and suspension_id name {what}")
    return meant[0]


def answer_step(suspension: Suspension, payload: JsonValue, *, at: float) -> RecordedStep:
    """The answer as the outcome of its step.

    Raises: RequestFailure (REQUEST_INVALID) for a payload that is no answer to this kind of question.
    """
    faults = payload_errors(suspension.kind, payload)
    if faults:
        errors = [{"field": field, "message": message} for field, message in faults]
        raise RequestFailure(
            Code.REQUEST_INVALID, "; ".join(f"{field}: {what}" for field, what in faults), {"errors": errors}
        )
    key, kind, tool_id = suspension.suspension_id, suspension.kind, suspension.tool_id
    return RecordedStep(key, question_digest(key, kind, tool_id, suspension.value), SuspensionAnswer(payload), at)


RESUME_ANCHOR = "resume"
"""The anchor of what is told of a resume, which belongs to no step."""
