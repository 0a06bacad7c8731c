"""Executions that exist already: those that run here, wait for an answer, or have ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.contract.response import Suspension, SystemError, SystemResponse
from app.domain.failures import TAXONOMY, Code, RequestFailure, StorageFailure, failure
from app.domain.journal.events import ExecutionResumed, StoredEvent
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.status import ExecutionStatus
from app.domain.lifecycle import Mode, State
from app.orchestration.execution.environment import Environment
from app.orchestration.runtime.agent_trace import AgentTrace, agent_trace
from app.orchestration.runtime.handle import ExecutionHandle
from app.orchestration.runtime.launcher import Launcher
from app.orchestration.runtime.recovery import Recovery, status_of
from app.orchestration.runtime.replay import OfflineReplayer, ReplayReport, require_at_rest
from app.orchestration.runtime.resume import RESUME_ANCHOR, answer_step, select_suspension
from app.orchestration.runtime.subscription import CatchUpSubscription
from app.ports.events import EventTailer, Subscription
from app.ports.journal import ExecutionHistory
from app.ports.storage import ExecutionFilter, ExecutionStore, StoredExecution

EVENTS_PER_PAGE = 1_000


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


class OpenSuspensionView(BaseModel):
    """An open question, and the execution it belongs to."""

    request_id: str = Field(description="The request's id.")
    suspension: Suspension = Field(description="The question.")


@dataclass(frozen=True, slots=True)
class ExecutionPage:
    """Some executions, newest first; `next` is what the page after this begins after."""

    executions: list[ExecutionView]
    next: str | None


@dataclass(frozen=True, slots=True)
class ResumeAccepted:
    """An execution that does not run here though an answer of its was taken: others are open, or somebody else has it.

    Where it is watched its `events` are read from that answer on, to its end or its next suspension.
    """

    view: ExecutionView
    events: Subscription | None


class Executions:
    """What can be asked of executions by tenant and request id. Another tenant's does not exist.

    Raises: RequestFailure (REQUEST_NOT_FOUND), StorageFailure, in everything that names one.
    """

    def __init__(self, world: Environment, store: ExecutionStore, launcher: Launcher, followers: EventTailer) -> None:
        self._world = world
        self._store = store
        self._launcher = launcher
        self._replayer = OfflineReplayer(launcher.patterns)
        self._followers = followers
        self.recovery = Recovery(world, store, launcher)

    async def show(self, tenant: str, request_id: str) -> ExecutionView:
        """Where it stands."""
        running = self._launcher.find(tenant, request_id)
        if running is not None:
            record = await self._world.journal.load(running.execution_id)
            if record is not None:
                return _view(record.header, status_of(record), [])
        stored = await self._stored(tenant, request_id)
        return _view(stored, stored.status, await self._open(stored))

    async def page(self, tenant: str, selection: ExecutionFilter, *, after: str | None, limit: int) -> ExecutionPage:
        """A page of them."""
        page = await self._store.executions(tenant, selection, after=after, limit=limit)
        return ExecutionPage([_view(each, each.status, await self._open(each)) for each in page.items], page.next)

    async def suspensions(self, tenant: str) -> list[OpenSuspensionView]:
        """All open questions, those of the oldest execution first."""
        found = await self._store.suspensions(tenant)
        return [OpenSuspensionView(request_id=each.request_id, suspension=each.suspension) for each in found]

    async def read(self, tenant: str, request_id: str, *, after: int = 0) -> Subscription:
        """Its events behind that number, live until it ends, over suspensions too; none are left when it `ended`.

        While the service is stopping nothing is waited for of what does not run here.
        """
        running = self._launcher.find(tenant, request_id)
        if running is not None:
            live, spoken = self._watch(running.execution_id), running.streamed_deltas()
            record = await self._world.journal.load(running.execution_id)
            if record is not None:
                committed = [item for item in record.events if item.sequence_number > after]
                return CatchUpSubscription([*committed, *spoken], after, live)
            live.close()
        stored = await self._stored(tenant, request_id)
        if stored.status.ended or self._launcher.is_draining:
            return CatchUpSubscription(await self._events(tenant, stored.execution_id, after), after, None)
        return self._followers.tail(stored, after)

    async def events(self, tenant: str, request_id: str) -> list[StoredEvent]:
        """Its events up to now."""
        stored = await self._stored(tenant, request_id)
        return await self._events(tenant, stored.execution_id, 0)

    async def trace(self, tenant: str, request_id: str) -> AgentTrace:
        """What its events tell of it so far.

        Raises: RequestFailure (REQUEST_NOT_FOUND) where they are not kept any more, (REQUEST_IN_PROGRESS) before the
        first.
        """
        running = self._launcher.find(tenant, request_id)
        record = None if running is None else await self._world.journal.load(running.execution_id)
        if record is not None and record.events:
            return agent_trace(record.events)
        stored = await self._stored(tenant, request_id)
        events = await self._events(tenant, stored.execution_id, 0)
        if events:
            return agent_trace(events)
        if stored.status.ended:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "its events are not kept any more", condition="path")
        raise RequestFailure(Code.REQUEST_IN_PROGRESS, "nothing has happened yet", retry_after=1.0)

    async def cancel(self, tenant: str, request_id: str) -> bool:
        """Has it end, whether it runs or waits; False when it had ended already, which changes nothing."""
        while (running := self._launcher.find(tenant, request_id)) is None:
            stored = await self._stored(tenant, request_id)
            if stored.status.ended:
                return False
            if stored.owner is not None:
                await self._store.request_cancel(tenant, stored.execution_id)
                return True
            if await self.recovery.end_unowned(stored, Code.CANCELLED_SIGNAL, "a client cancelled it"):
                return True
        running.cancel()
        return True

    async def resume(
        self, tenant: str, request_id: str, answer: ResumeRequest, *, by: str, watch: bool
    ) -> ExecutionHandle | ResumeAccepted:
        """Answers one open question. It runs again once none is left open.

        Where a cancel comes between the answer and that, it is the cancelled execution that is noted.

        Raises: RequestFailure (REQUEST_RESUME_UNEXPECTED, REQUEST_RESUME_MISMATCH, REQUEST_INVALID,
        REQUEST_SHUTTING_DOWN); StorageFailure (STORAGE_SNAPSHOT_INVALID) when today's pattern tells something else than
        the record; nothing is changed then.
        """
        if self._launcher.find(tenant, request_id) is not None:
            raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution is not suspended")
        self._launcher.require_accepting()
        stored = await self._stored(tenant, request_id)
        suspension = select_suspension(await self._open(stored), answer.tool_id, answer.suspension_id)
        row = answer_step(suspension, answer.payload, at=self._world.clock.now())
        record = await self._record(tenant, stored.execution_id)
        await self._refuse_what_cannot_go_on(record)
        resumed = ExecutionResumed(suspension.suspension_id, suspension.kind, suspension.tool_id, by)
        told = (RESUME_ANCHOR, record.events[0].correlation, resumed)
        taken = await self._store.answer(tenant, stored.execution_id, row.key, row, [told])
        running = None if taken.open_suspensions else await self.recovery.continue_now(stored, taken.epoch, watch=watch)
        if running is None and not watch:
            running = self._launcher.find(tenant, request_id)
        return running or await self._noted(stored, watch=watch)

    async def replay(self, tenant: str, request_id: str) -> ReplayReport:
        """Tells its record again, offline. Raises: as `at_rest`."""
        record = await self.load_at_rest(tenant, request_id)
        return await self._world.thread_pool.run(partial(self._replayer.replay, record))

    async def load_at_rest(self, tenant: str, request_id: str) -> ExecutionHistory:
        """The record of an execution that ended or waits.

        Raises: RequestFailure (REQUEST_IN_PROGRESS) while it runs; StorageFailure (STORAGE_SNAPSHOT_INVALID) when the
        pattern has another version by now.
        """
        stored = await self._stored(tenant, request_id)
        require_at_rest(stored)
        record = await self._record(tenant, stored.execution_id)
        self._replayer.require_current_version(record.header)
        return record

    async def _noted(self, stored: StoredExecution, *, watch: bool) -> ResumeAccepted:
        view = await self.show(stored.tenant, stored.request_id)
        return ResumeAccepted(
            view, self._followers.tail(stored, stored.last_sequence_number, past_suspension=False) if watch else None
        )

    async def _refuse_what_cannot_go_on(self, record: ExecutionHistory) -> None:
        """An answer is taken once: it must not be lost to a journal that then diverges."""
        if not (await self._world.thread_pool.run(partial(self._replayer.replay, record))).identical:
            raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "the journal is not what its pattern tells today")

    def _watch(self, execution_id: str) -> Subscription:
        return self._world.event_feed.subscribe(execution_id, past_suspension=True)

    async def _stored(self, tenant: str, request_id: str) -> StoredExecution:
        """What the store knows of it; an execution that ended in memory a moment ago may still have to be written."""
        found = await self._store.find(tenant, request_id)
        if found is None:
            await self._world.journal.flushed()
            found = await self._store.find(tenant, request_id)
        if found is None:
            raise _unknown()
        return found

    async def _open(self, stored: StoredExecution) -> list[Suspension]:
        if stored.status.state is not State.SUSPENDED:
            return []
        return [each.suspension for each in await self._store.suspensions(stored.tenant, stored.execution_id)]

    async def _record(self, tenant: str, execution_id: str) -> ExecutionHistory:
        record = await self._store.load(tenant, execution_id)
        if record is None:
            raise _unknown()
        return record

    async def _events(self, tenant: str, execution_id: str, after: int) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        while True:
            last = events[-1].sequence_number if events else after
            page = await self._store.events(tenant, execution_id, after=last, limit=EVENTS_PER_PAGE)
            events += page
            if len(page) < EVENTS_PER_PAGE:
                return events


def _view(
    named: ExecutionHeader | StoredExecution, standing: ExecutionStatus, asked: Sequence[Suspension]
) -> ExecutionView:
    session_id = named.session_id if isinstance(named, StoredExecution) else named.request.session_id
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


def _error(standing: ExecutionStatus) -> SystemError | None:
    """The response's own where there is one; of an error that was recovered from only the code is kept."""
    code, response = standing.last_error, standing.response
    if response is not None and response.error is not None:
        return response.error
    return None if code is None else SystemError.of(failure(code, TAXONOMY[code].meaning))


def _unknown() -> RequestFailure:
    return RequestFailure(Code.REQUEST_NOT_FOUND, "there is no execution of that id", condition="path")
