"""Permission of tool calls: what policy decides about each, recorded, and what a person answers.

Decision n of call k is recorded under `k/decision/n`. A replay reads the decisions and never decides anew. A call that
has not run when its execution is continued is decided again; if that decision is stricter, or if the tool behind an
open or approved question has changed, it is recorded behind the earlier one and holds. Every decision that asks has a
question of its own, so an approval belongs to one call, its arguments, and one definition of its tool.

A grant that a person gave with an earlier answer may stand in for an answer. Whether one did is recorded under
`k/decision/n/0`. It is looked for only where there can be one: in a session, and behind an answer that gave one.
"""

from collections.abc import Callable

from pydantic import JsonValue

from portico.capabilities.tools.policy import NOT_PERMITTED
from portico.domain.access.tool_policy import ApprovalReason, CallCircumstances, CallVerdict, PolicyDecision
from portico.domain.contract.messages import ToolCall, is_untrusted_text
from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code
from portico.domain.fingerprints import digest
from portico.domain.journal.events import CorrelationContext
from portico.domain.journal.outcomes import CallDecided, GrantUsed, Outcome, SuspensionAnswer
from portico.domain.journal.step_key import StepKey
from portico.domain.journal.suspensions import APPROVAL_DECISIONS, Deny, denial_text
from portico.domain.tools import OfferedTool
from portico.domain.value import replace
from portico.orchestration.execution.branch_settings import BranchSettings
from portico.orchestration.execution.call_answer import granted_answer, person_answer
from portico.orchestration.execution.effect import Effect, SuspensionRequest
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.progress import RunProgress
from portico.orchestration.execution.tool_call_state import ToolCallState
from portico.orchestration.execution.tool_calls.grant_use import GrantUse


class CallPermissions:
    """Permissions of the calls of one branch."""

    def __init__(self, execution: Execution, settings: BranchSettings, progress: RunProgress) -> None:
        self.settings = settings
        """The settings of the branch."""
        self.execution = execution
        """The execution of the branch."""
        self._progress = progress

    async def permit(self, state: ToolCallState, offered: OfferedTool, call_key: StepKey) -> bool:
        """Return True if the call may run; one that may not has its result. Raises: BranchSuspended while it waits."""
        if not offered.decided:
            return self._permit_undecided(state, offered, call_key)
        key = call_key.child(0)
        number, decision = await self._decision(state, offered, key)
        if decision.verdict is CallVerdict.DENY:
            state.refuse(NOT_PERMITTED, Code.TOOL_EXECUTION_FAILED)
            return False
        if decision.verdict is CallVerdict.ASK:
            is_granted = decision.grantable and await self._is_granted(state, key, number, decision)
            if not is_granted and not self._is_approved(state, _question_key(key, number), decision):
                return False
        state.granted_digest = decision.tool_digest
        return True

    def _permit_undecided(self, state: ToolCallState, offered: OfferedTool, call_key: StepKey) -> bool:
        """Return True for a call that no policy decides; records from before it name those that wait for a person."""
        state.granted_digest = offered.digest
        is_repeated = offered.unsafe and self._has_failed(state, call_key)
        if offered.agent or not (offered.approval or is_repeated):
            return True
        reason = ApprovalReason.REPEATED if is_repeated else ApprovalReason.TOOL
        return self._is_approved(state, call_key.child(0), CallDecided(CallVerdict.ASK, offered.digest, reason))

    def _has_failed(self, state: ToolCallState, call_key: StepKey) -> bool:
        """Return True if the same call has failed in a step before that of this call."""
        barriers = (*self.settings.barriers, call_key)
        return self.execution.ledger.tool_calls.has_failed(state.call, before=call_key.parent, barriers=barriers)

    async def _decision(self, state: ToolCallState, offered: OfferedTool, key: StepKey) -> tuple[int, CallDecided]:
        """Return the decision that holds, and its number."""
        recorder, number = self.execution.recorder, 0
        is_continued = recorder.cursor.has_history and recorder.cursor.step(key.decision(0)) is not None
        decision = await self._record(state, offered, key, 0)
        while is_continued and recorder.cursor.step(key.decision(number + 1)) is not None:
            recorder.cursor.step(_question_key(key, number))  # an answer to what is no longer asked is read as well
            number += 1
            decision = await self._record(state, offered, key, number)
        if is_continued and not recorder.is_read_only and not self._has_run(key):
            latest = self._decide(self.execution.environment, state, offered)
            if _supersedes(latest, decision):
                recorder.cursor.step(_question_key(key, number))
                number += 1
                decision = await self._record(state, offered, key, number, latest)
        return number, decision

    async def _record(
        self,
        state: ToolCallState,
        offered: OfferedTool,
        key: StepKey,
        number: int,
        made: CallDecided | None = None,
    ) -> CallDecided:
        """Return the recorded decision of that number; record the one that was `made`, or make it now."""

        def decide(environment: Environment) -> CallDecided:
            decision = made or self._decide(environment, state, offered)
            return decision if number else replace(decision, tool_digest=offered.digest)

        effect = CallDecision(state, key.decision(number), self.settings.correlation, decide)
        outcome = (await self.execution.perform(effect)).outcome
        assert isinstance(outcome, CallDecided)  # noqa: S101 - the only outcome of a decision
        return outcome

    def _decide(self, environment: Environment, state: ToolCallState, offered: OfferedTool) -> CallDecided:
        """Return what policy says now. Arguments that do not fit the tool are refused without a question."""
        registry, call, ledger = environment.tool_registry, state.call, self.execution.ledger
        header, caller = self.execution.header, self.settings.caller
        tool = registry.get(call.name)
        is_repeatable = tool is not None and tool.info().repeatable
        begun = (*self.settings.messages, *self._progress.prepared_messages)
        about = CallCircumstances(
            is_untrusted=is_untrusted_text(begun) or header.fork is not None or ledger.has_untrusted_text,
            is_repeated=not is_repeatable and ledger.tool_calls.has_granted(state),
            is_replica=self.settings.replica is not None,
        )
        made = registry.policy.decide(offered, call.arguments, caller, about)
        if made.verdict is CallVerdict.ASK and registry.violations(call.name, call.arguments):
            made = PolicyDecision(CallVerdict.RUN)
        current = registry.offer_of(call.name)
        digest = current[0].digest if current else ""
        return CallDecided(made.verdict, digest, made.reason, made.terms, made.grantable)

    async def _is_granted(self, state: ToolCallState, key: StepKey, number: int, decision: CallDecided) -> bool:
        """Return True if a grant covers the call, which counts as used then.

        It is looked for behind a new decision only: who was asked before the grant was given decides.
        """
        execution, decided = self.execution, key.decision(number)
        use = GrantUse(execution.header, state.call, decided.child(0), self.settings, decision)
        cursor, has_grant = execution.recorder.cursor, execution.ledger.tool_calls.has_grant
        if cursor.has_history and cursor.step(decided) is not None:
            may_be_there = cursor.step(use.key) is not None
        else:
            may_be_there = execution.header.request.session_id is not None or has_grant
        if not may_be_there:
            return False
        step = await execution.perform(use)
        assert isinstance(step.outcome, GrantUsed)  # noqa: S101 - the only outcome of a look for a grant
        if step.outcome.grant_id is None:
            return False
        state.mark_permitted(granted_answer(step.outcome, step.at))
        return True

    def _is_approved(self, state: ToolCallState, key: StepKey, decision: CallDecided) -> bool:
        """Return True if a person approved the call. Raises: BranchSuspended without an answer."""
        state.mark_waiting()
        question = question_about(SuspensionKind.APPROVAL, state.call, key, self.settings)
        step = self.execution.answer_to(replace(question, reason=decision.reason, terms=decision.terms))
        assert isinstance(step.outcome, SuspensionAnswer)  # noqa: S101 - the only outcome of a question
        answer = APPROVAL_DECISIONS.validate_python(step.outcome.payload)
        given = person_answer(state.call, step.outcome, answer, step.at)
        if isinstance(answer, Deny):
            state.refuse(denial_text(answer), Code.TOOL_EXECUTION_FAILED)
            state.answer_given = given
            return False
        self.execution.ledger.tool_calls.has_grant |= answer.grant is not None
        state.mark_permitted(given, answer.arguments)
        return True

    def _has_run(self, key: StepKey) -> bool:
        """Return True if an attempt at the call has started."""
        cursor, attempt = self.execution.recorder.cursor, key.child(0)
        return cursor.has_started(attempt) or cursor.step(attempt) is not None


