"""Answers to approvals: changed arguments, several users who must agree, and grants for later calls.

An answer approves the arguments that it carries, without any those of the model. Where more than one user must agree,
they have to approve the same arguments: an answer with others than those approved so far begins anew, so no one
approves a change unseen. Changed arguments never need fewer users than those of the model, but maybe more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue

from portico.domain.access.principal import Principal
from portico.domain.access.tool_policy import USUAL_TERMS, ApprovalTerms
from portico.domain.contract.response import GivenApprovals, Suspension
from portico.domain.failures import Code, RequestFailure, invalid_request
from portico.domain.fingerprints import digest
from portico.domain.ids import GrantId, UserId
from portico.domain.journal.events import (
    RESUME_ANCHOR,
    ApprovalGiven,
    CorrelationContext,
    Event,
    ExecutionResumed,
    GuardEnd,
)
from portico.domain.journal.outcomes import Approver, CallDecided, RecordedStep, SuspensionAnswer
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import APPROVAL_DECISIONS, EXPIRY, Deny, GrantTerms
from portico.domain.value import value
from portico.orchestration.execution.call_answer import decided_by
from portico.orchestration.execution.environment import Environment, facts_of
from portico.orchestration.runtime.resume import answer_step
from portico.ports.grants import Grant
from portico.ports.journal import ExecutionHistory
from portico.ports.storage import SuspensionAnswers

NO_USER: Final = ""
"""`resumed_by` of an approval that has expired."""
_GRANTS_NOTHING = "the rule that asks for this approval lets no later calls run"


@value
class ApprovalConfig:
    """Permissions of the configuration: the user who asked for a call may approve it, arguments may be changed."""

    self_approval: bool = True
    edits: bool = True


USUAL_APPROVALS: Final = ApprovalConfig()


@value
class GivenApproval:
    """Answer to an approval: who has decided so far, and the grant that it gives.

    With `pending` the suspension stays open, changed like that, until more users have approved.
    """

    by: tuple[Approver, ...]
    pending: Suspension | None = None
    event: ApprovalGiven | None = None
    grant: Grant | None = None


class ApprovalCheck:
    """Check of a principal's answer to the approval of a call; `within` is the path of the answer in the request."""

    def __init__(
        self,
        environment: Environment,
        history: ExecutionHistory,
        principal: Principal,
        config: ApprovalConfig,
        *,
        within: str = "",
    ) -> None:
        self._registry = environment.tool_registry
        self._entropy = environment.entropy
        self._now = environment.clock.now()
        self._history = history
        self._user = principal.user
        self._may_edit = config.edits
        self._within = within

    def check(self, suspension: Suspension, payload: JsonValue) -> GivenApproval:
        """Return what a valid answer amounts to.

        Raises: RequestFailure (REQUEST_INVALID) for arguments that may not run and a grant that may not be given,
        (REQUEST_RESUME_MISMATCH) if the user has approved the same already.
        """
        answer = APPROVAL_DECISIONS.validate_python(payload)
        own = Approver(self._user, self._now, answer.reason)
        if isinstance(answer, Deny):
            return GivenApproval((own,))
        call = _call_of(suspension)
        arguments = call["arguments"] if answer.arguments is None else answer.arguments
        is_edit = digest(arguments) != digest(call["arguments"])
        decided = self._decision(StepKey(suspension.suspension_id))
        asked = USUAL_TERMS if decided is None else decided.terms
        edited = self._check_edit(suspension, call["tool"], arguments) if is_edit else asked
        needed = max(asked.approvers, edited.approvers)
        given = self._earlier(suspension, arguments, call["arguments"])
        if any(each.user == self._user for each in given):
            raise RequestFailure(
                Code.REQUEST_RESUME_MISMATCH, "you have approved this call already; another user must approve it, too"
            )
        by = (*given, own)
        grant = None
        if answer.grant is not None:
            self._require_grantable(answer.grant, needed=needed, granting=asked.grants and edited.grants)
            digest_of_tool = "" if decided is None else decided.tool_digest
            grant = self._grant(suspension, call["tool"], arguments, answer.grant, digest_of_tool)
        if needed == 1:
            return GivenApproval(by, grant=grant)
        event = ApprovalGiven(suspension.suspension_id, self._user, len(by), needed)
        if len(by) >= needed:
            return GivenApproval(by, event=event)
        shown = GivenApprovals(needed=needed, given=decided_by(by), arguments=arguments if is_edit else None)
        return GivenApproval(by, suspension.model_copy(update={"approvals": shown}), event)

    def _decision(self, question: StepKey) -> CallDecided | None:
        """Return the recorded decision that a person is asked about; None for a question without one."""
        for key in (question.decision(0), question.parent.parent.decision(question.numbers[-1])):
            step = self._history.steps.get(key)
            if step is not None and isinstance(step.outcome, CallDecided):
                return step.outcome
        return None

    def _check_edit(self, suspension: Suspension, tool: str, arguments: Mapping[str, Any]) -> ApprovalTerms:
        """Return the terms of the changed arguments. Raises: RequestFailure (REQUEST_INVALID)."""
        if not self._may_edit:
            raise self._invalid(("arguments", "must be those of the call: policy.edit_on_approve is false"))
        if self._registry.get(tool) is None:
            raise self._invalid(("arguments", "cannot be checked, since the tool is not there any more"))
        violations = self._registry.violations(tool, arguments)
        if violations:
            raise self._invalid(*violations)
        policy = self._registry.policy
        caller = facts_of(self._history.header, None).caller.acting_as(suspension.agent)
        if policy.denies(tool, arguments, caller):
            raise self._invalid(("arguments", "are refused by a policy of the service"))
        return policy.approval_terms(tool, arguments, caller) or USUAL_TERMS

    def _earlier(
        self, suspension: Suspension, arguments: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> tuple[Approver, ...]:
        """Return who has approved these arguments so far."""
        approvals = suspension.approvals
        if approvals is None:
            return ()
        approved = asked if approvals.arguments is None else approvals.arguments
        if digest(approved) != digest(arguments):
            return ()
        return tuple([Approver(each.user, each.at.timestamp(), each.reason) for each in approvals.given])

    def _require_grantable(self, terms: GrantTerms, *, needed: int, granting: bool) -> None:
        if needed > 1:
            raise self._invalid(("grant", "does not go with a call that more than one user must approve"))
        if not granting:
            raise self._invalid(("grant", _GRANTS_NOTHING))
        if terms.scope == "session" and self._history.header.request.session_id is None:
            raise self._invalid(("grant.for", "must be execution: the execution has no session"))

    def _grant(
        self, suspension: Suspension, tool: str, arguments: Mapping[str, Any], terms: GrantTerms, tool_digest: str
    ) -> Grant:
        header = self._history.header
        return Grant(
            grant_id=GrantId(self._entropy.uuid7()),
            tenant=header.tenant,
            user=header.user,
            tool=tool,
            tool_digest=tool_digest,
            scope=terms.scope,
            execution_id=header.execution_id,
            request_id=header.request_id,
            session_id=header.request.session_id,
            agent=suspension.agent,
            arguments_digest=digest(arguments) if terms.match == "arguments" else None,
            granted_by=self._user,
            granted_at=self._now,
            expires_at=self._now + terms.seconds,
        )

    def _invalid(self, *errors: tuple[str, str]) -> RequestFailure:
        return invalid_request(*[(f"{self._within}payload.{field}", message) for field, message in errors])


def _call_of(suspension: Suspension) -> Mapping[str, Any]:
    """Return the tool and the arguments of the call that an approval is about."""
    assert isinstance(suspension.value, dict)  # noqa: S101 - an approval is about a call
    return suspension.value


class CollectedAnswers:
    """The answers of one request to suspensions of one execution, with their events in order."""

    def __init__(self, user: UserId, correlation: CorrelationContext) -> None:
        self._user = user
        self._correlation = correlation
        self._steps: list[RecordedStep] = []
        self._changed: list[Suspension] = []
        self._grants: list[Grant] = []
        self._events: list[Event] = []

    def add(self, suspension: Suspension, step: RecordedStep, given: GivenApproval | None) -> None:
        """Add the answer that the step records, unless other users must approve, too."""
        assert isinstance(step.outcome, SuspensionAnswer)  # noqa: S101 - the only outcome of a question
        self._events += [GuardEnd(each.guard, each.action, each.tripped) for each in step.outcome.guards]
        if given is not None and given.event is not None:
            self._events.append(given.event)
        if given is not None and given.pending is not None:
            self._changed.append(given.pending)
            return
        if given is not None and given.grant is not None:
            self._grants.append(given.grant)
        self._steps.append(step)
        resumed = ExecutionResumed(suspension.suspension_id, suspension.kind, suspension.tool_id, self._user)
        self._events.append(resumed)

    def answers(self) -> SuspensionAnswers:
        """Return all answers."""
        events = [(RESUME_ANCHOR, self._correlation, event) for event in self._events]
        return SuspensionAnswers(self._steps, events, self._changed, self._grants)


def expiry_answers(expired: Sequence[Suspension], correlation: CorrelationContext, now: float) -> SuspensionAnswers:
    """Return the answers to approvals that were not given in time: the calls are denied, at `now` in Unix seconds."""
    steps = [answer_step(each, dict(EXPIRY), at=now, expired=True) for each in expired]
    events = [ExecutionResumed(each.suspension_id, each.kind, each.tool_id, NO_USER) for each in expired]
    return SuspensionAnswers(steps, [(RESUME_ANCHOR, correlation, event) for event in events], expired=True)
