"""Branches: concurrent parts of one execution, how they end, and how they are stopped early.

A branch is never cancelled as a whole, because it may be replaying. What is recorded first is which branches count or
that the time of one has passed; then the effects that run in the others are cancelled, and nothing begins there. A
replay ends them at the same steps.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MappingProxyType, TracebackType
from typing import Generic, NoReturn, TypeAlias, TypeVar

import anyio

from portico.domain.failures import Cancellation, Code, Failure, StorageFailure
from portico.domain.fingerprints import digest
from portico.domain.journal.events import LiveDelta, ToolProgress
from portico.domain.journal.header import RESERVED_SHARE
from portico.domain.journal.outcomes import RaceDecided, RecordedStep
from portico.domain.journal.step_key import ROOT, StepKey
from portico.domain.value import value
from portico.orchestration.execution.effect import (
    BranchStopped,
    BranchSuspended,
    Effect,
    NonIdempotentEffect,
    SuspensionRequest,
)
from portico.orchestration.execution.ledger import Ledger
from portico.orchestration.execution.recorder import Recorder, cancel_unfinished, refuse
from portico.ports.runtime import Clock

T = TypeVar("T")
BranchEnd: TypeAlias = T | Failure | BranchStopped | BranchSuspended
"""The end of a branch as a value."""


@dataclass(slots=True)
class EarlyStop(Generic[T]):
    """A rule by which not all branches need to finish.

    `is_enough` sees the results by branch. It is pure, and true of more results if it was true of fewer. The decision
    is recorded as step `key`, at `decided_at`.
    """

    key: StepKey
    branch_count: int
    is_enough: Callable[[Mapping[int, T | Failure]], bool]
    winners: tuple[int, ...] | None = None
    decided_at: float = 0.0

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the recorded decision."""
        return digest("gather", self.key, self.branch_count)

    @property
    def cancelled_branches(self) -> tuple[StepKey, ...]:
        """The branches that do not count."""
        winners = range(self.branch_count) if self.winners is None else self.winners
        return tuple(self.key.child(index) for index in range(self.branch_count) if index not in winners)

    @property
    def spared_branches(self) -> tuple[StepKey, ...]:
        """The branches within the cancelled ones that count all the same; none here."""
        return ()

    def apply(self, step: RecordedStep) -> None:
        """Take over the recorded decision."""
        assert isinstance(step.outcome, RaceDecided)  # noqa: S101 - the only outcome of a decision
        self.winners, self.decided_at = step.outcome.winners, step.at


class InputGate:
    """A gate that opens when all judges have passed the input, and that holds back what follows from it until then.

    While it is closed, no tool starts and deltas are held. `judges` have to pass it.
    """

    def __init__(self, judges: int) -> None:
        self._left = judges
        self.is_open = False
        self._is_shut = False
        self._moved = anyio.Event()
        self._held: list[Callable[[], None]] = []

    def pass_one(self) -> None:
        """Count a judge that passed the input; the last one opens the gate, and the held deltas come first."""
        self._left -= 1
        if self._left or self._is_shut:
            return
        self.is_open = True
        held, self._held = self._held, []
        for publish in held:
            publish()
        self._moved.set()

    def shut(self) -> None:
        """Stop what waits, and drop what is held: a judge refused the input, or cannot pass it any more."""
        if not self.is_open:
            self._is_shut = True
            self._held = []
            self._moved.set()

    def hold(self, publish: Callable[[], None]) -> None:
        """Publish a delta when the gate opens."""
        if self.is_open:
            publish()
        elif not self._is_shut:
            self._held.append(publish)

    async def passed(self) -> None:
        """Return when the gate is open. Raises: BranchStopped if it was shut."""
        if not self.is_open:
            if not self._is_shut:
                await self._moved.wait()
            if self._is_shut:
                raise BranchStopped


@value
class Waiting:
    """The end of a branch that waits for an answer. Without `has_run` that was recorded, and it did not run now.

    It `is_unread` if an offline replay did not begin it, so that its recorded steps were not compared.
    """

    has_run: bool
    is_unread: bool = False


