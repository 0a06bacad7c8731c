"""The response of an execution, built from its ledger, its progress and how it ended."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

from portico.domain.contract.constrained_types import ConfidenceSource
from portico.domain.contract.messages import Message
from portico.domain.contract.request import SystemRequest
from portico.domain.contract.response import (
    Cost,
    GivenApprovals,
    PlanReport,
    Reasoning,
    ResponseMetadata,
    StepStatus,
    Suspension,
    SystemError,
    SystemResponse,
)
from portico.domain.failures import Cancellation, Code, Failure
from portico.domain.journal.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    TerminalEvent,
)
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import AttemptSucceeded, Candidate
from portico.domain.lifecycle import State
from portico.domain.model_call import Reply
from portico.domain.pattern_result import PatternResult
from portico.domain.value import value
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.ledger import Ledger
from portico.orchestration.execution.progress import RunProgress
from portico.orchestration.execution.retrieval.sources import RetrievedTexts, coverage, retrieved_texts, sources_of

MAX_REASONING_BYTES: Final = 2**20


@value(slots=False)
class Termination:
    """The end of a run: a result, a failure, or, with neither, a suspension.

    `conversation` are the tool rounds and the answer of the outermost conversation; of a failure and of a salvaged
    result, the rounds alone. `limit` is the code of the limit that was reached, if the result is salvaged.
    """

    result: PatternResult | None = None
    failure: Failure | None = None
    conversation: Sequence[Message] = ()
    limit: Code | None = None

    @cached_property
    def state(self) -> State:
        """The state that the run ends in."""
        if isinstance(self.failure, Cancellation):
            return State.CANCELLED
        if self.failure is not None:
            return State.ERROR
        return State.SUSPENDED if self.result is None else State.COMPLETE

    @property
    def new_messages(self) -> Sequence[Message]:
        """The messages that the run adds to its conversation; the last one is its answer, if it has one."""
        has_answer = self.limit is None and self.conversation
        if self.result is None or has_answer or not self.result.content:
            return self.conversation
        return [*self.conversation, Message(role="assistant", content=self.result.content)]


def build_response(
    execution: Execution,
    progress: RunProgress,
    termination: Termination,
    suspensions: Sequence[Suspension] = (),
) -> SystemResponse:
    """Return the response. It shows what was done, however the run ended, but nothing before the input was judged."""
    header, ledger, state = execution.header, execution.ledger, termination.state
    is_withheld = execution.branches.input_gate is not None and execution.branches.is_withheld
    result = None if is_withheld else termination.result or progress.partial_result
    tool_calls = ledger.tool_calls.made(is_suspended=state is State.SUSPENDED)
    retrieved = retrieved_texts(ledger, progress.prepared) if ledger.retrievals else ()
    confidence, confidence_source = (None, None) if result is None else (result.confidence, result.confidence_source)
    if retrieved and result is not None and confidence is None:
        # How well what was asked is covered by what was retrieved.
        confidence = coverage(retrieved)
        confidence_source = None if confidence is None else ConfidenceSource.RETRIEVAL
    content = None if is_withheld else partial_text(ledger) if result is None else result.content
    return SystemResponse(
        request_id=header.request_id,
        session_id=header.request.session_id,
        trace_id=header.trace_id,
        mode=header.mode,
        state=state,
        content=content,
        structured_output=None if result is None else result.structured_output,
        tool_calls_made=[] if is_withheld else tool_calls,
        client_calls=[] if result is None else list(result.client_calls),
        confidence=confidence,
        confidence_source=confidence_source,
        validation_result=None if result is None else result.validation,
        reasoning=_reasoning(execution, is_shown=content is not None or result is not None or state is State.SUSPENDED)
        if header.request.output.reasoning
        else None,
        token_usage=ledger.usage,
        cost=Cost(amount=ledger.cost, currency=header.currency, cache_saved=ledger.cache_saved)
        if ledger.costs
        else None,
        plan=None if result is None or result.plan is None else _final_plan(result.plan, state),
        vote=None if result is None else result.vote,
        final_answer=None if result is None else result.final_answer,
        messages=list(termination.new_messages),
        suspensions=list(suspensions),
        metadata=_metadata(execution, progress, termination, retrieved),
        error=None if termination.failure is None else SystemError.of(termination.failure),
        repeated=() if result is None else result.repeated,
    )


def _reasoning(execution: Execution, *, is_shown: bool) -> list[Reasoning]:
    """Return the reasoning before the answers; none where no answer is shown, since a guard may have refused it."""
    is_withheld = execution.branches.input_gate is not None and execution.branches.is_withheld
    left, found = MAX_REASONING_BYTES, list[Reasoning]()
    for each in execution.ledger.shown_attempts if is_shown and not is_withheld else ():
        if isinstance(each.outcome, AttemptSucceeded) and not each.is_side_question:
            text = each.outcome.reply.reasoning.encode(errors="replace")[:left].decode(errors="ignore")
            left -= len(text.encode())
            if text:
                found.append(Reasoning(text=text, provider=each.candidate.provider, step_name=each.step_name))
    return found


def partial_text(ledger: Ledger) -> str | None:
    """Return the text of the last attempt if it did not become a reply."""
    last = next(reversed(ledger.shown_attempts), None)
    return None if last is None or isinstance(last.outcome, AttemptSucceeded) else last.outcome.partial or None


def minimal_failure(header: ExecutionHeader, failure: Failure) -> ExecutionFailed:
    """Return the event of a failed execution that shows nothing of what was done."""
    response = SystemResponse(
        request_id=header.request_id,
        session_id=header.request.session_id,
        trace_id=header.trace_id,
        mode=header.mode,
        state=State.ERROR,
        error=SystemError.of(failure),
    )
    return ExecutionFailed(response)


def terminal_event(
    execution: Execution, progress: RunProgress, termination: Termination
) -> TerminalEvent | ExecutionSuspended:
    """Return the event that carries the response of the run."""
    state = termination.state
    suspensions = _suspensions(execution) if state is State.SUSPENDED else []
    response = build_response(execution, progress, termination, suspensions)
    match state:
        case State.COMPLETE:
            return ExecutionCompleted(response)
        case State.CANCELLED:
            return ExecutionCancelled(response)
        case State.SUSPENDED:
            return ExecutionSuspended(tuple(suspensions), response)
        case _:
            return ExecutionFailed(response)


def _final_plan(plan: PlanReport, state: State) -> PlanReport:
    """Return the plan with its pending steps cancelled, unless the execution is suspended."""
    if state is State.SUSPENDED or all(step.status is not StepStatus.PENDING for step in plan.steps):
        return plan
    steps = [
        step.model_copy(update={"status": StepStatus.CANCELLED}) if step.status is StepStatus.PENDING else step
        for step in plan.steps
    ]
    return plan.model_copy(update={"steps": steps})


def _metadata(
    execution: Execution, progress: RunProgress, termination: Termination, retrieved: Sequence[RetrievedTexts]
) -> ResponseMetadata:
    header, ledger, prepared = execution.header, execution.ledger, progress.prepared
    state, (speaker, last_reply) = termination.state, ledger.last_answers
    provider, deployment, model = speaker or (None, None, None)
    reply, candidate = last_reply or (None, None)
    is_recorded = state is State.SUSPENDED or is_journaled(execution)
    finish_reason = None if reply is None else reply.raw_finish or reply.finish_reason
    if termination.result is not None and termination.result.client_calls:
        finish_reason = "tool"
    return ResponseMetadata(
        provider=provider,
        deployment=deployment,
        model=model,
        finish_reason="cancelled" if state is State.CANCELLED else finish_reason,
        tool_rounds=len(ledger.tool_calls.rounds),
        fallback_attempts=ledger.fallback_attempts,
        truncated_history=prepared is not None and prepared.truncated_history,
        left_out=_left_out(header, last_reply, progress),
        kept_by=None if candidate is None else candidate.way,
        durability="journaled" if is_recorded else "memory",
        flags=sorted(ledger.flags),
        sources=sources_of(retrieved) if retrieved else [],
        channel=header.channel,
        client=header.request.metadata,
    )


def _left_out(header: ExecutionHeader, last_reply: tuple[Reply, Candidate] | None, progress: RunProgress) -> list[str]:
    """Return the parts of the request that the last provider did not get, the tools that are not offered, and the
    skills that are not in the context.
    """
    withheld = () if last_reply is None else (*last_reply[1].withheld, *last_reply[0].withheld)
    parts = {*progress.left_out, *[name for name in withheld if _is_of_request(header.request, name)]}
    if header.agent is not None:
        parts.update(header.agent.left_out)
    prepared, choice = progress.prepared, header.request.hints.tool_choice
    if prepared is not None:
        parts.update([f"tools.{name}" for name in prepared.left_out])
        if choice is not None and prepared.narrows(choice):
            parts.add("hints.tool_choice")
        if prepared.context is not None:
            parts.update([f"context.skills.{skill.name}" for skill in prepared.context.excluded])
    return sorted(parts)


def _is_of_request(request: SystemRequest, name: str) -> bool:
    """Return True if the request holds what was left out: a hint may be the pattern's own."""
    kind, _, rest = name.partition(".")
    return kind != "hints" or getattr(request.hints, rest.partition(".")[0]) is not None


