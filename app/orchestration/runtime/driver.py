"""The story of one execution from INIT to its end, the same whether it is lived, recovered or replayed."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from app.domain.contract.messages import Message
from app.domain.contract.response import StepStatus
from app.domain.failures import Cancellation, Code, Failure, OrchestrationFailure
from app.domain.frozen import dataclass
from app.domain.journal.events import END_ANCHOR, INIT_ANCHOR, LifecycleTransition, StageEnd
from app.domain.journal.outcomes import Outcome, Prepared, Refused, StageTrace
from app.domain.journal.step_key import PREPARE_KEY
from app.domain.lifecycle import State
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.branches import BranchStopped, BranchSuspended, has_diverged
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.effect import Effect
from app.orchestration.execution.execution import Execution
from app.orchestration.execution.response import (
    Termination,
    build_response,
    final_state,
    minimal_failure,
    terminal_event,
)
from app.orchestration.execution.session_turn import new_messages


@dataclass(frozen=True, slots=True)
class Program:
    """What there is to run: how it is prepared, and its pattern, which may produce text alone.

    Where there is a `planning`, it comes first. Nothing is done before its `turn` has come, which brings what was said.
    """

    prepare: Callable[[], Awaitable[Outcome]]
    pattern: Callable[[RunContext], Awaitable[PatternResult | str]]
    plan: Callable[[RunContext], Awaitable[None]] | None = None
    acquire_turn: Callable[[], Awaitable[Sequence[Message]]] | None = None


async def drive(execution: Execution, story: Program) -> None:
    """Runs the story to its end, within the deadline, and records how it ended, whatever happens on the way.

    A cancellation that nobody decided is a hand-over: nothing is recorded, and the next owner continues.
    """
    try:
        await _live(execution, story)
    finally:
        if execution.response is not None:
            await _keep(execution)


async def _live(execution: Execution, story: Program) -> None:
    ending: Termination | None = None
    try:
        ending = await execution.run_with_deadline(lambda: run_to_end(execution, story))
    except anyio.get_cancelled_exc_class():
        execution.handed_over = True
        raise
    finally:
        if ending is not None or not execution.handed_over:
            _conclude_anyhow(execution, ending or _cut_short(execution))


async def _keep(execution: Execution) -> None:
    """Returns when the end is durable; the response says so when it will not be."""
    try:
        await execution.environment.journal.durable(execution.header.execution_id)
    except Failure as lost:
        execution.response = build_response(execution, State.ERROR, Termination(failure=lost), [])


def replay(execution: Execution, story: Program) -> int:
    """Tells a recorded story again with no event loop and no world; the number of steps that were found identical.

    Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) at the first difference.
    """
    telling = _retell(execution, story)
    try:
        telling.send(None)
    except StopIteration:
        return execution.history.verify_complete()
    telling.close()
    raise RuntimeError("a pattern awaits only its run; this one waits for something else")


async def run_to_end(execution: Execution, story: Program) -> Termination:
    """Everything between INIT and the end. Raises: anyio's cancellation when it is stopped while it acts."""
    try:
        accepted = LifecycleTransition(None, State.INIT, execution.lifecycle.attempt, "accepted")
        execution.record(INIT_ANCHOR, execution.correlation, accepted)
        told = () if story.acquire_turn is None else await story.acquire_turn()
        run = RunContext(execution, now=execution.header.created_at, anchor=INIT_ANCHOR)
        run.messages = told
        if story.plan is not None:
            run.transition_to(State.PLAN, "accepted")
            await story.plan(run)
        run.transition_to(State.PREPARE, "accepted" if story.plan is None else "planned")
        step = await execution.perform(
            Effect(PREPARE_KEY, PREPARE_KEY, execution.correlation, story.prepare, end_events=_stage_ends, instant=True)
        )
        execution.prepared, execution.prepared_at = _prepared(step.outcome), step.at
        run.apply_prepared(execution.prepared, now=step.at)
        run.transition_to(State.EXECUTE, "prepared")
        produced = await story.pattern(run)
    except Failure as failure:
        return Termination(failure=failure)
    except BranchSuspended:
        return Termination()
    except BranchStopped:
        return _cut_short(execution)
    said = () if execution.header.request.session_id is None else run.new_messages
    return Termination(produced if isinstance(produced, PatternResult) else PatternResult(produced), new_messages=said)


