"""Driver: runs one execution from INIT to its terminal event, the same code for a live run, a recovery and a replay.

An offline replay has no `Preparer`: nothing outside the record is asked, and PREPARE is recorded there. A record names
the version of its pattern; one that today's pattern does not have can neither be continued nor replayed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import fsum
from typing import TypeAlias

import anyio

from portico.domain.contract.messages import Message
from portico.domain.contract.response import StepStatus
from portico.domain.failures import Cancellation, Code, Failure, OrchestrationFailure, StorageFailure
from portico.domain.failures import failure as domain_failure
from portico.domain.journal.events import INIT_ANCHOR, GuardEnd, LifecycleTransition, StageEnd
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Prepared, Refused
from portico.domain.journal.step_key import PLAN_KEY, PREPARE_KEY
from portico.domain.lifecycle import Mode, State
from portico.domain.pattern_result import CLIENT_CALLS, PatternResult
from portico.domain.value import replace
from portico.orchestration.execution.branch_span import in_span, with_correlation
from portico.orchestration.execution.branches import has_diverged
from portico.orchestration.execution.context import RunContext, prepared_context, start_context
from portico.orchestration.execution.effect import BranchStopped, BranchSuspended
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.input_judges import run_judged
from portico.orchestration.execution.pattern import BoundInputs, Pattern, UpperBound
from portico.orchestration.execution.progress import RunProgress
from portico.orchestration.execution.reserve import withhold_time
from portico.orchestration.execution.response import Termination, build_response, minimal_failure, terminal_event
from portico.orchestration.execution.session_turn import SessionTurn
from portico.orchestration.guards import check_later_text, dropped_chunks
from portico.orchestration.patterns.agent_patterns import AGENT_PATTERNS
from portico.orchestration.pipeline.compaction import compact_history
from portico.orchestration.pipeline.media import fetch_media
from portico.orchestration.pipeline.prepare import PrepareEffect, Preparer, retrieve_context
from portico.orchestration.pipeline.stages import AUTH_RESOLVE, StageTimer
from portico.orchestration.planning.synthesis import answer_without_model
from portico.orchestration.runtime.salvage import LIMIT_REACHED, reached_limit, salvage

Wait: TypeAlias = Callable[[], Awaitable[None]]


async def drive(execution: Execution, pattern: Pattern, timer: StageTimer, wait: Wait | None = None) -> None:
    """Run the execution to its end within its deadline, record how it ended, and return when that is durable.

    `timer` has the traces of the stages that have run already, and `wait` returns when it may run. A cancellation
    without a recorded stop decision is a hand-over: nothing is recorded, and the next owner continues.
    """
    progress, preparer, termination = RunProgress(), Preparer(execution, pattern, timer), None
    try:
        with execution.until_stopped():
            if wait is not None and execution.recorder.stop_decision is None:
                await wait()
            with execution.start_deadline():
                termination = await run_pattern(execution, progress, pattern, preparer)
    except anyio.get_cancelled_exc_class():
        execution.abandon()
        raise
    finally:
        try:
            if termination is not None or not execution.is_handed_over:
                _finish_or_fail(execution, progress, termination or _interrupted(execution), preparer.turn)
        finally:
            await _release(execution, progress, preparer.turn)


def replay(execution: Execution, pattern: Pattern) -> int:
    """Replay a recorded execution without event loop and environment; return the number of identical steps.

    Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) at the first difference.
    """
    replaying = _replay(execution, pattern)
    try:
        replaying.send(None)
    except StopIteration:
        return execution.recorder.cursor.verify_complete()
    replaying.close()
    raise RuntimeError("a pattern may await only its context; this one waits for something else")


async def run_pattern(
    execution: Execution, progress: RunProgress, pattern: Pattern, preparer: Preparer | None
) -> Termination:
    """Run everything from INIT until the pattern returns. Raises: anyio's cancellation if it is stopped meanwhile."""
    try:
        messages = await _begin(execution, pattern, preparer)
        chunk_check = partial(dropped_chunks, pattern, execution.header.request)
        context = start_context(execution, progress, messages, AGENT_PATTERNS, chunk_check)
        if execution.header.salvages:
            withhold_time(execution)
        try:
            if execution.header.judges:
                run = partial(_result, execution, progress, pattern, preparer, context)
                result = await run_judged(execution, progress, context, run)
            else:
                result = await _result(execution, progress, pattern, preparer, context)
        except (Failure, BranchStopped) as end:
            limit = reached_limit(execution, end)
            if limit is None:
                raise
            if execution.branches.is_withheld:
                execution.recorder.pattern_time.reopen()
                raise domain_failure(limit, "a limit was reached before the input was judged") from None
            return Termination(await salvage(execution, progress, context, limit), limit=limit)
    except Failure as failure:
        return Termination(failure=failure)
    except BranchSuspended:
        return Termination()
    except BranchStopped:
        return _interrupted(execution)
    return Termination(result, conversation=progress.conversation.new_messages)


