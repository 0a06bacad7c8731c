"""Driver: runs one execution from INIT to its terminal event, the same code for a live run, a recovery and a replay.

An offline replay has no `Preparer`: nothing outside the record is asked, and PREPARE is recorded there.
"""

from collections.abc import Sequence

import anyio

from app.domain.contract.messages import Message
from app.domain.contract.response import StepStatus
from app.domain.failures import Cancellation, Code, Failure, OrchestrationFailure
from app.domain.journal.events import END_ANCHOR, INIT_ANCHOR, LifecycleTransition, StageEnd
from app.domain.journal.outcomes import Outcome, Prepared, Refused, StageTrace
from app.domain.journal.step_key import PREPARE_KEY
from app.domain.lifecycle import State
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.branches import BranchStopped, BranchSuspended, has_diverged
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.effect import Effect
from app.orchestration.execution.execution import Execution
from app.orchestration.execution.pattern import Pattern
from app.orchestration.execution.response import (
    Termination,
    build_response,
    final_state,
    minimal_failure,
    terminal_event,
)
from app.orchestration.execution.session_turn import new_messages
from app.orchestration.pipeline.prepare import Preparer


async def drive(execution: Execution, pattern: Pattern, preparer: Preparer) -> None:
    """Run the execution to its end within its deadline, record how it ended, and return when that is durable.

    A cancellation without a recorded stop decision is a hand-over: nothing is recorded, and the next owner continues.
    """
    termination: Termination | None = None
    try:
        termination = await execution.run_with_deadline(lambda: run_to_end(execution, pattern, preparer))
    except anyio.get_cancelled_exc_class():
        execution.handed_over = True
        raise
    finally:
        try:
            if termination is not None or not execution.handed_over:
                _finish_or_fail(execution, termination or _interrupted(execution))
        finally:
            if execution.response is not None:
                await _make_durable(execution)


def replay(execution: Execution, pattern: Pattern) -> int:
    """Replay a recorded execution without event loop and environment; return the number of identical steps.

    Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) at the first difference.
    """
    replaying = _replay(execution, pattern)
    try:
        replaying.send(None)
    except StopIteration:
        return execution.history.verify_complete()
    replaying.close()
    raise RuntimeError("a pattern may await only its run; this one waits for something else")


async def run_to_end(execution: Execution, pattern: Pattern, preparer: Preparer | None) -> Termination:
    """Run everything from INIT until the pattern returns. Raises: anyio's cancellation if it is stopped meanwhile."""
    try:
        accepted = LifecycleTransition(None, State.INIT, execution.lifecycle.attempt, "accepted")
        execution.record(INIT_ANCHOR, execution.correlation, accepted)
        messages = () if preparer is None else await preparer.acquire_turn()
        run = await _planned(execution, pattern, messages)
        await _prepare(execution, run, preparer)
        run.transition_to(State.EXECUTE, "prepared")
        result = await pattern.run(run)
    except Failure as failure:
        return Termination(failure=failure)
    except BranchSuspended:
        return Termination()
    except BranchStopped:
        return _interrupted(execution)
    messages = () if execution.header.request.session_id is None else run.new_messages
    return Termination(result if isinstance(result, PatternResult) else PatternResult(result), new_messages=messages)


async def _planned(execution: Execution, pattern: Pattern, messages: Sequence[Message]) -> RunContext:
    """Return the pattern's run context in the state PREPARE, after the plan was made where the mode has one."""
    run = RunContext(execution, now=execution.header.created_at, anchor=INIT_ANCHOR)
    run.messages = messages
    if pattern.plan is None:
        run.transition_to(State.PREPARE, "accepted")
        return run
    run.transition_to(State.PLAN, "accepted")
    await pattern.plan(run, pattern.static_plan)
    run.transition_to(State.PREPARE, "planned")
    return run


async def _prepare(execution: Execution, run: RunContext, preparer: Preparer | None) -> None:
    """Perform PREPARE and give the run what it found. Raises: the failure of the stage that refused the request."""
    perform = _no_preparation if preparer is None else preparer.run
    effect = Effect(
        PREPARE_KEY, PREPARE_KEY, execution.correlation, perform, end_events=_stage_end_events, instant=True
    )
    step = await execution.perform(effect)
    assert isinstance(step.outcome, Prepared | Refused)  # noqa: S101 - the only outcomes of PREPARE
    if isinstance(step.outcome, Refused):
        raise step.outcome.failure()
    execution.prepared, execution.prepared_at = step.outcome, step.at
    run.apply_prepared(step.outcome, now=step.at)