def finish(execution: Execution, ending: Termination) -> None:
    """Records the end: the stages that were summed, the last transition, and the event that carries the response."""
    if execution.stop_decision is not None or execution.journal_failure is not None:
        ending = _cut_short(execution)
    execution.has_ended = True
    state = final_state(ending)
    if execution.history.ends_suspended:
        if state is State.SUSPENDED:
            execution.response = terminal_event(execution, state, ending).response
            return
        execution.lifecycle = execution.lifecycle.transition_to(State.SUSPENDED)
    stages: Sequence[StageEnd] = ()
    if state is not State.SUSPENDED:
        _end_steps(execution, ending)
        stages = _summed_stages(execution, ending)
    after = execution.lifecycle.transition_to(state)
    moved = LifecycleTransition(execution.lifecycle.state, state, after.attempt, _reason(ending))
    last = terminal_event(execution, state, ending)
    turn = new_messages(execution, ending.new_messages, ending.result) if ending.result is not None else ()
    execution.record(END_ANCHOR, execution.correlation, *stages, moved, last)
    execution.commit(turn)
    execution.lifecycle, execution.response = after, last.response


def _conclude_anyhow(execution: Execution, ending: Termination) -> None:
    """Records the end; where a bug of ours keeps us from telling how it ended, the least that there is to say."""
    try:
        finish(execution, ending)
    except BaseException as bug:
        failed = minimal_failure(execution.header, bug if isinstance(bug, Failure) else _broken_rule())
        place = execution.lifecycle
        moved = LifecycleTransition(place.state, State.ERROR, place.attempt, "bug")
        execution.record(END_ANCHOR, execution.correlation, moved, failed)
        execution.commit()
        execution.response = failed.response
        raise


def _end_steps(execution: Execution, ending: Termination) -> None:
    """Steps of a plan that were begun and did not come to their end."""
    code = None if ending.failure is None else ending.failure.code
    for step in execution.steps_in_progress:
        end = step.end_event(StepStatus.CANCELLED, at=execution.ledger.last_at, code=code)
        execution.record(step.anchor, step.context, end)


async def _retell(execution: Execution, story: Program) -> None:
    ending = await run_to_end(execution, story)
    if ending.failure is not None and has_diverged(ending.failure):
        raise ending.failure
    if final_state(ending) is not State.SUSPENDED:
        finish(execution, ending)


def _stage_ends(outcome: Outcome) -> list[StageEnd]:
    return [_stage_end(stage) for stage in outcome.stages] if isinstance(outcome, Prepared | Refused) else []


def _prepared(outcome: Outcome) -> Prepared:
    assert isinstance(outcome, Prepared | Refused)  # noqa: S101 - what PREPARE can come to
    if isinstance(outcome, Refused):
        raise outcome.failure()
    return outcome


def _cut_short(execution: Execution) -> Termination:
    if execution.journal_failure is not None:
        return Termination(failure=execution.journal_failure)
    if execution.stop_decision is not None:
        return Termination(failure=Cancellation(execution.stop_decision.code, execution.stop_decision.message))
    return Termination(failure=_broken_rule())


def _broken_rule() -> Failure:
    rule = "the service broke a rule of its own"
    return OrchestrationFailure(Code.ORCHESTRATION_INVALID_TRANSITION, rule)


def _summed_stages(execution: Execution, ending: Termination) -> list[StageEnd]:
    if execution.prepared is None:
        return []
    tally, outcome = execution.ledger, "ok" if ending.failure is None else "failed"
    executing_ms = max(0.0, tally.last_at - execution.prepared_at) * 1000
    return [
        _stage_end(StageTrace("Execute", executing_ms, outcome)),
        _stage_end(StageTrace("FailoverDecide", tally.upstream_ms + tally.waited_ms, outcome)),
    ]


def _stage_end(stage: StageTrace) -> StageEnd:
    return StageEnd(stage.stage, stage.duration_ms, stage.outcome)


def _reason(ending: Termination) -> str:
    if ending.failure is not None:
        return ending.failure.code.lower()
    return "suspended" if ending.result is None else "answered"