async def _begin(execution: Execution, pattern: Pattern, preparer: Preparer | None) -> Sequence[Message]:
    """Record the first transition, and behind it the stage and the guards that came before the execution.

    Return the conversation that a planner reads, once what the request names by URL is there and its session is free.
    """
    accepted = LifecycleTransition(None, State.INIT, execution.lifecycle.attempt, "accepted")
    stage = StageEnd(AUTH_RESOLVE, execution.header.auth_resolve_ms, "ok")
    found = execution.header.guards
    guards = [GuardEnd(each.guard, each.action, each.tripped) for each in found] if found else ()
    execution.recorder.record(INIT_ANCHOR, execution.correlation, accepted, stage, *guards)
    delay = execution.header.delay
    if delay is not None and delay.refusal is not None:
        raise delay.refusal.failure()
    if execution.facts.has_parts:
        await fetch_media(execution, partial(check_later_text, pattern, execution.header.request))
    if preparer is not None and (preparer.turn is not None or pattern.plan is not None):
        return await preparer.acquire_turn()
    return ()


async def _result(
    execution: Execution, progress: RunProgress, pattern: Pattern, preparer: Preparer | None, context: RunContext
) -> PatternResult:
    """Run the pattern from PLAN or PREPARE to its result."""
    if pattern.plan is not None:
        execution.transition_to(INIT_ANCHOR, State.PLAN, "accepted")
        correlation = context.settings.correlation
        planned = await pattern.plan(in_span(context, PLAN_KEY), pattern.static_plan, pattern.planner)
        context = with_correlation(planned, correlation)
        context.transition_to(State.PREPARE, "planned")
    else:
        execution.transition_to(INIT_ANCHOR, State.PREPARE, "accepted")
    context = await _prepare(execution, progress, context, preparer)
    execution.transition_to(PREPARE_KEY, State.EXECUTE, "prepared")
    result = await pattern.run(context)
    if execution.recorder.pattern_time.is_over:
        # The time passed after the last effect, so the result is whole.
        execution.recorder.pattern_time.reopen()
    return result if isinstance(result, PatternResult) else PatternResult(result)


async def _prepare(
    execution: Execution, progress: RunProgress, context: RunContext, preparer: Preparer | None
) -> RunContext:
    """Perform PREPARE and return the context behind it. Raises: the failure of the stage that refused the request."""
    request = execution.header.request
    if request.session_id is not None or execution.recorder.cursor.has_history:
        await compact_history(execution, context, preparer)
    if request.context.retrieve:
        await retrieve_context(execution, preparer, context.settings.chunk_check)
    effect = PrepareEffect(execution.correlation, preparer)
    step = execution.find(effect) or execution.recorder.add(effect, await effect.run(execution.environment))
    assert isinstance(step.outcome, Prepared | Refused)  # noqa: S101 - the only outcomes of PREPARE
    if isinstance(step.outcome, Refused):
        raise step.outcome.failure()
    progress.prepared, progress.prepared_at = step.outcome, step.at
    if preparer is not None:
        progress.conversation.first_setup = preparer.first_setup
    return prepared_context(context, step.outcome, step.at)


