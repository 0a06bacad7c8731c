"""Answers of persons about calls: who decided what, and the arguments that they changed."""

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson

from portico.domain.contract.messages import ToolCall
from portico.domain.contract.response import DecidedBy, DecisionMade, DecisionVerdict
from portico.domain.fingerprints import digest
from portico.domain.journal.outcomes import Approver, GrantUsed, SuspensionAnswer
from portico.domain.journal.suspensions import Approve, Deny
from portico.domain.value import value


@value
class CallAnswer:
    """Answer about a call: the decision, and when it was recorded, in Unix seconds.

    `original` is the call as the model made it, if a person changed its arguments.
    """

    at: float
    decision: DecisionMade
    original: ToolCall | None = None


def person_answer(call: ToolCall, outcome: SuspensionAnswer, answer: Approve | Deny, at: float) -> CallAnswer:
    """Return what persons have decided about the call."""
    is_edit = isinstance(answer, Approve) and _is_edit(answer, call)
    verdict = DecisionVerdict.APPROVED
    if isinstance(answer, Deny):
        verdict = DecisionVerdict.EXPIRED if outcome.expired else DecisionVerdict.DENIED
    decision = DecisionMade(verdict=verdict, edited=is_edit, by=decided_by(outcome.by))
    return CallAnswer(at, decision, call if is_edit else None)


def _is_edit(answer: Approve, call: ToolCall) -> bool:
    """Return True if the answer has other arguments; numbers and booleans that Python takes for equal differ."""
    return answer.arguments is not None and digest(answer.arguments) != digest(call.arguments)


def granted_answer(grant: GrantUsed, at: float) -> CallAnswer:
    """Return what the user who gave the grant has decided about a call that it covers."""
    assert grant.granted_by is not None and grant.granted_at is not None  # noqa: S101, PT018 - of a grant that was used
    by = decided_by([Approver(grant.granted_by, grant.granted_at)])
    return CallAnswer(at, DecisionMade(verdict=DecisionVerdict.GRANTED, by=by, grant_id=grant.grant_id))


def decided_by(approvers: Sequence[Approver]) -> list[DecidedBy]:
    """Return the users as clients see them."""
    return [
        DecidedBy(user=each.user, at=datetime.fromtimestamp(each.at, UTC), reason=each.reason) for each in approvers
    ]


def marked_result(answer: CallAnswer | None, call: ToolCall, result: str) -> str:
    """Return the result of a call as the model reads it: it says so if the arguments are not those of the model."""
    if answer is None or answer.original is None:
        return result
    return f"[A person changed the arguments to {orjson.dumps(call.arguments).decode()}.] {result}"
