"""The execution: one request's identity and journal, and `perform`, the one way anything is done to the world.

Theory of operation

1. A pattern is deterministic code; everything it does goes through a leaf: one attempt on one provider, one attempt
   at one tool, one wait, one question. `perform` looks the leaf up in the record first. What is recorded is not done
   again; its events are matched against the recorded ones, and a difference is ORCHESTRATION_REPLAY_DIVERGED.
2. A leaf that is not recorded is acted: its start event is put, it acts, its outcome and end event are put together.
   `Journal.put` is synchronous, so no checkpoint lies between an outcome and its record. Events that a pattern emits
   between two leaves are held until the next put, or the branch's end: one commit instead of many.
3. A start without an outcome is in doubt. Repeatable: it runs again, an inference after retracting its segment.
   Unsafe: it suspends the execution as `unknown_outcome`, for a person to say what happened.
4. Decision before cancellation: `stop` records why the execution ends, then cancels its scope. What was running
   records that it was cut off, and nothing is begun after it. A cancellation without a decision is a hand-over:
   nothing is recorded, the next owner continues. A race is decided in the same way, and so is the end of a branch's
   time: which branches counted is recorded, then whatever acts for the others is cut off; retold, they end there.
5. Three lives of one class. Live: no record. Recovery: a record that is a prefix; it ends where acting begins.
   Offline replay: the whole record and no world; branches run in turn and the event loop is never needed.

Task groups, scopes and timeouts of orchestration occur in this file alone. `Suspended` and `Dropped` never cross a
task group: a branch turns them into values, and `settle` raises them again once all branches have settled. A branch
that is called off is not cancelled as a whole, for it may be in the midst of being retold: only what acts is.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NoReturn, TypeVar

import anyio

from app.domain.contract.messages import Message
from app.domain.contract.response import SystemResponse
from app.domain.failures import Cancellation, Code, Failure
from app.domain.fingerprints import digest, span_id
from app.domain.journal.events import CorrelationContext, Event, LifecycleTransition, LiveDelta
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import AttemptCancelled, Outcome, Prepared, RaceDecided, RecordedStep, StopDecision
from app.domain.journal.step_key import STOP_KEY
from app.domain.lifecycle import Lifecycle, State
from app.domain.pattern_result import PatternResult
from app.orchestration.execution.branches import (
    BranchEnd,
    BranchStopped,
    BranchSuspended,
    Deadline,
    EarlyStop,
    TimeLimit,
    blocked_by,
    capture,
    collect,
    finished_results,
    has_diverged,
)
from app.orchestration.execution.effect import Effect, NonIdempotent, StepProgress, SuspensionRequest
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.ledger import Ledger, budget_for
from app.orchestration.execution.recorder import Recorder, ReplayCursor, diverged
from app.orchestration.execution.unknown_outcome import resolve
from app.ports.journal import ExecutionHistory, Journal

T = TypeVar("T")
NON_IDEMPOTENT_GRACE_S = 4.0
"""How long past the deadline an unsafe call may still finish before it is in doubt."""


class Execution:
    """One request on its way from INIT to its end.

    Promises that nothing is done twice that is recorded, and that what is recorded is always a prefix of what
    happened.
    """

    def __init__(
        self,
        header: ExecutionHeader,
        *,
        world: Environment | None,
        journal: Journal | None,
        record: ExecutionHistory | None = None,
    ) -> None:
        self.header = header
        self.lifecycle = Lifecycle(header.mode)
        self.ledger = Ledger(budget_for(header.bounds, record))
        self.open_questions: list[SuspensionRequest] = []
        self.prepared: Prepared | None = None
        self.prepared_at = 0.0
        self.prior_message_count = 0
        self.partial_result: PatternResult | None = None
        self.steps_in_progress: list[StepProgress] = []
        self.response: SystemResponse | None = None
        self.has_ended = False
        self.journal_failure: Failure | None = None
        self.handed_over = False
        self.live_attempts: dict[str, Callable[[], list[LiveDelta]]] = {}
        self.deadline: Deadline | None = None
        self.correlation = CorrelationContext(
            request_id=header.request_id,
            session_id=header.request.session_id,
            trace_id=header.trace_id,
            span_id=span_id(header.execution_id, ""),
            parent_span_id=header.parent_span_id,
            caused_by=None if header.fork is None else header.fork.origin,
        )
        self._world = world
        self._told = Recorder(header, journal, record)
        self._scope: anyio.CancelScope | None = None
        self._races = 0
        self._acting: dict[str, anyio.CancelScope] = {}
        self._doubtful: dict[str, Effect] = {}
        self._called_off: tuple[str, ...] = ()
        decided = self._told.history.step(STOP_KEY)
        self.stop_decision = decided.outcome if decided and isinstance(decided.outcome, StopDecision) else None
        self._concurrent = world is not None and self.stop_decision is None

    @property
    def environment(self) -> Environment:
        """The world to act through. Raises: Dropped when there is none, in an offline replay."""
        if self._world is None:
            raise BranchStopped
        return self._world

    @property
    def history(self) -> ReplayCursor:
        """What was recorded before this life of the execution."""
        return self._told.history

    @property
    def seconds_left(self) -> float:
        """Running time until the deadline."""
        return self.deadline.seconds_left if self.deadline else 0.0

    async def perform(self, leaf: Effect) -> RecordedStep:
        """The leaf's recorded step; acted first when there is none.

        Raises: Dropped, Suspended; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED).
        """
        row = self._told.recorded_step(leaf.key, leaf.fingerprint)
        if row is not None:
            return self._remembered(leaf, row)
        began = self._told.history.has_started(leaf.key)
        if self._over(leaf.key):
            if began and not self._told.is_read_only:
                self._told.history.mark_matched(leaf.key)
                self._record(
                    leaf,
                    leaf.non_idempotent.unknown_outcome if leaf.non_idempotent else AttemptCancelled(duration_ms=0.0),
                )
            raise BranchStopped
        if self._world is None:
            if leaf.non_idempotent and began:
                self._told.history.mark_matched(leaf.key)
                self._doubt(leaf, resolve(leaf.non_idempotent, self._told.history).question)
            raise diverged(leaf.key, recorded=None, replayed=leaf.fingerprint)
        if began and leaf.non_idempotent:
            return await self._resolve(leaf, leaf.non_idempotent)
        self._told.start(leaf, began=began)
        if not leaf.instant:
            self._told.commit()
        if leaf.non_idempotent:
            return await self._act_once(leaf, leaf.non_idempotent, 0)
        return await (self._act_in_race(leaf) if self._races else self._act(leaf))

    def answer_to(self, question: SuspensionRequest) -> RecordedStep:
        """The recorded answer to the question. Raises: Suspended when there is none yet; Dropped when stopped."""
        row = self._told.recorded_step(question.key, question.fingerprint)
        if row is None:
            if self._over(question.key):
                raise BranchStopped
            self._ask(question)
        return row

    def emit(self, anchor: str, context: CorrelationContext, *events: Event) -> None:
        """Puts events that hang behind that step. Raises: Dropped once the execution was stopped, or its branch."""
        fresh = self._told.history.match(anchor, events)
        if fresh and self._over(anchor):
            raise BranchStopped
        self._told.buffer(anchor, context, fresh)

    def record(self, anchor: str, context: CorrelationContext, *events: Event) -> None:
        """Says events that hang behind that step, stopped or not; they are put with what comes next."""
        self._told.record(anchor, context, events)

    def commit(self, new_messages: Sequence[Message] = ()) -> None:
        """Puts what was told, and with the last events what the session's conversation grows by."""
        self._told.commit(new_messages=new_messages)

    def transition_to(self, anchor: str, to: State, reason: str) -> None:
        """Moves the lifecycle. Raises: Dropped once the execution was stopped; nothing is moved then."""
        after = self.lifecycle.transition_to(to)
        self.emit(anchor, self.correlation, LifecycleTransition(self.lifecycle.state, to, after.attempt, reason))
        self.lifecycle = after

    def stop(self, code: Code, message: str) -> None:
        """Decides, on the record, that the execution ends, then cancels what runs. The first decision stands."""
        if self.has_ended or self.stop_decision is not None:
            return
        self.stop_decision = StopDecision(code, message)
        self._told.commit(
            RecordedStep(STOP_KEY, digest(STOP_KEY, code), self.stop_decision, self.environment.clock.now())
        )
        if self._scope is not None:
            self._scope.cancel()

    def abandon(self, failure: Failure | None = None) -> None:
        """Stops what runs and records nothing of it: it ends with that failure, or its next owner goes on."""
        self.journal_failure, self.handed_over = failure, failure is None
        if self._scope is not None:
            self._scope.cancel()

    async def gather(
        self,
        branches: Sequence[Callable[[], Awaitable[T]]],
        early_stop: EarlyStop[T] | None = None,
        after: Mapping[int, Sequence[int]] = MappingProxyType({}),
    ) -> dict[int, T | Failure]:
        """Runs the branches at once and returns their results in order, a failed one as its failure.

        Never fails fast. Those that a branch comes `after`, earlier ones all, have settled when it begins; it shares
        the end of one that was dropped or waits. One branch alone, and all of an offline replay, are awaited in turn.
        Of a race that was decided only what counted is returned. Raises: Dropped or Suspended when any branch did that
        counts, once all have settled; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when any did.
        """
        settled: dict[int, BranchEnd[T]] = {}

        async def run(index: int) -> None:
            settled[index] = await capture(branches[index], blocked_by(settled, after.get(index, ())))
            if early_stop is not None:
                self._judge(early_stop, settled)

        async def run_after(earlier: Sequence[anyio.Event], index: int) -> None:
            for each in earlier:
                await each.wait()
            await run(index)
            self._told.commit()
            ended[index].set()

        self._races += early_stop is not None
        if early_stop is not None:
            self._recall(early_stop)
        if len(branches) > 1 and self._concurrent:
            async with anyio.create_task_group() as group:
                ended = [anyio.Event() for _ in branches]
                for index in range(len(branches)):
                    group.start_soon(run_after, [ended[each] for each in after.get(index, ())], index)
        else:
            for index in range(len(branches)):
                await run(index)
        self._races -= early_stop is not None
        counted = range(len(branches)) if early_stop is None or early_stop.winners is None else early_stop.winners
        return collect(settled, counted)

    async def with_timeout(self, limit: TimeLimit, branch: Callable[[], Awaitable[T]]) -> T:
        """The branch's result. That its time has passed is recorded first, then what acts in it is cut off.

        Raises: Cancellation (CANCELLED_TIMEOUT) then.
        """
        row = self._told.recorded_step(limit.key, limit.fingerprint)
        if row is not None:
            self._pass(limit, row)
        live = self._world is not None and row is None
        forget = self.environment.clock.call_later(limit.seconds, partial(self._pass, limit)) if live else None
        self._races += 1
        try:
            result = await branch()
        except BranchStopped:
            if limit.expired_at is None:
                raise
        finally:
            self._races -= 1
            if forget is not None:
                forget()
        if limit.expired_at is not None:
            raise Cancellation(Code.CANCELLED_TIMEOUT, f"it took longer than {limit.seconds:g} s")
        return result

    async def run_with_deadline(self, story: Callable[[], Awaitable[T]]) -> T | None:
        """The story's result, or None when it was stopped: by `stop`, or by the deadline that passed."""
        seconds = self._told.history.remaining_seconds(self.header.bounds.timeout)
        passed = partial(self.stop, Code.CANCELLED_TIMEOUT, "the deadline passed")
        self.deadline = Deadline(self.environment.clock, seconds, passed)
        with anyio.CancelScope() as self._scope, self.deadline:
            return await story()
        return None

    async def compute(self, work: Callable[[], T]) -> T:
        """Do long work on a thread, in an offline replay right here, and return what it returns."""
        return work() if self._world is None else await self._world.thread_pool.run(work)

    def _is_called_off(self, key: str) -> bool:
        return bool(self._called_off) and f"{key}/".startswith(self._called_off)

    def _over(self, key: str) -> bool:
        """Whether nothing more is begun there."""
        return self.stop_decision is not None or self.journal_failure is not None or self._is_called_off(key)

    def _recall(self, race: EarlyStop[T]) -> None:
        row = self._told.recorded_step(race.key, race.fingerprint)
        if row is not None:
            race.apply(row)
            self._call_off(race.cancelled_prefixes)

    def _judge(self, race: EarlyStop[T], settled: dict[int, BranchEnd[T]]) -> None:
        """Decides the race when what has finished is enough, on the record first."""
        ended = finished_results(settled)
        if race.winners is not None or self._over(race.key) or any(map(has_diverged, ended.values())):
            return
        if race.until(ended):
            if self._told.is_read_only:
                raise diverged(race.key, recorded=None, replayed=race.fingerprint)
            race.apply(self._decide(race.key, race.fingerprint, tuple(ended)))
            self._call_off(race.cancelled_prefixes)

    def _pass(self, limit: TimeLimit, row: RecordedStep | None = None) -> None:
        """The branch's time has passed; recorded now unless it was."""
        if row is None and self._over(limit.key):
            return
        limit.expired_at = (row or self._decide(limit.key, limit.fingerprint, ())).at
        self._call_off((limit.prefix,))

    def _decide(self, key: str, fingerprint: str, counted: tuple[int, ...]) -> RecordedStep:
        row = RecordedStep(key, fingerprint, RaceDecided(counted), self.environment.clock.now())
        self._told.commit(row)
        return row

    def _call_off(self, branches: tuple[str, ...]) -> None:
        """Nothing more is begun below these keys, and what acts there is cut off."""
        self._called_off += branches
        self.ledger.excluded_prefixes += branches
        self.open_questions = [question for question in self.open_questions if not self._is_called_off(question.key)]
        for key in [key for key in self._doubtful if self._is_called_off(key)]:
            leaf = self._doubtful.pop(key)
            if leaf.non_idempotent is not None:
                self._record(leaf, leaf.non_idempotent.unknown_outcome)
        for key, scope in self._acting.items():
            if self._is_called_off(key):
                scope.cancel()

    def _remembered(self, leaf: Effect, row: RecordedStep) -> RecordedStep:
        if leaf.non_idempotent:
            resolve(leaf.non_idempotent, self._told.history)
        self._told.replay(leaf, row)
        leaf.count(row)
        if isinstance(row.outcome, AttemptCancelled):
            raise BranchStopped
        return row

    async def _act(self, leaf: Effect) -> RecordedStep:
        began_at = self.environment.clock.monotonic()
        try:
            outcome = await leaf.run()
        except anyio.get_cancelled_exc_class():
            if self._over(leaf.key):
                ran_ms = (self.environment.clock.monotonic() - began_at) * 1000
                self._record(
                    leaf, leaf.cancelled_outcome() if leaf.cancelled_outcome else AttemptCancelled(duration_ms=ran_ms)
                )
            raise
        return self._record(leaf, outcome)

    async def _act_in_race(self, leaf: Effect) -> RecordedStep:
        """Acts until it is done or its branch is called off."""
        with anyio.CancelScope() as self._acting[leaf.key]:
            try:
                return await self._act(leaf)
            finally:
                del self._acting[leaf.key]
        raise BranchStopped

    async def _act_once(self, leaf: Effect, unsafe: NonIdempotent, number: int) -> RecordedStep:
        """The run of that number, counted from 0."""
        await self._intend(leaf)
        with anyio.CancelScope(shield=True):
            outcome = await leaf.run()
        if not unsafe.is_uncertain(outcome):
            return self._record(leaf, outcome)
        if not self._over(leaf.key):
            self._doubt(leaf, unsafe.question(number))
        return self._record(leaf, unsafe.unknown_outcome)

    async def _intend(self, leaf: Effect) -> None:
        """Returns when it is certain that the call will be known to have begun. Raises: Dropped, StorageFailure."""
        try:
            await self.environment.journal.durable(self.header.execution_id)
        except anyio.get_cancelled_exc_class():
            if self._over(leaf.key):
                self._record(leaf, AttemptCancelled(duration_ms=0.0))
            raise
        if self._over(leaf.key):
            self._record(leaf, AttemptCancelled(duration_ms=0.0))
            raise BranchStopped

    async def _resolve(self, leaf: Effect, unsafe: NonIdempotent) -> RecordedStep:
        """What becomes of a call that began and has no outcome: what somebody said. Raises: Suspended, until then."""
        self._told.history.mark_matched(leaf.key)
        doubt = resolve(unsafe, self._told.history)
        if doubt.outcome is not None:
            return self._record(leaf, doubt.outcome)
        if not doubt.may_rerun:
            self._doubt(leaf, doubt.question)
        self._decide(doubt.rerun_key, leaf.fingerprint, ())
        return await self._act_once(leaf, unsafe, doubt.number + 1)

    def _doubt(self, leaf: Effect, question: SuspensionRequest) -> NoReturn:
        self._doubtful[leaf.key] = leaf
        self._ask(question)

    def _ask(self, question: SuspensionRequest) -> NoReturn:
        self.open_questions.append(question)
        raise BranchSuspended

    def _record(self, leaf: Effect, outcome: Outcome) -> RecordedStep:
        row = RecordedStep(leaf.key, leaf.fingerprint, outcome, self.environment.clock.now())
        self._told.buffer(leaf.key, leaf.correlation, leaf.end_events(outcome))
        self._told.commit(row)
        leaf.count(row)
        return row