class CallDecision(Effect):
    """The effect of deciding about a tool call."""

    is_instant = True

    def __init__(
        self,
        state: ToolCallState,
        key: StepKey,
        correlation: CorrelationContext,
        decide: Callable[[Environment], CallDecided],
    ) -> None:
        call = state.call
        self.key = key
        self.fingerprint = digest("decision", key, call.name, call.arguments)
        self.correlation = correlation
        self._call = call
        self._decide = decide

    def asked(self) -> JsonValue:
        """Return the call."""
        return {"id": self._call.id, "name": self._call.name, "arguments": self._call.arguments}

    async def run(self, environment: Environment) -> Outcome:
        """Decide."""
        return self._decide(environment)


def question_about(kind: SuspensionKind, call: ToolCall, key: StepKey, settings: BranchSettings) -> SuspensionRequest:
    """Return the question about a call in a branch with these settings, bound to the arguments of the call."""
    return SuspensionRequest(
        key,
        kind,
        settings.tool_id_prefix + call.name,
        {"tool": call.name, "arguments": call.arguments},
        tool_call_id=call.id,
        arguments_digest=digest(call.arguments),
        step_name=settings.correlation.step_name,
        agent=settings.caller.agent,
    )


def _question_key(key: StepKey, number: int) -> StepKey:
    """Return the key of the question that belongs to the decision of that number about a call."""
    return key if number == 0 else key.child(2, number)


def _supersedes(latest: CallDecided, earlier: CallDecided) -> bool:
    """Return True if the latest decision is stricter, or asks the same about another definition of the tool.

    One that needs more users is stricter.
    """
    if latest.verdict is CallVerdict.ASK is earlier.verdict:
        return latest.tool_digest != earlier.tool_digest or latest.terms.approvers > earlier.terms.approvers
    return latest.verdict.strictness > earlier.verdict.strictness
