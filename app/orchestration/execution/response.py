"""The response of an execution, put together from its tally and how it ended."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from app.domain.contract.messages import Message
from app.domain.contract.request import SystemRequest
from app.domain.contract.response import (
    Cost,
    Durability,
    PlanReport,
    ResponseMetadata,
    StepStatus,
    Suspension,
    SystemError,
    SystemResponse,
)
from app.domain.failures import Cancellation, Failure
from app.domain.frozen import dataclass
from app.domain.journal.events import (
    ExecutionCancelled,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionSuspended,
    TerminalEvent,
)
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import Candidate
from app.domain.lifecycle import State
from app.domain.model_call import Reply
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.execution import Execution

SUSPENSION_EXPIRES_AFTER = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Termination:
    """How a story ended: with what it produced, with a failure, or (neither) suspended.

    `said` is the talk that led to the answer, where it was one and belongs to a session.
    """

    result: PatternResult | None = None
    failure: Failure | None = None
    new_messages: Sequence[Message] = ()


def build_response(
    execution: Execution, state: State, ending: Termination, suspensions: list[Suspension]
) -> SystemResponse:
    """The response in that state. It holds what was done so far, however the execution ended."""
    header, tally = execution.header, execution.ledger
    produced = ending.result or execution.partial_result
    return SystemResponse(
        request_id=header.request_id,
        session_id=header.request.session_id,
        trace_id=header.trace_id,
        mode=header.mode,
        state=state,
        content=tally.partial_text if produced is None else produced.content,
        structured_output=None if produced is None else produced.structured_output,
        tool_calls_made=tally.tool_calls_made(),
        confidence=None if produced is None else produced.confidence,
        confidence_source=None if produced is None else produced.confidence_source,
        validation_result=None if produced is None else produced.validation,
        token_usage=tally.usage,
        cost=Cost(amount=tally.cost, currency=header.currency) if tally.priced else None,
        plan=None if produced is None or produced.plan is None else _standing(produced.plan, state),
        vote=None if produced is None else produced.vote,
        suspensions=suspensions,
        metadata=_metadata(execution, state),
        error=None if ending.failure is None else SystemError.of(ending.failure),
    )


def minimal_failure(header: ExecutionHeader, failure: Failure) -> ExecutionFailed:
    """The event of an execution that failed, with nothing of what was done until then."""
    response = SystemResponse(
        request_id=header.request_id,
        session_id=header.request.session_id,
        trace_id=header.trace_id,
        mode=header.mode,
        state=State.ERROR,
        error=SystemError.of(failure),
    )
    return ExecutionFailed(response)


def terminal_event(execution: Execution, state: State, ending: Termination) -> TerminalEvent | ExecutionSuspended:
    """The event that carries the response of an execution that ends, or waits, in that state."""
    suspensions = _suspensions(execution) if state is State.SUSPENDED else []
    response = build_response(execution, state, ending, suspensions)
    match state:
        case State.COMPLETE:
            return ExecutionCompleted(response)
        case State.CANCELLED:
            return ExecutionCancelled(response)
        case State.SUSPENDED:
            return ExecutionSuspended(tuple(suspensions), response)
        case _:
            return ExecutionFailed(response)


def final_state(ending: Termination) -> State:
    """The state an ending leads to."""
    if isinstance(ending.failure, Cancellation):
        return State.CANCELLED
    if ending.failure is not None:
        return State.ERROR
    return State.SUSPENDED if ending.result is None else State.COMPLETE


def _standing(plan: PlanReport, state: State) -> PlanReport:
    """The plan as it stands then: a step that has not ended will not any more once the execution has."""
    if state is State.SUSPENDED or all(step.status is not StepStatus.PENDING for step in plan.steps):
        return plan
    ended = [
        step.model_copy(update={"status": StepStatus.CANCELLED}) if step.status is StepStatus.PENDING else step
        for step in plan.steps
    ]
    return plan.model_copy(update={"steps": ended})


def _metadata(execution: Execution, state: State) -> ResponseMetadata:
    header, tally, prepared = execution.header, execution.ledger, execution.prepared
    provider, model = tally.last_speaker or (None, None)
    answered = tally.last_reply
    return ResponseMetadata(
        provider=provider,
        model=model,
        finish_reason="cancelled" if state is State.CANCELLED else _ending(answered),
        tool_rounds=tally.tool_rounds,
        fallback_attempts=tally.fallback_attempts,
        truncated_history=prepared is not None and prepared.truncated_history,
        left_out=[] if answered is None else _left_out(header.request, *answered),
        kept_by=None if answered is None else answered[1].way,
        durability=_durability(execution, state),
        client=header.request.metadata,
    )


def _ending(answered: tuple[Reply, Candidate] | None) -> str | None:
    """Why the answer ended, in our word unless the provider has one that is none of ours."""
    return None if answered is None else answered[0].raw_finish or answered[0].finish_reason


def _left_out(request: SystemRequest, reply: Reply, candidate: Candidate) -> list[str]:
    return sorted(name for name in (*candidate.withheld, *reply.withheld) if _is_asked(request, name))


def _is_asked(request: SystemRequest, name: str) -> bool:
    """Whether the request holds what a provider was not given: a hint may be the pattern's own."""
    kind, _, rest = name.partition(".")
    return kind != "hints" or getattr(request.hints, rest.partition(".")[0]) is not None


def _durability(execution: Execution, state: State) -> Durability:
    """What begins in memory is journaled from before its first call that must not act twice, and when it suspends."""
    kept = execution.ledger.ran_unsafe_call or state is State.SUSPENDED or execution.history.was_suspended
    return "journaled" if kept else execution.header.durability


def _suspensions(execution: Execution) -> list[Suspension]:
    expires_at = datetime.fromtimestamp(execution.environment.clock.now(), UTC) + SUSPENSION_EXPIRES_AFTER
    return [
        Suspension(
            suspension_id=question.key,
            kind=question.kind,
            tool_id=question.tool_id,
            tool_call_id=question.tool_call_id,
            value=question.value,
            arguments_digest=question.arguments_digest,
            expires_at=expires_at,
        )
        for question in sorted(execution.open_questions, key=lambda question: question.key)
    ]
