"""The executions that run here, each in a task of its own."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.domain.boundary import PlanStep, SystemResponse
from app.domain.effects import Header, Outcome, StageTrace
from app.domain.events import Live
from app.domain.failures import Code, Failure, RequestFailure, StorageFailure
from app.domain.lifecycle import Mode, State
from app.domain.messages import Message
from app.domain.produced import Produced
from app.orchestration.answering import Ending
from app.orchestration.conversing import Turn
from app.orchestration.execution import Execution
from app.orchestration.pipeline.prepare import Stages, prepare, told
from app.orchestration.run import Run
from app.orchestration.story import Story, conclude, live
from app.orchestration.world import World
from app.ports import Record, Runner, Subscription, Ticket


@dataclass(frozen=True, slots=True)
class Pattern:
    """What runs a mode, the version its journals belong to, and what plans for it where that is needed.

    `static` are the steps of the plan that is always the same, where there is one.
    """

    run: Callable[[Run], Awaitable[Produced | str]]
    version: int
    planning: Callable[[Run], Awaitable[None]] | None = None
    static: Sequence[PlanStep] | None = None


class Running:
    """One execution as its starter sees it."""

    def __init__(self, execution: Execution, subscription: Subscription | None) -> None:
        self.execution_id = execution.header.execution_id
        self.request_id = execution.header.request_id
        self.trace_id = execution.header.trace_id
        self.root_span_id = execution.root.span_id
        self.session = execution.header.tenant, execution.header.request.session_id
        self.subscription = subscription
        self._execution = execution
        self._done = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def response(self) -> SystemResponse | None:
        """The answer; None until the execution ended or was suspended."""
        return self._execution.response

    @property
    def is_suspended(self) -> bool:
        """Whether it waits for an answer, and may go on."""
        return self.response is not None and self.response.state is State.SUSPENDED

    @property
    def upstream_ms(self) -> float:
        """Milliseconds that attempts on providers took, all together."""
        return self._execution.tally.upstream_ms

    def spoken(self) -> list[Live]:
        """All that was streamed so far in what is still being said."""
        return [piece for so_far in self._execution.speaking.values() for piece in so_far()]

    @property
    def outlives_its_client(self) -> bool:
        """Whether it goes on when the connection that started it is closed."""
        request = self._execution.header.request
        asked = request.on_disconnect
        return self._execution.header.durability == "journaled" if asked is None else asked == "continue"

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back once when the execution has ended or was suspended; at once when it already has."""
        if self._done:
            callback()
        else:
            self._callbacks.append(callback)

    def cancel(self, why: str = "the client cancelled it", code: Code = Code.CANCELLED_SIGNAL) -> None:
        """Recorded first, then everything that runs is stopped. A second cancel changes nothing."""
        self._execution.stop(code, why)

    def stop(self) -> None:
        """The service is stopping: it is cancelled, or left as it is to its next owner where it is journaled."""
        if self._execution.header.durability == "journaled":
            self._execution.leave()
        else:
            self.cancel("the service is stopping")

    def lose(self, failure: Failure) -> None:
        """What it does is not kept any more: it ends at once, and its answer says so."""
        self._execution.leave(failure)

    def done(self) -> None:
        """Tells everybody who waits, once, and forgets them, who know it."""
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Launcher:
    """Starts executions, fresh or recorded ones, and knows those that run here."""

    def __init__(self, world: World, runner: Runner, patterns: Mapping[Mode, Pattern]) -> None:
        self.patterns = patterns
        self._world = world
        self._runner = runner
        self._running: dict[str, Running] = {}
        self._named: dict[tuple[str, str], Running] = {}

    def start(
        self, execution: Execution, *, watch: bool, stages: Stages | None = None, claimed: bool = False
    ) -> Running:
        """Runs it in a task of its own. Its journal is open. With `watch` its events can be read from now on.

        Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN); the journal is closed then, and ends with
        that, unless the execution was `claimed` to go on: then it is left to its next owner.
        """
        execution_id = execution.header.execution_id
        running = Running(execution, self._world.watchers.watch(execution_id) if watch else None)
        body = partial(self._live, execution, running, stages or self._admitted())
        try:
            self._runner.start(execution_id, body)
        except Failure as refusal:
            if running.subscription is not None:
                running.subscription.close()
            if execution.header.durability == "journaled" and not claimed:
                conclude(execution, Ending(failure=refusal))
            self._world.journal.close(execution_id)
            raise
        self._know(execution, running)
        return running

    async def run(self, execution: Execution) -> None:
        """Runs it, and returns when it has ended or is suspended. Its journal is open."""
        running = Running(execution, None)
        self._know(execution, running)
        await self._live(execution, running, self._admitted())

    async def admit(self) -> None:
        """Raises: RequestFailure (REQUEST_OVERLOADED, REQUEST_SHUTTING_DOWN) when no more may wait for their turn."""
        await self._runner.admit()

    async def queue(self, ticket: Ticket) -> None:
        """Has it run here or elsewhere, when its turn comes."""
        await self._runner.queue(ticket)

    def recorded(self, record: Record) -> Execution:
        """The execution of a record that is taken over; its journal is open from now on."""
        self._world.journal.adopt(record)
        header = replace(record.header, durability="journaled")
        return Execution(header, world=self._world, journal=self._world.journal, record=record)

    def is_later(self, header: Header) -> bool:
        """Whether the execution is told by a later version of its pattern, or by one that is not there yet."""
        pattern = self.patterns.get(header.mode)
        return pattern is None or header.pattern_version > pattern.version

    def named(self, tenant: str, request_id: str) -> Running | None:
        """The execution of that name, if it runs here."""
        return self._named.get((tenant, request_id))

    def in_session(self, tenant: str, session_id: str) -> list[Running]:
        """Those of that session that run or wait here."""
        return [running for running in self._running.values() if running.session == (tenant, session_id)]

    def runs(self, execution_id: str) -> bool:
        """Whether it runs here."""
        return execution_id in self._running

    def heed_cancel(self, execution_id: str) -> bool:
        """Cancels it if it runs here, which it says."""
        running = self._running.get(execution_id)
        if running is not None:
            running.cancel()
        return running is not None

    def lose(self, execution_id: str, failure: Failure) -> None:
        """What that execution does is not kept any more."""
        if execution_id in self._running:
            self._running[execution_id].lose(failure)

    @property
    def draining(self) -> bool:
        """Whether nothing is begun here any more."""
        return self._runner.draining

    def refuse_while_draining(self) -> None:
        """Raises: RequestFailure (REQUEST_SHUTTING_DOWN) for what could only be begun here, and would be lost."""
        if self.draining:
            raise RequestFailure(Code.REQUEST_SHUTTING_DOWN, "this replica is stopping", retry_after=1.0)

    def dismiss_waiting(self) -> None:
        """Sends away whoever reads what does not run here; it may be resumed elsewhere."""
        self._world.watchers.dismiss_all_but(self._running.keys())

    def stop_all(self) -> None:
        """Stops everything that runs here: what is journaled is left to its next owner, all else is cancelled."""
        for running in list(self._running.values()):
            running.stop()

    def _know(self, execution: Execution, running: Running) -> None:
        self._running[running.execution_id] = self._named[_name(execution.header)] = running

    def _admitted(self) -> Stages:
        """The stages of an execution that was admitted before; how long that took was not kept."""
        return Stages(self._world.clock, [StageTrace("AuthResolve", 0.0, "ok")])

    async def _live(self, execution: Execution, running: Running, stages: Stages) -> None:
        turn = Turn(execution)

        async def prepared() -> Outcome:
            return prepare(execution.header, self._world, stages, turn.past)

        try:
            come = partial(told, turn, execution.header, self._world)
            await live(execution, story_of(execution.header, self.patterns, prepared, come))
        finally:
            turn.over()
            del self._running[running.execution_id], self._named[_name(execution.header)]
            if not running.is_suspended:
                self._world.watchers.dismiss(running.execution_id)
            try:
                self._world.journal.close(running.execution_id)
            finally:
                running.done()


def story_of(
    header: Header,
    patterns: Mapping[Mode, Pattern],
    prepare: Callable[[], Awaitable[Outcome]],
    turn: Callable[[], Awaitable[Sequence[Message]]] | None = None,
) -> Story:
    """How an execution is told today; one whose journal belongs to another version of its pattern fails."""
    pattern = patterns.get(header.mode)
    if pattern is None:
        return Story(prepare, _refuse)
    known = pattern.version == header.pattern_version
    return Story(prepare, pattern.run if known else _refuse, pattern.planning, turn)


def outdated() -> StorageFailure:
    """The failure of a journal that today's pattern cannot go on with."""
    return StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "the journal is of another version of its pattern")


async def _refuse(_: Run) -> str:
    raise outdated()


def _name(header: Header) -> tuple[str, str]:
    return header.tenant, header.request_id
