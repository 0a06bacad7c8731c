"""Executions that exist already: those that run here, wait for an answer, or have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.boundary import Suspension, SystemError, SystemResponse
from app.domain.effects import Header
from app.domain.events import ExecutionResumed, Recorded
from app.domain.failures import TAXONOMY, Code, RequestFailure, StorageFailure, failure
from app.domain.lifecycle import Mode, State
from app.domain.standing import Standing
from app.keeping import Followers, Selection, Store, Stored
from app.orchestration.ownership import RESUMED, Ownership, standing_of
from app.orchestration.reading import JoinedReader
from app.orchestration.replaying import Replayed, Replayer, refuse_running
from app.orchestration.resuming import answered, chosen
from app.orchestration.running import Launcher, Running
from app.orchestration.tracing import AgentTrace, agent_trace
from app.orchestration.world import World
from app.ports import Record, Subscription

EVENTS_A_PAGE = 1_000


class ExecutionView(BaseModel):
    """Where an execution stands."""

    request_id: str = Field(description="The request's id.")
    session_id: str | None = Field(description="The session's id.")
    mode: Mode = Field(description="Which pattern runs.")
    state: State = Field(description="Where it stands.")
    entered_at: datetime = Field(description="Since when.")
    attempt: int = Field(description="Attempts at a valid answer, the current one included.")
    total_steps: int = Field(description="Recorded steps.")
    last_step: str | None = Field(description="The key of the last recorded step.")
    last_error: SystemError | None = Field(description="The most recent error; it may have been recovered from.")
    suspensions: list[Suspension] = Field(description="Open questions.")
    response: SystemResponse | None = Field(description="The answer; null until there is one.")


class ResumeRequest(BaseModel):
    """An answer to one open question."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tool_id: str = Field(min_length=1, max_length=256, description="What waits.")
    payload: JsonValue = Field(description="The answer.")
    suspension_id: str | None = Field(None, max_length=256, description="Which, where more than one waits.")


class PendingView(BaseModel):
    """An open question, and the execution it belongs to."""

    request_id: str = Field(description="The request's id.")
    suspension: Suspension = Field(description="The question.")


@dataclass(frozen=True, slots=True)
class Listed:
    """Some executions, newest first; `next` is what the page after this begins after."""

    executions: list[ExecutionView]
    next: str | None


@dataclass(frozen=True, slots=True)
class Noted:
    """An execution that does not run here though an answer of its was taken: others are open, or somebody else has it.

    Where it is watched its `events` are read from that answer on, to its end or its next suspension.
    """

    view: ExecutionView
    events: Subscription | None