async def _no_preparation() -> Outcome:
    raise RuntimeError("an offline replay prepares nothing")


def finish(execution: Execution, termination: Termination) -> None:
    """Record the end: the summed stages, the last transition, and the event that carries the response.

    An execution that waited and still waits gets its response, and nothing is recorded.
    """
    if execution.stop_decision is not None or execution.journal_failure is not None:
        termination = _interrupted(execution)
    execution.has_ended = True
    state = final_state(termination)
    last = terminal_event(execution, state, termination)
    if execution.history.ends_suspended:
        if state is State.SUSPENDED:
            execution.response = last.response
            return
        execution.lifecycle = execution.lifecycle.transition_to(State.SUSPENDED)
    stages: Sequence[StageEnd] = ()
    if state is not State.SUSPENDED:
        _end_steps(execution, termination)
        stages = _summed_stages(execution, termination)
    after = execution.lifecycle.transition_to(state)
    transition = LifecycleTransition(execution.lifecycle.state, state, after.attempt, _reason(termination))
    result = termination.result
    messages = () if result is None else new_messages(execution, termination.new_messages, result)
    execution.record(END_ANCHOR, execution.correlation, *stages, transition, last)
    execution.commit(messages)
    execution.lifecycle, execution.response = after, last.response


def _finish_or_fail(execution: Execution, termination: Termination) -> None:
    """Record the end; if that raises, which is a bug, record a minimal failure and raise again."""
    try:
        finish(execution, termination)
    except BaseException as bug:
        failed = minimal_failure(execution.header, bug if isinstance(bug, Failure) else _internal_error())
        lifecycle = execution.lifecycle
        transition = LifecycleTransition(lifecycle.state, State.ERROR, lifecycle.attempt, "bug")
        execution.record(END_ANCHOR, execution.correlation, transition, failed)
        execution.commit()
        execution.response = failed.response
        raise


async def _make_durable(execution: Execution) -> None:
    """Wait until the end is durable; if it cannot be, the response says so."""
    try:
        await execution.environment.journal.durable(execution.header.execution_id)
    except Failure as lost:
        execution.response = build_response(execution, State.ERROR, Termination(failure=lost), [])


def _end_steps(execution: Execution, termination: Termination) -> None:
    """Record the end of the plan's steps that have started and not ended."""
    code = None if termination.failure is None else termination.failure.code
    for step in execution.steps_in_progress:
        end = step.end_event(StepStatus.CANCELLED, at=execution.ledger.last_at, code=code)
        execution.record(step.anchor, step.context, end)


async def _replay(execution: Execution, pattern: Pattern) -> None:
    termination = await run_to_end(execution, pattern, None)
    if termination.failure is not None and has_diverged(termination.failure):
        raise termination.failure
    if final_state(termination) is not State.SUSPENDED:
        finish(execution, termination)


def _interrupted(execution: Execution) -> Termination:
    """Return the termination of an execution that did not come to its own end."""
    if execution.journal_failure is not None:
        return Termination(failure=execution.journal_failure)
    decision = execution.stop_decision
    if decision is not None:
        return Termination(failure=Cancellation(decision.code, decision.message))
    return Termination(failure=_internal_error())


def _internal_error() -> Failure:
    return OrchestrationFailure(
        Code.ORCHESTRATION_INVALID_TRANSITION, "internal error: the service broke one of its own rules"
    )


def _stage_end_events(outcome: Outcome) -> list[StageEnd]:
    return [_stage_end(stage) for stage in outcome.stages] if isinstance(outcome, Prepared | Refused) else []


def _summed_stages(execution: Execution, termination: Termination) -> list[StageEnd]:
    """Return the ends of the two stages that are spans over the whole execution."""
    if execution.prepared is None:
        return []
    ledger, outcome = execution.ledger, "ok" if termination.failure is None else "failed"
    execute_ms = max(0.0, ledger.last_at - execution.prepared_at) * 1000
    return [
        _stage_end(StageTrace("Execute", execute_ms, outcome)),
        _stage_end(StageTrace("FailoverDecide", ledger.upstream_ms + ledger.waited_ms, outcome)),
    ]


def _stage_end(stage: StageTrace) -> StageEnd:
    return StageEnd(stage.stage, stage.duration_ms, stage.outcome)


def _reason(termination: Termination) -> str:
    if termination.failure is not None:
        return termination.failure.code.lower()
    return "suspended" if termination.result is None else "answered"