def finish(
    execution: Execution, progress: RunProgress, termination: Termination, turn: SessionTurn | None = None
) -> None:
    """Record the end: the summed stages, the last transition, and the event that carries the response.

    An execution that waited and still waits gets its response, and nothing is recorded.
    """
    if execution.recorder.has_stopped and execution.recorder.is_closed():
        termination = _interrupted(execution)
    if termination.failure is not None:
        _add_final_answer(progress)
    if (termination.failure is not None or termination.limit is not None) and not execution.branches.is_withheld:
        termination = replace(termination, conversation=progress.conversation.rounds_at_end)
    state, lifecycle = termination.state, execution.lifecycle
    last = terminal_event(execution, progress, termination)
    if execution.recorder.cursor.ends_suspended:
        if state is State.SUSPENDED:
            execution.end(lifecycle, last.response)
            return
        lifecycle = lifecycle.transition_to(State.SUSPENDED)
    stages: Sequence[StageEnd] = ()
    reason = _reason(termination)
    if state is not State.SUSPENDED:
        if progress.steps or progress.nested_calls or progress.rounds:
            _end_steps(execution, progress, termination)
        stages = _summed_stages(execution, progress, termination)
    after = lifecycle.transition_to(state)
    transition = LifecycleTransition(lifecycle.state, state, after.attempt, reason)
    messages = () if turn is None else turn.new_messages(progress, termination)
    if termination.failure is not None and _may_be_sent_again(execution, termination.failure):
        execution.environment.usage.retract(execution.header.execution_id)
        execution.environment.journal.discard(execution.header.execution_id, if_stored=True)
    execution.end(after, last.response, *stages, transition, last, new_messages=messages)


def _may_be_sent_again(execution: Execution, failure: Failure) -> bool:
    """Return whether a request was refused for a moment before a provider or a tool was asked: nothing of it is left.

    What was queued was accepted, and its client cannot send it again.
    """
    if failure.code is not Code.REQUEST_RATE_LIMITED or execution.recorder.is_read_only:
        return False
    return execution.ledger.is_unsent and not execution.header.request.background


def _add_final_answer(progress: RunProgress) -> None:
    """Give the partial result of passes that were ended a final answer that no model is asked for, if it has none."""
    partial_result = progress.partial_result or PatternResult(None)
    if progress.phase_e_input is None or partial_result.final_answer is not None:
        return
    progress.partial_result = answer_without_model(progress.phase_e_input()).added_to(partial_result)


def _finish_or_fail(
    execution: Execution, progress: RunProgress, termination: Termination, turn: SessionTurn | None
) -> None:
    """Record the end; if that raises, which is a bug, record a minimal failure and raise again."""
    try:
        finish(execution, progress, termination, turn)
    except BaseException as bug:
        failed = minimal_failure(execution.header, bug if isinstance(bug, Failure) else _internal_error())
        lifecycle = execution.lifecycle
        transition = LifecycleTransition(lifecycle.state, State.ERROR, lifecycle.attempt, "bug")
        execution.end(lifecycle, failed.response, transition, failed)
        raise


async def _release(execution: Execution, progress: RunProgress, turn: SessionTurn | None) -> None:
    """Wait until the end, if it has ended, is durable; if it cannot be, the response says so. Then give up its turn."""
    try:
        if execution.response is not None:
            await execution.environment.journal.durable(execution.header.execution_id)
    except Failure as lost:
        execution.end(execution.lifecycle, build_response(execution, progress, Termination(failure=lost)))
    finally:
        if turn is not None:
            turn.release()