@dataclass(slots=True)
class TimeLimit:
    """Time limit of a branch, in seconds of running time; its expiry is recorded as step `key`."""

    key: StepKey
    seconds: float
    expired_at: float | None = None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the recorded expiry."""
        return digest("within", self.key, self.seconds)

    @property
    def branch(self) -> StepKey:
        """The branch that is limited."""
        return self.key.child(0)


class Branches:
    """The branches of one execution: those that run, those that wait for an answer, those that were cancelled.

    Without a clock, in an offline replay, and after a recorded stop, branches are awaited in turn. `model_calls` of
    concurrent branches may run at the same time.
    """

    def __init__(self, recorder: Recorder, ledger: Ledger, clock: Clock | None, model_calls: int) -> None:
        self._recorder = recorder
        self._ledger = ledger
        self._clock = clock
        self._is_concurrent = clock is not None and not recorder.has_stopped
        self._model_calls = model_calls
        self.model_call_slots: anyio.Semaphore | None = None
        """Slots of the model calls; None until branches run concurrently."""
        self.progress: ToolProgress | None = None
        """How far a call is that runs, as its tool has said last."""
        self.input_gate: InputGate | None = None
        """The gate that judges of the input open; None without any that refuses."""
        self.cancellable_depth = 0
        """How many gathers and timeouts that may stop a branch early are running."""
        self._scopes: dict[StepKey, anyio.CancelScope] = {}
        self._running: dict[StepKey, Effect] = {}
        self._suspended: list[tuple[SuspensionRequest, NonIdempotentEffect | None]] = []

    @property
    def is_withheld(self) -> bool:
        """True until the judges that may refuse the input have passed it."""
        return self.input_gate is not None and not self.input_gate.is_open

    @property
    def open_questions(self) -> list[SuspensionRequest]:
        """The questions that branches wait for, by key."""
        return sorted((question for question, _ in self._suspended), key=lambda question: question.key)

    @property
    def streamed_deltas(self) -> list[LiveDelta]:
        """Everything published so far by the effects that run."""
        return list(chain.from_iterable(effect.streamed_deltas() for effect in self._running.values()))

    def scope(self, key: StepKey) -> AbstractContextManager[object, bool | None]:
        """Return the scope of an effect, which is left early if its branch is stopped."""
        may_stop = self.cancellable_depth > 0 or self.model_call_slots is not None
        return self._cancellable(key) if may_stop else nullcontext()

    @contextmanager
    def _cancellable(self, key: StepKey) -> Iterator[None]:
        with anyio.CancelScope() as self._scopes[key]:
            try:
                yield
            finally:
                del self._scopes[key]

    @contextmanager
    def running(self, effect: Effect) -> Iterator[float]:
        """Start an effect that runs within; the time that is returned is the clock's.

        One that is cancelled is recorded if a decision stopped it. Raises: BranchStopped if it may not begin.
        """
        recorder, clock = self._recorder, self._clock
        assert clock is not None  # noqa: S101 - nothing runs in an offline replay
        if recorder.has_stopped and recorder.is_closed(effect.key):
            refuse(recorder, effect)
        recorder.begin(effect)
        started_at = clock.monotonic()
        self._running[effect.key] = effect
        try:
            yield started_at
        except anyio.get_cancelled_exc_class():
            if recorder.is_closed(effect.key):
                recorder.complete(effect, effect.cancelled((clock.monotonic() - started_at) * 1000))
            raise
        finally:
            del self._running[effect.key]

    @contextmanager
    def waiting(self, effect: Effect) -> Iterator[None]:
        """Commit what was decided, and wait within for the turn of an effect that has not started in this run."""
        self._recorder.commit()
        try:
            yield
        except anyio.get_cancelled_exc_class():
            if self._recorder.is_closed(effect.key):
                cancel_unfinished(self._recorder, effect)
            raise

    async def run_for(self, seconds: float, run: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of an effect, or None if it has not ended after so many seconds."""
        with anyio.move_on_after(seconds):
            return await run()
        return None

    def suspend(self, question: SuspensionRequest, effect: NonIdempotentEffect | None = None) -> NoReturn:
        """End a branch that waits for this answer; the uncertain `effect` may be what is asked about."""
        self._suspended.append((question, effect))
        raise BranchSuspended

    async def gather(
        self,
        branches: Sequence[Callable[[], Awaitable[T]]],
        early_stop: EarlyStop[T] | None = None,
        after: Mapping[int, Sequence[int]] = MappingProxyType({}),
        *,
        in_turn: bool = False,
    ) -> dict[int, T | Failure]:
        """Run the branches concurrently and return their results in order, a failed one as its failure.

        Never fails fast. A branch begins when the earlier ones that it comes `after` have ended, and shares the end of
        one that was stopped or is suspended. One branch alone, all of an offline replay, and those `in_turn`, which
        wait for nothing, are awaited in turn. After an early stop, only the winners are returned. Raises: BranchStopped
        or BranchSuspended if any branch that counts did, once all have ended; OrchestrationFailure
        (ORCHESTRATION_REPLAY_DIVERGED) if any did.
        """
        if len(branches) == 1 and early_stop is None:
            return collect({0: await capture(branches[0])}, (0,))
        ends: dict[int, BranchEnd[T]] = {}

        async def run(index: int) -> None:
            ends[index] = await capture(branches[index], blocked_by(ends, after.get(index, ())))
            if early_stop is not None:
                self._decide(early_stop, ends)

        self.cancellable_depth += early_stop is not None
        if early_stop is not None:
            self._replay_decision(early_stop)
        if len(branches) > 1 and self._is_concurrent and not in_turn:
            await self._run_concurrently(run, len(branches), after)
        else:
            for index in range(len(branches)):
                await run(index)
        self.cancellable_depth -= early_stop is not None
        winners = None if early_stop is None else early_stop.winners
        return collect(ends, range(len(branches)) if winners is None else winners)

    async def settle(self, key: StepKey, branches: Sequence[Callable[[], Awaitable[T]]]) -> list[T | Failure | Waiting]:
        """Run the branches concurrently and return their ends in order: results, failures, and those that wait.

        If some wait and some do not, the branches that have ended are recorded as step `key`. A replay does not begin
        the others, so they wait there even if they were answered since. Raises: BranchStopped if any branch was
        stopped; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED) if any diverged.
        """
        fingerprint = digest("settle", key, len(branches))
        decision = self._recorder.step(key, fingerprint)
        begun: Sequence[int] = range(len(branches))
        if decision is not None:
            assert isinstance(decision.outcome, RaceDecided)  # noqa: S101 - the only outcome of a decision
            begun = decision.outcome.winners
        ends: dict[int, BranchEnd[T]] = {}

        async def run(index: int) -> None:
            ends[index] = await capture(branches[index])

        if len(begun) > 1 and self._is_concurrent and decision is None:
            await self._run_concurrently(run, len(begun), {})
        else:
            for index in begun:
                await run(index)
        ended = [index for index in begun if not isinstance(ends[index], BranchSuspended)]
        results = collect(ends, ended)
        if decision is None and 0 < len(ended) < len(branches):
            self._recorder.record_step(key, fingerprint, RaceDecided(tuple(ended)))
        return [
            results[index] if index in results else self._waiting(has_begun=index in begun)
            for index in range(len(branches))
        ]

    def _waiting(self, *, has_begun: bool) -> Waiting:
        is_offline = self._recorder.is_read_only
        return Waiting(has_begun and not is_offline, is_offline and not has_begun)

    async def with_timeout(self, limit: TimeLimit, branch: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the branch. Raises: Cancellation (CANCELLED_TIMEOUT) if its time has passed."""
        step = self._recorder.step(limit.key, limit.fingerprint)
        if step is not None:
            self._expire(limit, step)
        cancel_timer = None
        if self._clock is not None and step is None:
            cancel_timer = self._clock.call_later(limit.seconds, partial(self._expire, limit))
        self.cancellable_depth += 1
        try:
            result = await branch()
        except BranchStopped:
            if limit.expired_at is None:
                raise
        finally:
            self.cancellable_depth -= 1
            if cancel_timer is not None:
                cancel_timer()
        if limit.expired_at is not None:
            raise Cancellation(Code.CANCELLED_TIMEOUT, f"it took longer than {limit.seconds:g} s")
        return result

    async def _run_concurrently(
        self, run: Callable[[int], Awaitable[None]], count: int, after: Mapping[int, Sequence[int]]
    ) -> None:
        if self.model_call_slots is None:
            self.model_call_slots = anyio.Semaphore(self._model_calls, fast_acquire=True)
        ended = {each: anyio.Event() for earlier in after.values() for each in earlier}

        async def run_after(earlier: Sequence[anyio.Event], index: int) -> None:
            for each in earlier:
                await each.wait()
            await run(index)
            self._recorder.commit()
            if index in ended:
                ended[index].set()

        async with anyio.create_task_group() as group:
            for index in range(count):
                group.start_soon(run_after, [ended[each] for each in after.get(index, ())], index)

    def _replay_decision(self, early_stop: EarlyStop[T]) -> None:
        step = self._recorder.step(early_stop.key, early_stop.fingerprint)
        if step is not None:
            early_stop.apply(step)
            self._cancel(early_stop.cancelled_branches, early_stop.spared_branches)

    def _decide(self, early_stop: EarlyStop[T], ends: dict[int, BranchEnd[T]]) -> None:
        """Record the decision once the results are enough, then cancel the other branches."""
        results = finished_results(ends)
        if (
            early_stop.winners is not None
            or self._recorder.is_closed(early_stop.key)
            or any(map(has_diverged, results.values()))
        ):
            return
        if early_stop.is_enough(results):
            decision = RaceDecided(tuple(results))
            early_stop.apply(self._recorder.record_step(early_stop.key, early_stop.fingerprint, decision))
            self._cancel(early_stop.cancelled_branches, early_stop.spared_branches)

    def _expire(self, limit: TimeLimit, step: RecordedStep | None = None) -> None:
        """Stop the branch, whose time has passed; `step` is the recorded expiry."""
        if step is None and self._recorder.is_closed(limit.key):
            return
        step = step or self._recorder.record_step(limit.key, limit.fingerprint, RaceDecided(()))
        limit.expired_at = step.at
        self._cancel((limit.branch,))

    def end_all(self) -> None:
        """Let nothing begin in any branch until the recorder is opened again, and cancel the effects that run."""
        self._recorder.close(())
        self._cancel_effects((ROOT,))

    def _cancel(self, branches: tuple[StepKey, ...], spared: tuple[StepKey, ...] = ()) -> None:
        """Let nothing begin in these branches, and cancel the effects that run there."""
        self._recorder.close(branches, spared)
        self._ledger.exclude(branches)
        self._cancel_effects(branches)

    def _cancel_effects(self, branches: tuple[StepKey, ...]) -> None:
        cancelled = [each for each in self._suspended if each[0].key.is_within(*branches)]
        self._suspended = [each for each in self._suspended if each not in cancelled]
        for _, effect in cancelled:
            if effect is not None:
                self._recorder.complete(effect, effect.unknown_outcome)
        for key, scope in self._scopes.items():
            if key.is_within(*branches):
                scope.cancel()
        if self.input_gate is not None and ROOT in branches:
            self.input_gate.shut()


async def capture(
    branch: Callable[[], Awaitable[T]], blocked: BranchStopped | BranchSuspended | None = None
) -> BranchEnd[T]:
    """Return the end of the branch; one that is `blocked` does not begin."""
    if blocked is not None:
        return blocked
    try:
        return await branch()
    except (Failure, BranchStopped, BranchSuspended) as end:
        return end


def finished_results(ends: Mapping[int, BranchEnd[T]]) -> dict[int, T | Failure]:
    """Return the results of the branches that have one, in order."""
    in_order = sorted(ends.items(), key=lambda each: each[0])
    return {index: each for index, each in in_order if not isinstance(each, BranchStopped | BranchSuspended)}


def blocked_by(ends: Mapping[int, BranchEnd[T]], earlier: Sequence[int]) -> BranchStopped | BranchSuspended | None:
    """Return the first end among the earlier branches that is no result."""
    found = (ends[index] for index in earlier)
    return next((end for end in found if isinstance(end, BranchStopped | BranchSuspended)), None)


def has_diverged(value: object) -> bool:
    """Return True for the failure of a replay that diverged."""
    return isinstance(value, Failure) and value.code is Code.ORCHESTRATION_REPLAY_DIVERGED


def collect(ends: Mapping[int, BranchEnd[T]], winners: Sequence[int]) -> dict[int, T | Failure]:
    """Return the results of the winners, in order.

    Raises: the divergence or the StorageFailure of any branch, as no branch can go on from such a record; else
    BranchStopped, else BranchSuspended of a winner.
    """
    for end in ends.values():
        if isinstance(end, Failure) and (isinstance(end, StorageFailure) or has_diverged(end)):
            raise end
    for interruption in (BranchStopped, BranchSuspended):
        if any(isinstance(ends[index], interruption) for index in winners):
            raise interruption
    in_order = ((index, ends[index]) for index in winners)
    return {index: each for index, each in in_order if not isinstance(each, BranchStopped | BranchSuspended)}


class Deadline:
    """A timer that starts when it is entered and calls back once unless it is left before.

    A reserve at its end may be withheld from what runs, until it is used.
    """

    def __init__(self, clock: Clock, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._on_expiry: Callable[[], None] | None = on_expiry
        self._cancel_timer: Callable[[], None] | None = None
        self._cancel_limit: Callable[[], None] | None = None
        self._expires_at = 0.0
        self._reserve = 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds until it expires, or until the reserve begins."""
        return max(0.0, self._expires_at - self._reserve - self._clock.monotonic())

    def withhold(self, reserve: float, on_limit: Callable[[], None]) -> None:
        """Withhold so many seconds at its end, or a tenth of it if that is less; call back once they begin."""
        self._reserve = min(reserve, self._seconds * RESERVED_SHARE)
        self._cancel_limit = self._clock.call_later(self.seconds_left, on_limit)

    def use_reserve(self, seconds: float) -> None:
        """End the time of the pattern. What follows takes at most so many seconds by a time limit of its own."""
        self._stop()
        self._reserve, self._expires_at = 0.0, self._clock.monotonic() + seconds

    def restart(self) -> None:
        """Start again: the time until now does not count."""
        self._stop()
        self._start()

    def __enter__(self) -> None:
        self._start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        # The callback belongs to the execution that holds this: without it there is no reference cycle to collect.
        self._on_expiry = None

    def _start(self) -> None:
        assert self._on_expiry is not None  # noqa: S101 - it is not entered twice
        self._expires_at = self._clock.monotonic() + self._seconds
        self._cancel_timer = self._clock.call_later(self._seconds, self._on_expiry)

    def _stop(self) -> None:
        for cancel in filter(None, (self._cancel_timer, self._cancel_limit)):
            cancel()
        self._cancel_timer = self._cancel_limit = None
