"""Launcher: the one function that starts an execution, be it new, forked, resumed, or recovered."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from portico.capabilities.limits.quotas import RunSlot
from portico.domain.contract.response import SuspensionKind
from portico.domain.failures import Code, Failure, RequestFailure, StorageFailure
from portico.domain.ids import ExecutionId
from portico.domain.journal.outcomes import StopDecision
from portico.domain.lifecycle import Mode
from portico.domain.value import replace
from portico.orchestration.execution.environment import Environment
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.execution.response import is_journaled
from portico.orchestration.pipeline.stages import StageTimer
from portico.orchestration.runtime.authorizations import Authorizations
from portico.orchestration.runtime.driver import drive, pattern_for
from portico.orchestration.runtime.handle import CANCELLED_BY_CLIENT, ExecutionHandle, LocalExecution, LocalExecutions
from portico.orchestration.runtime.limited_start import NOTHING_TAKEN, Opening
from portico.orchestration.runtime.resume import resume_if_answered
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import QueueTicket, Runner

Body: TypeAlias = Callable[[], Awaitable[None]]


class Launcher:
    """Starts executions, in tasks of their own or in the caller's, and registers them while they run."""

    def __init__(
        self,
        environment: Environment,
        runner: Runner,
        patterns: Mapping[Mode, Pattern],
        authorizations: Authorizations | None = None,
    ) -> None:
        self.patterns = patterns
        self.authorizations = authorizations
        """Answers of calls whose credential arrives; None without credentials."""
        self.local = LocalExecutions(environment.event_feed)
        self._environment = environment
        self.runner = runner

    def start(
        self,
        history: ExecutionHistory,
        *,
        subscribe: bool = False,
        claimed: bool = False,
        opening: Opening = NOTHING_TAKEN,
        stop: StopDecision | None = None,
        spawn: Callable[[ExecutionId, Body], None] | None = None,
    ) -> ExecutionHandle:
        """Start an execution at the end of its history and return at once; every execution starts here.

        The history of a new execution has no events, and the journal is open already; one that was `claimed` from the
        store is attached to the journal. With `subscribe` the handle has its events from now on; with `stop`, or if a
        cancellation was requested, it ends at once; `spawn` runs its body, by default in a task of its own, in its
        place if the `opening` has one. Without a slot in the limits of its caller it waits for one.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN). Nothing is left of a new execution then,
        which is in memory: a journaled one has its place before it is opened. A claimed one is left to its next owner.
        """
        execution = self._attach(history, stop) if claimed else self._execution(history)
        execution_id = execution.header.execution_id
        subscription = self._environment.event_feed.subscribe(execution_id) if subscribe else None
        local = LocalExecution(execution, subscription)
        body = partial(self._run, local, StageTimer(self._environment.clock), opening.slot)
        start_body = spawn or (self.runner if opening.place is None else opening.place).start
        try:
            start_body(execution_id, body)
        except Failure:
            if subscription is not None:
                subscription.close()
            if not claimed:
                self._environment.journal.discard(execution_id)
            self._environment.journal.close(execution_id)
            if self._environment.credentials is not None:
                self._environment.credentials.in_memory.pop(execution_id, None)
            opening.refund()
            raise
        self.local.add(local)
        return local.handle

    async def run(self, history: ExecutionHistory) -> None:
        """Start a claimed execution in the caller's task and return when it has ended or is suspended."""
        bodies: list[Body] = []
        self.start(history, claimed=True, spawn=lambda _, body: bodies.append(body))
        await bodies.pop()()

    async def queue(self, ticket: QueueTicket) -> None:
        """Queue a stored execution, which runs here or on another replica when its turn comes."""
        await self.runner.queue(ticket)

    @property
    def is_draining(self) -> bool:
        """Return whether nothing new is started here any more."""
        return self.runner.is_draining

    def require_accepting(self) -> None:
        """Raise RequestFailure (REQUEST_SHUTTING_DOWN) if nothing new is started here any more."""
        if self.is_draining:
            raise RequestFailure(Code.REQUEST_SHUTTING_DOWN, "this replica is stopping", retry_after=1.0)

    def _execution(self, history: ExecutionHistory) -> Execution:
        environment = self._environment
        return Execution(history.header, environment=environment, journal=environment.journal, history=history)

    def _attach(self, history: ExecutionHistory, stop: StopDecision | None) -> Execution:
        """Return the execution of a claimed history, with its journal open from now on."""
        self._environment.journal.attach(history)
        execution = self._execution(replace(history, header=replace(history.header, durability="journaled")))
        if history.cancel_requested:
            stop = CANCELLED_BY_CLIENT
        if stop is None:
            resume_if_answered(execution, history)
        else:
            execution.stop(stop.code, stop.message)
        return execution

    async def _run(self, local: LocalExecution, timer: StageTimer, slot: RunSlot | None) -> None:
        execution, usage = local.execution, self._environment.usage

        async def take_slot() -> None:
            nonlocal slot
            if slot is None and execution.facts.quota is not None:
                slot = await execution.facts.quota.wait_for_slot()
            usage.begin(execution.header, partial(is_journaled, execution), slot)

        try:
            await drive(execution, pattern_for(execution.header, self.patterns), timer, take_slot)
        finally:
            usage.end(local.execution_id)
            if slot is not None:
                slot.release()
            self.local.remove(local)
            is_suspended = local.handle.is_suspended
            if not is_suspended:
                self._environment.event_feed.disconnect(local.execution_id)
            try:
                self._environment.journal.close(local.execution_id)
            finally:
                self.local.complete(local)
        credentials = self._environment.credentials
        if credentials is not None:
            is_held = local.execution_id in credentials.in_memory or local.execution_id in credentials.with_requests
            if is_suspended:
                await self._settle_suspended(execution, is_held=is_held)
            elif is_held and execution.response is not None:
                with suppress(StorageFailure):  # a periodic job deletes what is left
                    await credentials.forget(local.execution_id)

    async def _settle_suspended(self, execution: Execution, *, is_held: bool) -> None:
        """Keep what the request brought of credentials, and answer the calls whose credential has arrived by now."""
        response, authorizations = execution.response, self.authorizations
        if authorizations is None or response is None:
            return
        if is_held or any(each.kind is SuspensionKind.AUTHORIZATION for each in response.suspensions):
            with suppress(StorageFailure):  # the question stays open for its owner
                await authorizations.after_suspension(execution.header)
