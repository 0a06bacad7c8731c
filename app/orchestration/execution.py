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

from app.domain.boundary import SystemResponse
from app.domain.digests import digest, span_id
from app.domain.effects import STOP, CutOff, Decided, Header, Outcome, Prepared, Row, Stopped
from app.domain.events import CorrelationContext, Event, LifecycleTransition, Live
from app.domain.failures import Cancellation, Code, Failure
from app.domain.lifecycle import Lifecycle, State
from app.domain.messages import Message
from app.domain.pausing import Pausing, at_once
from app.domain.produced import Produced
from app.orchestration.budget import budget_of
from app.orchestration.deadline import Deadline
from app.orchestration.doubting import doubt_about
from app.orchestration.leaf import Leaf, OpenStep, Question, Race, TimeLimit, UnsafeCall
from app.orchestration.record import Recollection, diverged
from app.orchestration.settling import Dropped, Settled, Suspended, as_value, finished, has_diverged, held_up, results
from app.orchestration.tally import Tally
from app.orchestration.telling import Telling
from app.orchestration.world import World
from app.ports import Journal, Record

T = TypeVar("T")
GRACE_FOR_UNSAFE_S = 4.0
"""How long past the deadline an unsafe call may still finish before it is in doubt."""


class Execution:
    """One request on its way from INIT to its end.

    Promises that nothing is done twice that is recorded, and that what is recorded is always a prefix of what
    happened.
    """

    def __init__(
        self, header: Header, *, world: World | None, journal: Journal | None, record: Record | None = None
    ) -> None:
        self.header = header
        self.lifecycle = Lifecycle(header.mode)
        self.tally = Tally(budget_of(header.bounds, record))
        self.questions: list[Question] = []
        self.prepared: Prepared | None = None
        self.prepared_at = 0.0
        self.said_before = 0
        self.draft: Produced | None = None
        self.open_steps: list[OpenStep] = []
        self.response: SystemResponse | None = None
        self.ended = False
        self.lost: Failure | None = None
        self.handed_over = False
        self.speaking: dict[str, Callable[[], list[Live]]] = {}
        self.deadline: Deadline | None = None
        self.root = CorrelationContext(
            request_id=header.request_id,
            session_id=header.request.session_id,
            trace_id=header.trace_id,
            span_id=span_id(header.execution_id, ""),
            parent_span_id=header.parent_span_id,
            caused_by=None if header.fork is None else header.fork.origin,
        )
        self._world = world
        self._told = Telling(header, journal, record)
        self._scope: anyio.CancelScope | None = None
        self._races = 0
        self._acting: dict[str, anyio.CancelScope] = {}
        self._doubtful: dict[str, Leaf] = {}
        self._called_off: tuple[str, ...] = ()
        decided = self._told.before.row(STOP)
        self.stopped = decided.outcome if decided and isinstance(decided.outcome, Stopped) else None
        self._concurrent = world is not None and self.stopped is None

    @property
    def world(self) -> World:
        """The world to act through. Raises: Dropped when there is none, in an offline replay."""
        if self._world is None:
            raise Dropped
        return self._world

    @property
    def before(self) -> Recollection:
        """What was recorded before this life of the execution."""
        return self._told.before

    @property
    def seconds_left(self) -> float:
        """Running time until the deadline."""
        return self.deadline.seconds_left if self.deadline else 0.0

    async def perform(self, leaf: Leaf) -> Row:
        """The leaf's recorded step; acted first when there is none.

        Raises: Dropped, Suspended; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED).
        """
        row = self._told.step(leaf.key, leaf.fingerprint)
        if row is not None:
            return self._remembered(leaf, row)
        began = self._told.before.began(leaf.key)
        if self._over(leaf.key):
            if began and not self._told.is_over:
                self._told.before.skip(leaf.key)
                self._record(leaf, leaf.unsafe.unknown if leaf.unsafe else CutOff(duration_ms=0.0))
            raise Dropped
        if self._world is None:
            if leaf.unsafe and began:
                self._told.before.skip(leaf.key)
                self._doubt(leaf, doubt_about(leaf.unsafe, self._told.before).question)
            raise diverged(leaf.key, recorded=None, replayed=leaf.fingerprint)
        if began and leaf.unsafe:
            return await self._resolve(leaf, leaf.unsafe)
        self._told.begin(leaf, began=began)
        if not leaf.instant:
            self._told.put()
        if leaf.unsafe:
            return await self._act_once(leaf, leaf.unsafe, 0)
        return await (self._act_in_race(leaf) if self._races else self._act(leaf))

    def answer(self, question: Question) -> Row:
        """The recorded answer to the question. Raises: Suspended when there is none yet; Dropped when stopped."""
        row = self._told.step(question.key, question.fingerprint)
        if row is None:
            if self._over(question.key):
                raise Dropped
            self._ask(question)
        return row

    def emit(self, anchor: str, context: CorrelationContext, *events: Event) -> None:
        """Puts events that hang behind that step. Raises: Dropped once the execution was stopped, or its branch."""
        fresh = self._told.before.unmatched(anchor, events)
        if fresh and self._over(anchor):
            raise Dropped
        self._told.hold(anchor, context, fresh)

    def tell(self, anchor: str, context: CorrelationContext, *events: Event) -> None:
        """Says events that hang behind that step, stopped or not; they are put with what comes next."""
        self._told.say(anchor, context, events)

    def put(self, turn: Sequence[Message] = ()) -> None:
        """Puts what was told, and with the last events what the session's conversation grows by."""
        self._told.put(turn=turn)

    def advance(self, anchor: str, to: State, reason: str) -> None:
        """Moves the lifecycle. Raises: Dropped once the execution was stopped; nothing is moved then."""
        after = self.lifecycle.after(to)
        self.emit(anchor, self.root, LifecycleTransition(self.lifecycle.state, to, after.attempt, reason))
        self.lifecycle = after

    def stop(self, code: Code, message: str) -> None:
        """Decides, on the record, that the execution ends, then cancels what runs. The first decision stands."""
        if self.ended or self.stopped is not None:
            return
        self.stopped = Stopped(code, message)
        self._told.put(Row(STOP, digest(STOP, code), self.stopped, self.world.clock.now()))
        if self._scope is not None:
            self._scope.cancel()

    def leave(self, failure: Failure | None = None) -> None:
        """Stops what runs and records nothing of it: it ends with that failure, or its next owner goes on."""
        self.lost, self.handed_over = failure, failure is None
        if self._scope is not None:
            self._scope.cancel()

    async def settle(
        self,
        branches: Sequence[Callable[[], Awaitable[T]]],
        race: Race[T] | None = None,
        after: Mapping[int, Sequence[int]] = MappingProxyType({}),
    ) -> dict[int, T | Failure]:
        """Runs the branches at once and returns their results in order, a failed one as its failure.

        Never fails fast. Those that a branch comes `after`, earlier ones all, have settled when it begins; it shares
        the end of one that was dropped or waits. One branch alone, and all of an offline replay, are awaited in turn.
        Of a race that was decided only what counted is returned. Raises: Dropped or Suspended when any branch did that
        counts, once all have settled; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when any did.
        """
        settled: dict[int, Settled[T]] = {}

        async def run(index: int) -> None:
            settled[index] = await as_value(branches[index], held_up(settled, after.get(index, ())))
            if race is not None:
                self._judge(race, settled)

        async def run_after(earlier: Sequence[anyio.Event], index: int) -> None:
            for each in earlier:
                await each.wait()
            await run(index)
            self._told.put()
            ended[index].set()

        self._races += race is not None
        if race is not None:
            self._recall(race)
        if len(branches) > 1 and self._concurrent:
            async with anyio.create_task_group() as group:
                ended = [anyio.Event() for _ in branches]
                for index in range(len(branches)):
                    group.start_soon(run_after, [ended[each] for each in after.get(index, ())], index)
        else:
            for index in range(len(branches)):
                await run(index)
        self._races -= race is not None
        counted = range(len(branches)) if race is None or race.counted is None else race.counted
        return results(settled, counted)

    async def within(self, limit: TimeLimit, branch: Callable[[], Awaitable[T]]) -> T:
        """The branch's result. That its time has passed is recorded first, then what acts in it is cut off.

        Raises: Cancellation (CANCELLED_TIMEOUT) then.
        """
        row = self._told.step(limit.key, limit.fingerprint)
        if row is not None:
            self._pass(limit, row)
        live = self._world is not None and row is None
        forget = self.world.clock.call_later(limit.seconds, partial(self._pass, limit)) if live else None
        self._races += 1
        try:
            result = await branch()
        except Dropped:
            if limit.passed_at is None:
                raise
        finally:
            self._races -= 1
            if forget is not None:
                forget()
        if limit.passed_at is not None:
            raise Cancellation(Code.CANCELLED_TIMEOUT, f"it took longer than {limit.seconds:g} s")
        return result

    async def within_deadline(self, story: Callable[[], Awaitable[T]]) -> T | None:
        """The story's result, or None when it was stopped: by `stop`, or by the deadline that passed."""
        seconds = self._told.before.seconds_left(self.header.bounds.timeout)
        passed = partial(self.stop, Code.CANCELLED_TIMEOUT, "the deadline passed")
        self.deadline = Deadline(self.world.clock, seconds, passed)
        with anyio.CancelScope() as self._scope, self.deadline:
            return await story()
        return None

    async def work(self, work: Pausing[T]) -> T:
        """What the work comes to; an offline replay does it without a pause."""
        return at_once(work) if self._world is None else await self._world.turns.do(work)

    def _is_called_off(self, key: str) -> bool:
        return bool(self._called_off) and f"{key}/".startswith(self._called_off)

    def _over(self, key: str) -> bool:
        """Whether nothing more is begun there."""
        return self.stopped is not None or self.lost is not None or self._is_called_off(key)

    def _recall(self, race: Race[T]) -> None:
        row = self._told.step(race.key, race.fingerprint)
        if row is not None:
            race.decide(row)
            self._call_off(race.called_off)

    def _judge(self, race: Race[T], settled: dict[int, Settled[T]]) -> None:
        """Decides the race when what has finished is enough, on the record first."""
        ended = finished(settled)
        if race.counted is not None or self._over(race.key) or any(map(has_diverged, ended.values())):
            return
        if race.until(ended):
            if self._told.is_over:
                raise diverged(race.key, recorded=None, replayed=race.fingerprint)
            race.decide(self._decide(race.key, race.fingerprint, tuple(ended)))
            self._call_off(race.called_off)

    def _pass(self, limit: TimeLimit, row: Row | None = None) -> None:
        """The branch's time has passed; recorded now unless it was."""
        if row is None and self._over(limit.key):
            return
        limit.passed_at = (row or self._decide(limit.key, limit.fingerprint, ())).at
        self._call_off((limit.branch,))

    def _decide(self, key: str, fingerprint: str, counted: tuple[int, ...]) -> Row:
        row = Row(key, fingerprint, Decided(counted), self.world.clock.now())
        self._told.put(row)
        return row

    def _call_off(self, branches: tuple[str, ...]) -> None:
        """Nothing more is begun below these keys, and what acts there is cut off."""
        self._called_off += branches
        self.tally.unheard += branches
        self.questions = [question for question in self.questions if not self._is_called_off(question.key)]
        for key in [key for key in self._doubtful if self._is_called_off(key)]:
            leaf = self._doubtful.pop(key)
            if leaf.unsafe is not None:
                self._record(leaf, leaf.unsafe.unknown)
        for key, scope in self._acting.items():
            if self._is_called_off(key):
                scope.cancel()

    def _remembered(self, leaf: Leaf, row: Row) -> Row:
        if leaf.unsafe:
            doubt_about(leaf.unsafe, self._told.before)
        self._told.remember(leaf, row)
        leaf.count(row)
        if isinstance(row.outcome, CutOff):
            raise Dropped
        return row

    async def _act(self, leaf: Leaf) -> Row:
        began_at = self.world.clock.monotonic()
        try:
            outcome = await leaf.act()
        except anyio.get_cancelled_exc_class():
            if self._over(leaf.key):
                ran_ms = (self.world.clock.monotonic() - began_at) * 1000
                self._record(leaf, leaf.cut_off() if leaf.cut_off else CutOff(duration_ms=ran_ms))
            raise
        return self._record(leaf, outcome)

    async def _act_in_race(self, leaf: Leaf) -> Row:
        """Acts until it is done or its branch is called off."""
        with anyio.CancelScope() as self._acting[leaf.key]:
            try:
                return await self._act(leaf)
            finally:
                del self._acting[leaf.key]
        raise Dropped

    async def _act_once(self, leaf: Leaf, unsafe: UnsafeCall, number: int) -> Row:
        """The run of that number, counted from 0."""
        await self._intend(leaf)
        with anyio.CancelScope(shield=True):
            outcome = await leaf.act()
        if not unsafe.doubtful(outcome):
            return self._record(leaf, outcome)
        if not self._over(leaf.key):
            self._doubt(leaf, unsafe.question(number))
        return self._record(leaf, unsafe.unknown)

    async def _intend(self, leaf: Leaf) -> None:
        """Returns when it is certain that the call will be known to have begun. Raises: Dropped, StorageFailure."""
        try:
            await self.world.journal.durable(self.header.execution_id)
        except anyio.get_cancelled_exc_class():
            if self._over(leaf.key):
                self._record(leaf, CutOff(duration_ms=0.0))
            raise
        if self._over(leaf.key):
            self._record(leaf, CutOff(duration_ms=0.0))
            raise Dropped

    async def _resolve(self, leaf: Leaf, unsafe: UnsafeCall) -> Row:
        """What becomes of a call that began and has no outcome: what somebody said. Raises: Suspended, until then."""
        self._told.before.skip(leaf.key)
        doubt = doubt_about(unsafe, self._told.before)
        if doubt.outcome is not None:
            return self._record(leaf, doubt.outcome)
        if not doubt.may_run:
            self._doubt(leaf, doubt.question)
        self._decide(doubt.intent, leaf.fingerprint, ())
        return await self._act_once(leaf, unsafe, doubt.number + 1)

    def _doubt(self, leaf: Leaf, question: Question) -> NoReturn:
        self._doubtful[leaf.key] = leaf
        self._ask(question)

    def _ask(self, question: Question) -> NoReturn:
        self.questions.append(question)
        raise Suspended

    def _record(self, leaf: Leaf, outcome: Outcome) -> Row:
        row = Row(leaf.key, leaf.fingerprint, outcome, self.world.clock.now())
        self._told.hold(leaf.key, leaf.correlation, leaf.end(outcome))
        self._told.put(row)
        leaf.count(row)
        return row