class Executions:
    """What can be asked of executions by tenant and request id. Another tenant's does not exist.

    Raises: RequestFailure (REQUEST_NOT_FOUND), StorageFailure, in everything that names one.
    """

    def __init__(self, world: World, store: Store, launcher: Launcher, followers: Followers) -> None:
        self._world = world
        self._store = store
        self._launcher = launcher
        self._replayer = Replayer(launcher.patterns)
        self._followers = followers
        self.ownership = Ownership(world, store, launcher)

    async def show(self, tenant: str, request_id: str) -> ExecutionView:
        """Where it stands."""
        running = self._launcher.named(tenant, request_id)
        if running is not None:
            record = await self._world.journal.load(running.execution_id)
            if record is not None:
                return _view(record.header, standing_of(record), [])
        stored = await self._stored(tenant, request_id)
        return _view(stored, stored.standing, await self._open(stored))

    async def listed(self, tenant: str, selection: Selection, *, after: str | None, limit: int) -> Listed:
        """A page of them."""
        page = await self._store.executions(tenant, selection, after=after, limit=limit)
        return Listed([_view(each, each.standing, await self._open(each)) for each in page.items], page.next)

    async def suspensions(self, tenant: str) -> list[PendingView]:
        """All open questions, those of the oldest execution first."""
        found = await self._store.suspensions(tenant)
        return [PendingView(request_id=each.request_id, suspension=each.suspension) for each in found]

    async def read(self, tenant: str, request_id: str, *, after: int = 0) -> Subscription:
        """Its events behind that number, live until it ends, over suspensions too; none are left when it `ended`.

        While the service is stopping nothing is waited for of what does not run here.
        """
        running = self._launcher.named(tenant, request_id)
        if running is not None:
            live, spoken = self._watch(running.execution_id), running.spoken()
            record = await self._world.journal.load(running.execution_id)
            if record is not None:
                committed = [item for item in record.events if item.sequence_number > after]
                return JoinedReader([*committed, *spoken], after, live)
            live.close()
        stored = await self._stored(tenant, request_id)
        if stored.standing.ended or self._launcher.draining:
            return JoinedReader(await self._events(tenant, stored.execution_id, after), after, None)
        return self._followers.follow(stored, after)

    async def told(self, tenant: str, request_id: str) -> list[Recorded]:
        """Its events up to now."""
        stored = await self._stored(tenant, request_id)
        return await self._events(tenant, stored.execution_id, 0)

    async def trace(self, tenant: str, request_id: str) -> AgentTrace:
        """What its events tell of it so far.

        Raises: RequestFailure (REQUEST_NOT_FOUND) where they are not kept any more, (REQUEST_IN_PROGRESS) before the
        first.
        """
        running = self._launcher.named(tenant, request_id)
        record = None if running is None else await self._world.journal.load(running.execution_id)
        if record is not None and record.events:
            return agent_trace(record.events)
        stored = await self._stored(tenant, request_id)
        events = await self._events(tenant, stored.execution_id, 0)
        if events:
            return agent_trace(events)
        if stored.standing.ended:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "its events are not kept any more", condition="path")
        raise RequestFailure(Code.REQUEST_IN_PROGRESS, "nothing has happened yet", retry_after=1.0)

    async def cancel(self, tenant: str, request_id: str) -> bool:
        """Has it end, whether it runs or waits; False when it had ended already, which changes nothing."""
        while (running := self._launcher.named(tenant, request_id)) is None:
            stored = await self._stored(tenant, request_id)
            if stored.standing.ended:
                return False
            if stored.owner is not None:
                await self._store.ask_to_cancel(tenant, stored.execution_id)
                return True
            if await self.ownership.end(stored, Code.CANCELLED_SIGNAL, "a client cancelled it"):
                return True
        running.cancel()
        return True

    async def resume(
        self, tenant: str, request_id: str, answer: ResumeRequest, *, by: str, watch: bool
    ) -> Running | Noted:
        """Answers one open question. It runs again once none is left open.

        Where a cancel comes between the answer and that, it is the cancelled execution that is noted.

        Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED, REQUEST_RESUME_MISMATCH, REQUEST_INVALID,
        REQUEST_SHUTTING_DOWN); StorageFailure (STORAGE_SNAPSHOT_INVALID) when today's pattern tells something else than
        the record; nothing is changed then.
        """
        if self._launcher.named(tenant, request_id) is not None:
            raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution is not suspended")
        self._launcher.refuse_while_draining()
        stored = await self._stored(tenant, request_id)
        suspension = chosen(await self._open(stored), answer.tool_id, answer.suspension_id)
        row = answered(suspension, answer.payload, at=self._world.clock.now())
        record = await self._record(tenant, stored.execution_id)
        await self._refuse_what_cannot_go_on(record)
        resumed = ExecutionResumed(suspension.suspension_id, suspension.kind, suspension.tool_id, by)
        told = (RESUMED, record.events[0].correlation, resumed)
        taken = await self._store.answer(tenant, stored.execution_id, row.key, row, [told])
        running = None if taken.open else await self.ownership.go_on(stored, taken.epoch, watch=watch)
        if running is None and not watch:
            running = self._launcher.named(tenant, request_id)
        return running or await self._noted(stored, watch=watch)

    async def replay(self, tenant: str, request_id: str) -> Replayed:
        """Tells its record again, offline. Raises: as `at_rest`."""
        record = await self.at_rest(tenant, request_id)
        return await self._world.workers.run(partial(self._replayer.replayed, record))

    async def at_rest(self, tenant: str, request_id: str) -> Record:
        """The record of an execution that ended or waits.

        Raises: RequestFailure (REQUEST_IN_PROGRESS) while it runs; StorageFailure (STORAGE_SNAPSHOT_INVALID) when the
        pattern has another version by now.
        """
        stored = await self._stored(tenant, request_id)
        refuse_running(stored)
        record = await self._record(tenant, stored.execution_id)
        self._replayer.refuse_other_versions(record.header)
        return record

    async def _noted(self, stored: Stored, *, watch: bool) -> Noted:
        view = await self.show(stored.tenant, stored.request_id)
        return Noted(view, self._followers.follow(stored, stored.events, past_suspension=False) if watch else None)

    async def _refuse_what_cannot_go_on(self, record: Record) -> None:
        """An answer is taken once: it must not be lost to a journal that then diverges."""
        if not (await self._world.workers.run(partial(self._replayer.replayed, record))).identical:
            raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "the journal is not what its pattern tells today")

    def _watch(self, execution_id: str) -> Subscription:
        return self._world.watchers.watch(execution_id, past_suspension=True)

    async def _stored(self, tenant: str, request_id: str) -> Stored:
        """What the store knows of it; an execution that ended in memory a moment ago may still have to be written."""
        found = await self._store.find(tenant, request_id)
        if found is None:
            await self._world.journal.written()
            found = await self._store.find(tenant, request_id)
        if found is None:
            raise _unknown()
        return found

    async def _open(self, stored: Stored) -> list[Suspension]:
        if stored.standing.state is not State.SUSPENDED:
            return []
        return [each.suspension for each in await self._store.suspensions(stored.tenant, stored.execution_id)]

    async def _record(self, tenant: str, execution_id: str) -> Record:
        record = await self._store.load(tenant, execution_id)
        if record is None:
            raise _unknown()
        return record

    async def _events(self, tenant: str, execution_id: str, after: int) -> list[Recorded]:
        events: list[Recorded] = []
        while True:
            last = events[-1].sequence_number if events else after
            page = await self._store.events(tenant, execution_id, after=last, limit=EVENTS_A_PAGE)
            events += page
            if len(page) < EVENTS_A_PAGE:
                return events


def _view(named: Header | Stored, standing: Standing, asked: Sequence[Suspension]) -> ExecutionView:
    session_id = named.session_id if isinstance(named, Stored) else named.request.session_id
    return ExecutionView(
        request_id=named.request_id,
        session_id=session_id,
        mode=named.mode,
        state=standing.state,
        entered_at=datetime.fromtimestamp(standing.entered_at, UTC),
        attempt=standing.attempt,
        total_steps=standing.total_steps,
        last_step=standing.last_step,
        last_error=_error(standing),
        suspensions=list(asked),
        response=standing.response,
    )


def _error(standing: Standing) -> SystemError | None:
    """The response's own where there is one; of an error that was recovered from only the code is kept."""
    code, response = standing.last_error, standing.response
    if response is not None and response.error is not None:
        return response.error
    return None if code is None else SystemError.of(failure(code, TAXONOMY[code].meaning))


def _unknown() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, "there is no execution of that id", condition="path")
