"""The executions that run here, each in a task of its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from app.domain.contract.messages import Message
from app.domain.failures import Code, Failure, RequestFailure, StorageFailure
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import Outcome, StageTrace
from app.domain.lifecycle import Mode
from app.orchestration.execution.context import RunContext
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.execution import Execution
from app.orchestration.execution.pattern import Pattern
from app.orchestration.execution.response import Termination
from app.orchestration.execution.session_turn import SessionTurn
from app.orchestration.pipeline.prepare import StageTimer, history_for_planning, prepare
from app.orchestration.runtime.driver import Program, drive, finish
from app.orchestration.runtime.handle import ExecutionHandle
from app.ports.journal import ExecutionHistory
from app.ports.runtime import QueueTicket, Runner


class Launcher:
    """Starts executions, fresh or recorded ones, and knows those that run here."""

    def __init__(self, world: Environment, runner: Runner, patterns: Mapping[Mode, Pattern]) -> None:
        self.patterns = patterns
        self._world = world
        self._runner = runner
        self._running: dict[str, ExecutionHandle] = {}
        self._named: dict[tuple[str, str], ExecutionHandle] = {}

    def start(
        self, execution: Execution, *, watch: bool, stages: StageTimer | None = None, claimed: bool = False
    ) -> ExecutionHandle:
        """Runs it in a task of its own. Its journal is open. With `watch` its events can be read from now on.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN); the journal is closed then, and ends with
        that, unless the execution was `claimed` to go on: then it is left to its next owner.
        """
        execution_id = execution.header.execution_id
        running = ExecutionHandle(execution, self._world.event_feed.subscribe(execution_id) if watch else None)
        body = partial(self._live, execution, running, stages or self._admitted())
        try:
            self._runner.start(execution_id, body)
        except Failure as refusal:
            if running.subscription is not None:
                running.subscription.close()
            if execution.header.durability == "journaled" and not claimed:
                finish(execution, Termination(failure=refusal))
            self._world.journal.close(execution_id)
            raise
        self._know(execution, running)
        return running

    async def run(self, execution: Execution) -> None:
        """Runs it, and returns when it has ended or is suspended. Its journal is open."""
        running = ExecutionHandle(execution, None)
        self._know(execution, running)
        await self._live(execution, running, self._admitted())

    async def admit(self) -> None:
        """Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN) when no more may wait for their turn."""
        await self._runner.admit()

    async def queue(self, ticket: QueueTicket) -> None:
        """Has it run here or elsewhere, when its turn comes."""
        await self._runner.queue(ticket)

    def attach(self, record: ExecutionHistory) -> Execution:
        """The execution of a record that is taken over; its journal is open from now on."""
        self._world.journal.attach(record)
        header = replace(record.header, durability="journaled")
        return Execution(header, world=self._world, journal=self._world.journal, record=record)

    def is_newer_version(self, header: ExecutionHeader) -> bool:
        """Whether the execution is told by a later version of its pattern, or by one that is not there yet."""
        pattern = self.patterns.get(header.mode)
        return pattern is None or header.pattern_version > pattern.version

    def find(self, tenant: str, request_id: str) -> ExecutionHandle | None:
        """The execution of that name, if it runs here."""
        return self._named.get((tenant, request_id))

    def in_session(self, tenant: str, session_id: str) -> list[ExecutionHandle]:
        """Those of that session that run or wait here."""
        return [running for running in self._running.values() if running.session == (tenant, session_id)]

    def is_running(self, execution_id: str) -> bool:
        """Whether it runs here."""
        return execution_id in self._running

    def cancel_if_local(self, execution_id: str) -> bool:
        """Cancels it if it runs here, which it says."""
        running = self._running.get(execution_id)
        if running is not None:
            running.cancel()
        return running is not None

    def fail_unsaved(self, execution_id: str, failure: Failure) -> None:
        """What that execution does is not kept any more."""
        if execution_id in self._running:
            self._running[execution_id].fail_unsaved(failure)

    @property
    def is_draining(self) -> bool:
        """Whether nothing is begun here any more."""
        return self._runner.is_draining

    def require_accepting(self) -> None:
        """Raises: RequestFailure (REQUEST_SHUTTING_DOWN) for what could only be begun here, and would be lost."""
        if self.is_draining:
            raise RequestFailure(Code.REQUEST_SHUTTING_DOWN, "this replica is stopping", retry_after=1.0)

    def dismiss_waiting(self) -> None:
        """Sends away whoever reads what does not run here; it may be resumed elsewhere."""
        self._world.event_feed.disconnect_all_except(self._running.keys())

    def stop_all(self) -> None:
        """Stops everything that runs here: what is journaled is left to its next owner, all else is cancelled."""
        for running in list(self._running.values()):
            running.stop()

    def _know(self, execution: Execution, running: ExecutionHandle) -> None:
        self._running[running.execution_id] = self._named[_name(execution.header)] = running

    def _admitted(self) -> StageTimer:
        """The stages of an execution that was admitted before; how long that took was not kept."""
        return StageTimer(self._world.clock, [StageTrace("AuthResolve", 0.0, "ok")])

    async def _live(self, execution: Execution, running: ExecutionHandle, stages: StageTimer) -> None:
        turn = SessionTurn(execution)

        async def prepared() -> Outcome:
            return prepare(execution.header, self._world, stages, turn.history)

        try:
            come = partial(history_for_planning, turn, execution.header, self._world)
            await drive(execution, program_for(execution.header, self.patterns, prepared, come))
        finally:
            turn.release()
            del self._running[running.execution_id], self._named[_name(execution.header)]
            if not running.is_suspended:
                self._world.event_feed.disconnect(running.execution_id)
            try:
                self._world.journal.close(running.execution_id)
            finally:
                running.notify_done()


def program_for(
    header: ExecutionHeader,
    patterns: Mapping[Mode, Pattern],
    prepare: Callable[[], Awaitable[Outcome]],
    turn: Callable[[], Awaitable[Sequence[Message]]] | None = None,
) -> Program:
    """How an execution is told today; one whose journal belongs to another version of its pattern fails."""
    pattern = patterns.get(header.mode)
    if pattern is None:
        return Program(prepare, _refuse)
    known = pattern.version == header.pattern_version
    return Program(prepare, pattern.run if known else _refuse, pattern.plan, turn)


def version_mismatch() -> StorageFailure:
    """The failure of a journal that today's pattern cannot go on with."""
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "the journal is of another version of its pattern")


async def _refuse(_: RunContext) -> str:
    raise version_mismatch()


def _name(header: ExecutionHeader) -> tuple[str, str]:
    return header.tenant, header.request_id
