"""The story of one execution from INIT to its end, the same whether it is lived, recovered or replayed."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from app.domain.boundary import StepStatus
from app.domain.effects import PREPARE, Outcome, Prepared, Refused, StageTrace
from app.domain.events import END, INIT, LifecycleTransition, StageEnd
from app.domain.failures import Cancellation, Code, Failure, OrchestrationFailure
from app.domain.frozen import dataclass
from app.domain.lifecycle import State
from app.domain.messages import Message
from app.domain.produced import Produced
from app.orchestration.answering import Ending, bare_failure, last_event, respond, state_of
from app.orchestration.conversing import added
from app.orchestration.execution import Execution
from app.orchestration.leaf import Leaf
from app.orchestration.run import Run
from app.orchestration.settling import Dropped, Suspended, has_diverged


@dataclass(frozen=True, slots=True)
class Story:
    """What there is to run: how it is prepared, and its pattern, which may produce text alone.

    Where there is a `planning`, it comes first. Nothing is done before its `turn` has come, which brings what was said.
    """

    prepare: Callable[[], Awaitable[Outcome]]
    pattern: Callable[[Run], Awaitable[Produced | str]]
    planning: Callable[[Run], Awaitable[None]] | None = None
    turn: Callable[[], Awaitable[Sequence[Message]]] | None = None


async def live(execution: Execution, story: Story) -> None:
    """Runs the story to its end, within the deadline, and records how it ended, whatever happens on the way.

    A cancellation that nobody decided is a hand-over: nothing is recorded, and the next owner continues.
    """
    try:
        await _live(execution, story)
    finally:
        if execution.response is not None:
            await _keep(execution)


async def _live(execution: Execution, story: Story) -> None:
    ending: Ending | None = None
    try:
        ending = await execution.within_deadline(lambda: tell(execution, story))
    except anyio.get_cancelled_exc_class():
        execution.handed_over = True
        raise
    finally:
        if ending is not None or not execution.handed_over:
            _conclude_anyhow(execution, ending or _cut_short(execution))


async def _keep(execution: Execution) -> None:
    """Returns when the end is durable; the response says so when it will not be."""
    try:
        await execution.world.journal.durable(execution.header.execution_id)
    except Failure as lost:
        execution.response = respond(execution, State.ERROR, Ending(failure=lost), [])


def replay(execution: Execution, story: Story) -> int:
    """Tells a recorded story again with no event loop and no world; the number of steps that were found identical.

    Raises: OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) at the first difference.
    """
    telling = _retell(execution, story)
    try:
        telling.send(None)
    except StopIteration:
        return execution.before.finish()
    telling.close()
    raise RuntimeError("a pattern awaits only its run; this one waits for something else")


async def tell(execution: Execution, story: Story) -> Ending:
    """Everything between INIT and the end. Raises: anyio's cancellation when it is stopped while it acts."""
    try:
        accepted = LifecycleTransition(None, State.INIT, execution.lifecycle.attempt, "accepted")
        execution.tell(INIT, execution.root, accepted)
        told = () if story.turn is None else await story.turn()
        run = Run(execution, now=execution.header.created_at, anchor=INIT)
        run.messages = told
        if story.planning is not None:
            run.enter(State.PLAN, "accepted")
            await story.planning(run)
        run.enter(State.PREPARE, "accepted" if story.planning is None else "planned")
        step = await execution.perform(
            Leaf(PREPARE, PREPARE, execution.root, story.prepare, end=_stage_ends, instant=True)
        )
        execution.prepared, execution.prepared_at = _prepared(step.outcome), step.at
        run.begin(execution.prepared, now=step.at)
        run.enter(State.EXECUTE, "prepared")
        produced = await story.pattern(run)
    except Failure as failure:
        return Ending(failure=failure)
    except Suspended:
        return Ending()
    except Dropped:
        return _cut_short(execution)
    said = () if execution.header.request.session_id is None else run.said
    return Ending(produced if isinstance(produced, Produced) else Produced(produced), said=said)


