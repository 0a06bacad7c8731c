"""The execution: one request's identity and journal, and `perform`, the one way anything is done to the world.

Theory of operation

1. A pattern is deterministic code; everything it does goes through a leaf: one attempt on one provider, one attempt
   at one tool, one wait, one question. `perform` looks the leaf up in the record first. What is recorded is not done
   again; its events are matched against the recorded ones, and a difference is ORCHESTRATION_REPLAY_DIVERGED.
2. A leaf that is not recorded is acted: its start event is put, it acts, its outcome and end event are put together.
   `Journal.put` is synchronous, so no checkpoint lies between an outcome and its record. Events that a pattern emits
   between two leaves are held until the next put, which nothing can come before: one commit instead of many.
3. A start without an outcome is in doubt. Repeatable: it runs again, an inference after retracting its segment.
   Unsafe: it suspends the execution as `unknown_outcome`, for a person to say what happened.
4. Decision before cancellation: `stop` records why the execution ends, then cancels its scope. What was running
   records that it was cut off, and nothing is begun after it. A cancellation without a decision is a hand-over:
   nothing is recorded, the next owner continues. A race is decided in the same way: which branches counted is
   recorded, then whatever still acts for the others is cut off; retold, they end where their record does.
5. Three lives of one class. Live: no record. Recovery: a record that is a prefix; it ends where acting begins.
   Offline replay: the whole record and no world; branches run in turn and the event loop is never needed.

Task groups, scopes and timeouts of orchestration occur in this file alone. `Suspended` and `Dropped` never cross a
task group: a branch turns them into values, and `settle` raises them again once all branches have settled. A branch
that is called off is not cancelled as a whole, for it may be in the midst of being retold: only what acts is.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import anyio

from app.capabilities.failover import ProviderHealth
from app.capabilities.inference import Catalogue
from app.capabilities.tools.executor import ToolExecutor
from app.capabilities.tools.registry import ToolRegistry
from app.domain.boundary import SystemResponse
from app.domain.effects import STOP, CutOff, Decided, Header, Outcome, Prepared, Row, Stopped, digest, span_id
from app.domain.events import (
    Anchored,
    CorrelationContext,
    Event,
    InferenceDelta,
    InferenceRetracted,
    InferenceStart,
    LifecycleTransition,
)
from app.domain.failures import Code, Failure
from app.domain.lifecycle import Lifecycle, State
from app.domain.produced import Produced
from app.orchestration.leaf import Leaf, Question, Race
from app.orchestration.record import Recollection, diverged
from app.orchestration.settling import Dropped, Settled, Suspended, as_value, has_diverged, results
from app.orchestration.tally import Tally
from app.ports import Clock, Entropy, Journal, Record, TokenCounter, Watchers, Workers

T = TypeVar("T")
GRACE_FOR_UNSAFE_S = 4.0
"""How long past the deadline an unsafe call may still finish before it is in doubt."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything an execution acts through."""

    journal: Journal
    clock: Clock
    entropy: Entropy
    watchers: Watchers
    catalogue: Catalogue
    registry: ToolRegistry
    tools: ToolExecutor
    health: ProviderHealth
    counter: TokenCounter
    workers: Workers


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
        self.tally = Tally()
        self.questions: list[Question] = []
        self.prepared: Prepared | None = None
        self.prepared_at = 0.0
        self.draft: Produced | None = None
        self.response: SystemResponse | None = None
        self.ended = False
        self.deadline = 0.0
        self.root = CorrelationContext(
            request_id=header.request_id,
            session_id=header.request.session_id,
            trace_id=header.trace_id,
            span_id=span_id(header.execution_id, ""),
            parent_span_id=header.parent_span_id,
        )
        self._world = world
        self._journal = journal
        self._recollection = Recollection(record)
        self._held: list[Anchored] = []
        self._scope: anyio.CancelScope | None = None
        self._races = 0
        self._acting: dict[str, anyio.CancelScope] = {}
        self._doubtful: dict[str, Leaf] = {}
        self._called_off: tuple[str, ...] = ()
        decided = self._recollection.row(STOP)
        self.stopped = decided.outcome if decided and isinstance(decided.outcome, Stopped) else None
        self._concurrent = world is not None and self.stopped is None

    @property
    def world(self) -> World:
        """The world to act through. Raises: Dropped when there is none, in an offline replay."""
        if self._world is None:
            raise Dropped
        return self._world

    @property
    def seconds_left(self) -> float:
        """Running time until the deadline."""
        return max(0.0, self.deadline - self.world.clock.monotonic())

    def span(self, key: str, caused_by: str | None = None) -> CorrelationContext:
        """The correlation of what happens at that step: a span of its own, below the root."""
        own = span_id(self.header.execution_id, key)
        return replace(self.root, span_id=own, parent_span_id=self.root.span_id, caused_by=caused_by)

    async def perform(self, leaf: Leaf) -> Row:
        """The leaf's recorded step; acted first when there is none.

        Raises: Dropped, Suspended; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED).
        """
        row = self._recollection.row(leaf.key)
        if row is not None:
            return self._remembered(leaf, row)
        began = self._recollection.began(leaf.key)
        if self._over(leaf.key):
            if began and self._journal is not None:
                self._recollection.skip(leaf.key)
                self._record(leaf, leaf.unsafe.unknown if leaf.unsafe else CutOff(duration_ms=0.0))
            raise Dropped
        if self._world is None:
            if leaf.unsafe and began:
                self._recollection.skip(leaf.key)
                self._doubt(leaf)
            raise diverged(leaf.key, recorded=None, replayed=leaf.fingerprint)
        self._begin(leaf, began=began)
        if not leaf.instant:
            self._flush()
        if leaf.unsafe:
            return await self._act_once(leaf)
        return await (self._act_in_race(leaf) if self._races else self._act(leaf))

    def answer(self, question: Question, fingerprint: str) -> Row:
        """The recorded answer to the question. Raises: Suspended when there is none yet; Dropped when stopped."""
        row = self._recollection.row(question.key)
        if row is None:
            if self._over(question.key):
                raise Dropped
            self._ask(question)
        assert row is not None  # noqa: S101 - _ask never returns
        self._same(row, fingerprint)
        return row

    def emit(self, anchor: str, *events: Event) -> None:
        """Puts events that hang behind that step. Raises: Dropped once the execution was stopped, or its branch."""
        fresh = self._recollection.unmatched(anchor, events)
        if fresh and self._over(anchor):
            raise Dropped
        self._hold(anchor, fresh, self.root)

    def begin(self, anchor: str, event: Event) -> None:
        """Puts the first event, stopped or not."""
        self._hold(anchor, self._recollection.unmatched(anchor, (event,)), self.root)

    def conclude(self, anchor: str, *events: Event) -> None:
        """Puts the last events, stopped or not."""
        self._hold(anchor, self._recollection.unmatched(anchor, events), self.root)
        self._flush()

    def advance(self, anchor: str, to: State, reason: str) -> None:
        """Moves the lifecycle. Raises: Dropped once the execution was stopped; nothing is moved then."""
        after = self.lifecycle.after(to)
        self.emit(anchor, LifecycleTransition(self.lifecycle.state, to, after.attempt, reason))
        self.lifecycle = after

    def teller(self, correlation: CorrelationContext) -> Callable[[InferenceDelta], None]:
        """What publishes pieces of an answer to whoever is watching."""
        return partial(self.world.journal.delta, self.header.execution_id, correlation)

    def stop(self, code: Code, message: str) -> None:
        """Decides, on the record, that the execution ends, then cancels what runs. The first decision stands."""
        if self.ended or self.stopped is not None:
            return
        self.stopped = Stopped(code, message)
        self._flush(Row(STOP, digest(STOP, code), self.stopped, self.world.clock.now()))
        if self._scope is not None:
            self._scope.cancel()

    async def settle(
        self, branches: Sequence[Callable[[], Awaitable[T]]], race: Race[T] | None = None
    ) -> dict[int, T | Failure]:
        """Runs the branches at once and returns their results in order, a failed one as its failure.

        Never fails fast. One branch alone, and all branches of an offline replay, are awaited in turn. Of a race that
        was decided only the results that counted are returned. Raises: Dropped or Suspended when any branch did that
        counts, once all have settled; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) when any did.
        """
        settled: dict[int, Settled[T]] = {}

        async def run(index: int) -> None:
            settled[index] = await as_value(branches[index])
            if race is not None:
                self._judge(race, settled)

        if race is not None:
            self._recall(race)
        if len(branches) > 1 and self._concurrent:
            async with anyio.create_task_group() as group:
                for index in range(len(branches)):
                    group.start_soon(run, index)
        else:
            for index in range(len(branches)):
                await run(index)
        self._races -= race is not None
        counted = range(len(branches)) if race is None or race.counted is None else race.counted
        return results(settled, counted)

    async def within_deadline(self, story: Callable[[], Awaitable[T]], seconds: float) -> T | None:
        """The story's result, or None when it was stopped: by `stop`, or by the deadline that passed.

        `seconds` are of running time.
        """
        clock = self.world.clock
        self.deadline = clock.monotonic() + seconds
        with anyio.CancelScope() as self._scope:
            call_off = clock.call_later(seconds, self._run_out)
            try:
                return await story()
            finally:
                call_off()
        return None

    def finish_replay(self) -> int:
        """The number of recorded steps. Raises: OrchestrationFailure when any was not asked for."""
        return self._recollection.finish()

    def called_off(self, key: str) -> bool:
        """Whether that step belongs to a branch that did not count."""
        return bool(self._called_off) and f"{key}/".startswith(self._called_off)

    def _over(self, key: str) -> bool:
        """Whether nothing more is begun there."""
        return self.stopped is not None or self.called_off(key)

    def _recall(self, race: Race[T]) -> None:
        self._races += 1
        row = self._recollection.row(race.key)
        if row is not None:
            self._same(row, race.fingerprint)
            race.decide(row)
            self._call_off(race)

    def _judge(self, race: Race[T], settled: dict[int, Settled[T]]) -> None:
        """Decides the race when what has finished is enough, on the record first."""
        in_order = sorted(settled.items(), key=lambda each: each[0])
        finished = {index: each for index, each in in_order if not isinstance(each, Dropped | Suspended)}
        if race.counted is not None or self._over(race.key) or any(map(has_diverged, finished.values())):
            return
        if race.until(finished):
            if self._journal is None:
                raise diverged(race.key, recorded=None, replayed=race.fingerprint)
            row = Row(race.key, race.fingerprint, Decided(tuple(finished)), self.world.clock.now())
            self._flush(row)
            race.decide(row)
            self._call_off(race)

    def _call_off(self, race: Race[T]) -> None:
        self._called_off += race.called_off
        self.tally.unheard = self._called_off
        self.questions = [question for question in self.questions if not self.called_off(question.key)]
        for key in [key for key in self._doubtful if self.called_off(key)]:
            leaf = self._doubtful.pop(key)
            if leaf.unsafe is not None:
                self._record(leaf, leaf.unsafe.unknown)
        for key, scope in self._acting.items():
            if self.called_off(key):
                scope.cancel()

    def _run_out(self) -> None:
        self.stop(Code.CANCELLED_TIMEOUT, "the deadline passed")

    def _remembered(self, leaf: Leaf, row: Row) -> Row:
        self._same(row, leaf.fingerprint)
        self._recollection.from_last_start(leaf.key)
        events = [leaf.start] if leaf.start else []
        self._hold(
            leaf.key, self._recollection.unmatched(leaf.key, [*events, *leaf.end(row.outcome)]), leaf.correlation
        )
        leaf.count(row)
        if isinstance(row.outcome, CutOff):
            raise Dropped
        return row

    def _begin(self, leaf: Leaf, *, began: bool) -> None:
        if leaf.start is None:
            return
        if not began:
            self._hold(leaf.key, (leaf.start,), leaf.correlation)
            return
        self._recollection.skip(leaf.key)
        if leaf.unsafe:
            self._doubt(leaf)
        if isinstance(leaf.start, InferenceStart):
            self._hold(leaf.key, (InferenceRetracted(leaf.start.segment), leaf.start), leaf.correlation)

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

    async def _act_once(self, leaf: Leaf) -> Row:
        assert leaf.unsafe is not None  # noqa: S101 - perform asks for unsafe leaves only
        await self.world.journal.durable(self.header.execution_id)
        if self.called_off(leaf.key):
            self._record(leaf, CutOff(duration_ms=0.0))
            raise Dropped
        with anyio.CancelScope(shield=True):
            outcome = await leaf.act()
        if not leaf.unsafe.doubtful(outcome):
            return self._record(leaf, outcome)
        if not self._over(leaf.key):
            self._doubt(leaf)
        return self._record(leaf, leaf.unsafe.unknown)

    def _doubt(self, leaf: Leaf) -> None:
        assert leaf.unsafe is not None  # noqa: S101 - nothing else is in doubt for long
        self._doubtful[leaf.key] = leaf
        self._ask(leaf.unsafe.question)

    def _ask(self, question: Question) -> None:
        self.questions.append(question)
        raise Suspended

    def _record(self, leaf: Leaf, outcome: Outcome) -> Row:
        row = Row(leaf.key, leaf.fingerprint, outcome, self.world.clock.now())
        self._hold(leaf.key, leaf.end(outcome), leaf.correlation)
        self._flush(row)
        leaf.count(row)
        return row

    def _same(self, row: Row, fingerprint: str) -> None:
        if row.fingerprint != fingerprint:
            raise diverged(row.key, recorded=row.fingerprint, replayed=fingerprint)

    def _hold(self, anchor: str, events: Sequence[Event], correlation: CorrelationContext) -> None:
        if events and self._journal is None:
            raise diverged(anchor, recorded=None, replayed=events[0])
        self._held += [Anchored(anchor, correlation, event) for event in events]

    def _flush(self, row: Row | None = None) -> None:
        if self._journal is not None and (self._held or row is not None):
            held, self._held = self._held, []
            self._journal.put(self.header.execution_id, row, held)