def is_journaled(execution: Execution) -> bool:
    """Return whether another owner could continue the execution.

    One in memory is journaled from its first non-idempotent call or its first suspension.
    """
    return (
        execution.header.durability == "journaled"
        or execution.ledger.tool_calls.has_run_unsafe
        or execution.lifecycle.state is State.SUSPENDED
        or execution.recorder.cursor.was_suspended
    )


def _suspensions(execution: Execution) -> list[Suspension]:
    asked_at = datetime.fromtimestamp(execution.environment.clock.now(), UTC)
    usual_seconds = execution.environment.suspension_seconds
    return [
        Suspension(
            suspension_id=question.key,
            kind=question.kind,
            tool_id=question.tool_id,
            tool_call_id=question.tool_call_id,
            value=question.value,
            asked_because=question.reason,
            arguments_digest=question.arguments_digest,
            step_name=question.step_name,
            agent=question.agent,
            asked_at=asked_at,
            expires_at=asked_at + timedelta(seconds=question.terms.expires_seconds or usual_seconds),
            on_expiry="deny" if question.terms.on_expiry == "deny" else None,
            approvals=GivenApprovals(needed=question.terms.approvers, given=[])
            if question.terms.approvers > 1
            else None,
        )
        for question in execution.branches.open_questions
    ]
