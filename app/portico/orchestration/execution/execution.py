"""The execution: identity, history and `perform`, the only way to do anything to the world.

Theory of operation

1. A pattern is deterministic code. Everything it does is an effect: one attempt on one provider, one attempt at one
   tool, one wait, one question. `perform` looks the effect up in the history first. A recorded effect is not done
   again; its events are matched against the recorded ones, and a difference is ORCHESTRATION_REPLAY_DIVERGED.
2. An effect that is not recorded is run: its start event is committed, it runs, and its outcome and end events are
   committed together. `Journal.put` is synchronous, so no checkpoint lies between an outcome and its record. Events
   between two effects, and instant effects with all of theirs, wait for the next commit, or the end of the branch. One
   comes before everything that is waited for, so a reader sees all that was decided by then.
3. A start without an outcome is uncertain. An idempotent effect runs again, an inference after retracting its segment.
   A non-idempotent one suspends the execution as `unknown_outcome` until a person says what happened.
4. The decision comes before the cancellation: `stop` records why the execution ends, then cancels its scope. Running
   effects record that they were cancelled, and nothing begins after it. A cancellation without a decision is a
   hand-over: nothing is recorded, and the next owner continues. Early stops and timeouts of branches work alike.
5. There are three kinds of runs. Live: no history. Recovery: a history that is a prefix; where it ends, effects run.
   Offline replay: the whole history and no environment; branches run in turn, and no event loop is needed.

Task groups, scopes and timeouts of the orchestration occur in this file and in branches.py only. BranchSuspended and
BranchStopped never cross a task group: `gather` turns them into values and raises them again once all branches ended.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import NoReturn, TypeVar

import anyio

from portico.domain.contract.messages import Message
from portico.domain.contract.response import SystemResponse
from portico.domain.failures import Code, Failure
from portico.domain.journal.events import END_ANCHOR, CorrelationContext, Event, LifecycleTransition
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import AttemptCancelled, RaceDecided, RecordedStep, StopDecision, SuspensionAnswer
from portico.domain.lifecycle import Lifecycle, State
from portico.orchestration.execution.branches import Branches, Deadline
from portico.orchestration.execution.effect import (
    BranchStopped,
    Effect,
    NonIdempotentEffect,
    SuspensionRequest,
    resolve,
)
from portico.orchestration.execution.environment import Environment, facts_of
from portico.orchestration.execution.ledger import Ledger, budget_for
from portico.orchestration.execution.recorder import Recorder, diverged, refuse
from portico.ports.journal import ExecutionHistory, Journal
from portico.ports.model import EngineProfile

T = TypeVar("T")
NON_IDEMPOTENT_GRACE_S = 4.0
"""Seconds past the deadline in which a non-idempotent call may still finish before its outcome is uncertain."""


class Execution:
    """One request from INIT to its end.

    Promises that nothing that is recorded is done twice, and that the record is always a prefix of what happened.
    """

    def __init__(
        self,
        header: ExecutionHeader,
        *,
        environment: Environment | None,
        journal: Journal | None,
        history: ExecutionHistory | None = None,
    ) -> None:
        clock = None if environment is None else environment.clock
        self.header = header
        self.lifecycle = Lifecycle(header.mode)
        is_unlimited = header.bounds.tokens is None and header.bounds.cost is None
        answered_by = () if is_unlimited else _final_answer_engines(header, environment)
        if history is not None and not (history.steps or history.events):
            history = None
        self.ledger = Ledger(None if is_unlimited else budget_for(header.bounds, history, answered_by), history)
        self.recorder = Recorder(header.execution_id, journal, history, clock)
        if header.guards or history is not None:
            self.ledger.flags.update(_flags_of(header, history))
        model_calls = 1 if environment is None else environment.concurrent_inferences
        self.branches = Branches(self.recorder, self.ledger, clock, model_calls)
        self.deadline: Deadline | None = None
        self.response: SystemResponse | None = None
        self.is_handed_over = False
        origin = header.origin
        self.correlation = CorrelationContext(
            request_id=header.request_id,
            session_id=header.request.session_id,
            trace_id=header.trace_id,
            span_id=header.root_span_id,
            parent_span_id=header.parent_span_id,
            caused_by=origin,
        )
        self.facts = facts_of(header, environment)
        """What follows from the header for the whole run."""
        self._environment = environment
        self._scope: anyio.CancelScope | None = None

    @cached_property
    def environment(self) -> Environment:
        """The environment of the effects. Raises: BranchStopped in an offline replay, which has none."""
        if self._environment is None:
            raise BranchStopped
        return self._environment

    @property
    def seconds_left(self) -> float:
        """Running time until the deadline, in seconds."""
        return self.deadline.seconds_left if self.deadline else 0.0

    async def perform(self, effect: Effect) -> RecordedStep:
        """Return the recorded step of the effect; run it first if there is none.

        Raises: BranchStopped, BranchSuspended; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED).
        """
        step = self.find(effect)
        if step is not None:
            return step
        environment = self.environment
        if effect.acts:
            self.ledger.tool_calls.has_acted = True
            if self.branches.is_withheld:
                await self._pass_gate(effect)
        if effect.is_instant:
            if effect.start_event is None:
                return self.recorder.add(effect, await effect.run(environment))
            self.recorder.begin(effect)
            step = self.recorder.add(effect, await effect.run(environment))
            effect.account(step)
            return step
        if isinstance(effect, NonIdempotentEffect):
            return await self._run_unless_uncertain(effect, environment)
        with self.branches.scope(effect.key):
            with self.branches.running(effect):
                outcome = await effect.run(environment)
            return self.recorder.complete(effect, outcome)
        raise BranchStopped

    def find(self, effect: Effect) -> RecordedStep | None:
        """Return the recorded step of the effect, matched and accounted for; None if the effect has to run.

        Raises: BranchStopped, BranchSuspended; OrchestrationFailure (ORCHESTRATION_REPLAY_DIVERGED).
        """
        recorder = self.recorder
        if recorder.cursor.has_history:
            step = recorder.step(effect.key, effect.fingerprint)
            if isinstance(effect, NonIdempotentEffect) and recorder.cursor.has_started(effect.key):
                self.ledger.tool_calls.has_run_unsafe = True
            if step is not None:
                return self._replay(effect, step)
        if recorder.has_stopped and recorder.is_closed(effect.key):
            refuse(self.recorder, effect)
        if self._environment is None:
            self._end_replay(effect)
        return None

    def answer_to(self, question: SuspensionRequest) -> RecordedStep:
        """Return the recorded answer to a question.

        Raises: BranchSuspended without an answer; BranchStopped if stopped.
        """
        step = self.recorder.step(question.key, question.fingerprint)
        if step is None:
            if self.recorder.is_closed(question.key):
                raise BranchStopped
            self.branches.suspend(question)
        if isinstance(step.outcome, SuspensionAnswer) and step.outcome.is_untrusted:
            self.ledger.tool_calls.has_untrusted_answer = True
        return step

    def transition_to(self, anchor: str, state: State, reason: str) -> None:
        """Move the lifecycle. Raises: BranchStopped once the execution was stopped; nothing is moved then."""
        after = self.lifecycle.transition_to(state)
        moved = LifecycleTransition(self.lifecycle.state, state, after.attempt, reason)
        self.recorder.emit(anchor, self.correlation, moved)
        self.lifecycle = after

    def stop(self, code: Code, message: str) -> None:
        """Record that the execution ends and why, then cancel what runs. The first decision stands."""
        if self.response is None and self.recorder.stop_decision is None:
            self.recorder.stop(StopDecision(code, message))
            self._cancel()

    def abandon(self, failure: Failure | None = None) -> None:
        """Cancel what runs and record nothing of it.

        The execution ends with the failure of its journal; without one its next owner continues.
        """
        self.is_handed_over = failure is None
        if failure is not None:
            self.recorder.stop(failure)
        self._cancel()

    def end(
        self, lifecycle: Lifecycle, response: SystemResponse, *events: Event, new_messages: Sequence[Message] = ()
    ) -> None:
        """End this run with that response; record its last events, with the new messages of the session."""
        self.response = response
        if events:
            self.recorder.record(END_ANCHOR, self.correlation, *events)
            self.recorder.commit(new_messages=new_messages)
        self.lifecycle = lifecycle

    def until_stopped(self) -> anyio.CancelScope:
        """Return the scope of what runs to its end, unless it is left because of `stop`, the deadline, or `abandon`."""
        self._scope = anyio.CancelScope()
        return self._scope

    def start_deadline(self) -> Deadline:
        """Return the deadline of the running time that is left; it runs while it is entered."""
        expire = partial(self.stop, Code.CANCELLED_TIMEOUT, "the deadline passed")
        seconds = self.header.bounds.timeout
        if self.recorder.cursor.has_history:
            seconds = self.recorder.cursor.remaining_seconds(seconds)
        self.deadline = Deadline(self.environment.clock, seconds, expire)
        return self.deadline

    async def compute(self, work: Callable[[], T]) -> T:
        """Do long work on a thread, in an offline replay right here, and return what it returns."""
        if self._environment is None:
            return work()
        self.recorder.commit()
        return await self._environment.thread_pool.run(work)

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _replay(self, effect: Effect, step: RecordedStep) -> RecordedStep:
        if isinstance(effect, NonIdempotentEffect):
            resolve(effect, self.recorder.cursor.step)
        self.recorder.replay(effect, step)
        if isinstance(step.outcome, AttemptCancelled):
            raise BranchStopped
        return step

    async def _pass_gate(self, effect: Effect) -> None:
        """Return when the judges have passed the input. Raises: BranchStopped if they will not, or if stopped."""
        assert self.branches.input_gate is not None  # noqa: S101 - withheld only behind a gate
        self.recorder.commit()
        try:
            await self.branches.input_gate.passed()
        except BranchStopped:
            refuse(self.recorder, effect)
        if self.recorder.is_closed(effect.key):
            refuse(self.recorder, effect)

    def _end_replay(self, effect: Effect) -> NoReturn:
        """End an offline replay at an effect without an outcome, which only an uncertain one may lack."""
        cursor = self.recorder.cursor
        if isinstance(effect, NonIdempotentEffect) and cursor.has_started(effect.key):
            cursor.mark_matched(effect.key)
            self.branches.suspend(resolve(effect, cursor.step).question, effect)
        raise diverged(effect.key, recorded=None, replayed=effect)

    async def _run_unless_uncertain(self, effect: NonIdempotentEffect, environment: Environment) -> RecordedStep:
        if self.recorder.cursor.has_started(effect.key):
            return await self._resume(effect, environment)
        self.recorder.begin(effect)
        return await self._run_once(effect, environment, 0)

    async def _run_once(self, effect: NonIdempotentEffect, environment: Environment, number: int) -> RecordedStep:
        """Run for the time of that number, counted from 0, once its start is durable; nothing interrupts it."""
        await self._make_start_durable(effect, environment)
        self.ledger.tool_calls.has_run_unsafe = True
        with anyio.CancelScope(shield=True):
            outcome = await effect.run(environment)
        if not effect.is_uncertain(outcome):
            return self.recorder.complete(effect, outcome)
        if not self.recorder.is_closed(effect.key):
            self.branches.suspend(effect.question(number), effect)
        return self.recorder.complete(effect, effect.unknown_outcome)

    async def _make_start_durable(self, effect: Effect, environment: Environment) -> None:
        """Return when the start cannot be lost any more. Raises: BranchStopped, StorageFailure."""
        try:
            await environment.journal.durable(self.header.execution_id)
        except anyio.get_cancelled_exc_class():
            if self.recorder.is_closed(effect.key):
                self.recorder.complete(effect, AttemptCancelled(duration_ms=0.0))
            raise
        if self.recorder.is_closed(effect.key):
            self.recorder.complete(effect, AttemptCancelled(duration_ms=0.0))
            raise BranchStopped

    async def _resume(self, effect: NonIdempotentEffect, environment: Environment) -> RecordedStep:
        """Continue an uncertain effect by the answer to its last question, or ask it."""
        self.recorder.cursor.mark_matched(effect.key)
        unknown = resolve(effect, self.recorder.cursor.step)
        if unknown.outcome is not None:
            return self.recorder.complete(effect, unknown.outcome)
        if not unknown.may_rerun:
            self.branches.suspend(unknown.question, effect)
        self.recorder.record_step(unknown.rerun_key, effect.fingerprint, RaceDecided(()))
        return await self._run_once(effect, environment, unknown.number + 1)


def _final_answer_engines(header: ExecutionHeader, environment: Environment | None) -> Sequence[EngineProfile]:
    """Return the engines that may write the final answer; none if the execution owes none."""
    model = header.request.model
    if environment is None or not header.has_reserve or not (model is None or environment.catalogue.has(model)):
        return ()
    return [engine.profile for engine in environment.catalogue.resolve(model)]


def _flags_of(header: ExecutionHeader, history: ExecutionHistory | None) -> Iterator[str]:
    """Yield the names of the guards that tripped on the request, and on answers to suspensions."""
    verdicts = [*header.guards]
    for step in () if history is None else history.steps.values():
        if isinstance(step.outcome, SuspensionAnswer):
            verdicts += step.outcome.guards
    yield from (each.guard for each in verdicts if each.tripped)