def conclude(execution: Execution, ending: Ending) -> None:
    """Records the end: the stages that were summed, the last transition, and the event that carries the response."""
    if execution.stopped is not None or execution.lost is not None:
        ending = _cut_short(execution)
    execution.ended = True
    state = state_of(ending)
    if execution.before.waits:
        if state is State.SUSPENDED:
            execution.response = last_event(execution, state, ending).response
            return
        execution.lifecycle = execution.lifecycle.after(State.SUSPENDED)
    stages: Sequence[StageEnd] = ()
    if state is not State.SUSPENDED:
        _end_steps(execution, ending)
        stages = _summed_stages(execution, ending)
    after = execution.lifecycle.after(state)
    moved = LifecycleTransition(execution.lifecycle.state, state, after.attempt, _reason(ending))
    last = last_event(execution, state, ending)
    turn = added(execution, ending.said, ending.produced) if ending.produced is not None else ()
    execution.tell(END, execution.root, *stages, moved, last)
    execution.put(turn)
    execution.lifecycle, execution.response = after, last.response


def _conclude_anyhow(execution: Execution, ending: Ending) -> None:
    """Records the end; where a bug of ours keeps us from telling how it ended, the least that there is to say."""
    try:
        conclude(execution, ending)
    except BaseException as bug:
        failed = bare_failure(execution.header, bug if isinstance(bug, Failure) else _broken_rule())
        place = execution.lifecycle
        moved = LifecycleTransition(place.state, State.ERROR, place.attempt, "bug")
        execution.tell(END, execution.root, moved, failed)
        execution.put()
        execution.response = failed.response
        raise


def _end_steps(execution: Execution, ending: Ending) -> None:
    """Steps of a plan that were begun and did not come to their end."""
    code = None if ending.failure is None else ending.failure.code
    for step in execution.open_steps:
        end = step.end(StepStatus.CANCELLED, at=execution.tally.last_at, code=code)
        execution.tell(step.anchor, step.context, end)


async def _retell(execution: Execution, story: Story) -> None:
    ending = await tell(execution, story)
    if ending.failure is not None and has_diverged(ending.failure):
        raise ending.failure
    if state_of(ending) is not State.SUSPENDED:
        conclude(execution, ending)


def _stage_ends(outcome: Outcome) -> list[StageEnd]:
    return [_stage_end(stage) for stage in outcome.stages] if isinstance(outcome, Prepared | Refused) else []


def _prepared(outcome: Outcome) -> Prepared:
    assert isinstance(outcome, Prepared | Refused)  # noqa: S101 - what PREPARE can come to
    if isinstance(outcome, Refused):
        raise outcome.failure()
    return outcome


def _cut_short(execution: Execution) -> Ending:
    if execution.lost is not None:
        return Ending(failure=execution.lost)
    if execution.stopped is not None:
        return Ending(failure=Cancellation(execution.stopped.code, execution.stopped.message))
    return Ending(failure=_broken_rule())


def _broken_rule() -> Failure:
    rule = "the service broke a rule of its own"
    return OrchestrationFailure(Code.ORCHESTRATION_INVALID_TRANSITION, rule)


def _summed_stages(execution: Execution, ending: Ending) -> list[StageEnd]:
    if execution.prepared is None:
        return []
    tally, outcome = execution.tally, "ok" if ending.failure is None else "failed"
    executing_ms = max(0.0, tally.last_at - execution.prepared_at) * 1000
    return [
        _stage_end(StageTrace("Execute", executing_ms, outcome)),
        _stage_end(StageTrace("FailoverDecide", tally.upstream_ms + tally.waited_ms, outcome)),
    ]


def _stage_end(stage: StageTrace) -> StageEnd:
    return StageEnd(stage.stage, stage.duration_ms, stage.outcome)


def _reason(ending: Ending) -> str:
    if ending.failure is not None:
        return ending.failure.code.lower()
    return "suspended" if ending.produced is None else "answered"