def _end_steps(execution: Execution, progress: RunProgress, termination: Termination) -> None:
    """Record the end of the nested calls, tool rounds and plan's steps that have started and not ended."""
    code = termination.limit if termination.failure is None else termination.failure.code
    for call in reversed(progress.nested_calls):
        execution.recorder.record(*call.cut_off(code or Code.CANCELLED_SIGNAL, execution.ledger.last_at))
    for tool_round in progress.rounds:
        for key, correlation, events in tool_round.kept_from_running():
            # A replay may come to a round that a cancel has kept from starting.
            if not execution.recorder.is_read_only or execution.recorder.cursor.has_events(key):
                execution.recorder.record(key, correlation, *events)
    for step in progress.steps:
        end = step.end_event(StepStatus.CANCELLED, at=execution.ledger.last_at, code=code)
        execution.recorder.record(step.anchor, step.correlation, end)


async def _replay(execution: Execution, pattern: Pattern) -> None:
    progress = RunProgress()
    termination = await run_pattern(execution, progress, pattern, None)
    if termination.failure is not None and has_diverged(termination.failure):
        raise termination.failure
    if termination.state is not State.SUSPENDED:
        finish(execution, progress, termination)


def _interrupted(execution: Execution) -> Termination:
    """Return the termination of an execution that did not come to its own end."""
    if execution.recorder.failure is not None:
        return Termination(failure=execution.recorder.failure)
    decision = execution.recorder.stop_decision
    if decision is not None:
        return Termination(failure=Cancellation(decision.code, decision.message))
    return Termination(failure=_internal_error())


def _internal_error() -> Failure:
    return OrchestrationFailure(
        Code.ORCHESTRATION_INVALID_TRANSITION, "internal error: the service broke one of its own rules"
    )


def _summed_stages(execution: Execution, progress: RunProgress, termination: Termination) -> list[StageEnd]:
    """Return the ends of the two stages that are spans over the whole execution."""
    if progress.prepared is None:
        return []
    ledger, outcome = execution.ledger, "ok" if termination.failure is None else "failed"
    execute_ms = max(0.0, ledger.last_at - progress.prepared_at) * 1000
    return [
        StageEnd("Execute", execute_ms, outcome),
        StageEnd("FailoverDecide", fsum(ledger.failover_ms), outcome),
    ]


def _reason(termination: Termination) -> str:
    if termination.failure is not None:
        return termination.failure.code.lower()
    if termination.limit is not None:
        return LIMIT_REACHED
    if termination.result is None:
        return "suspended"
    return CLIENT_CALLS if termination.result.client_calls else "answered"


def pattern_for(header: ExecutionHeader, patterns: Mapping[Mode, Pattern]) -> Pattern:
    """Return the pattern that runs the execution; if it cannot continue its record, it fails when it runs."""
    pattern = patterns.get(header.mode, _UNKNOWN)
    return pattern if pattern.can_continue(header) else replace(pattern, run=_refuse)


def is_newer_version(header: ExecutionHeader, patterns: Mapping[Mode, Pattern]) -> bool:
    """Return whether only a replica with a newer version of the pattern can continue the execution."""
    pattern = patterns.get(header.mode)
    return pattern is None or header.pattern_version > pattern.version


def require_current_version(header: ExecutionHeader, patterns: Mapping[Mode, Pattern]) -> None:
    """Raise StorageFailure (STORAGE_SNAPSHOT_INVALID) if today's pattern cannot continue the execution."""
    pattern = patterns.get(header.mode)
    if pattern is None or not pattern.can_continue(header):
        raise version_mismatch()


def version_mismatch() -> StorageFailure:
    """Return the failure of a journal that today's pattern cannot continue."""
    return StorageFailure(
        Code.STORAGE_SNAPSHOT_INVALID, "the journal was written by another version of its mode's pattern or flow"
    )


async def _refuse(_: RunContext) -> str:
    raise version_mismatch()


def _no_bound(_inputs: BoundInputs) -> UpperBound:
    return UpperBound()


_UNKNOWN = Pattern(run=_refuse, version=0, upper_bound=_no_bound)
