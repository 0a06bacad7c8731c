"""Store of executions: finds, lists, reads, answers and claims them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from portico.adapters.stores import codec
from portico.adapters.stores.database import (
    Database,
    ResultRow,
    ResultRows,
    Statement,
    Transaction,
    execute,
    execute_each,
)
from portico.adapters.stores.executions import queries
from portico.adapters.stores.executions.decoded_commits import DecodedCommits
from portico.adapters.stores.executions.lease import claim_execution, end_unreadable, unreadable_events
from portico.adapters.stores.grants import insert_grants
from portico.adapters.stores.history import decode_sized, encoded_size, history_of_rows, load_history
from portico.adapters.stores.journal.group_commit import INSERT_COMMIT
from portico.adapters.stores.journal.rows import (
    empty_commit_row,
    event_columns,
    metadata_entry,
    number_events,
    step_columns,
)
from portico.domain.access.principal import AccessScope
from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.domain.ids import ExecutionId, ReplicaId, RequestId, TenantId
from portico.domain.journal.events import StoredEvent
from portico.domain.journal.status import ExecutionStatus
from portico.domain.lifecycle import Mode, State
from portico.domain.value import replace
from portico.ports.events import EventPublisher
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import Clock
from portico.ports.storage import (
    AnswerReceipt,
    ExecutionFilter,
    OutdatedAnswers,
    RecoveryTicket,
    ResultPage,
    StoredExecution,
    SuspensionAnswers,
)

_AFTER_ALL_IDS = "\U0010ffff"
"""Text that sorts after every id."""


_IDS_PER_QUERY = 64


class DatabaseExecutionStore:
    """Implementation of the `ExecutionStore` port.

    `owner` is the name of this replica, `sink` gets the events that it commits, and `on_cancel` is called for
    executions that another replica is to cancel.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        owner: ReplicaId,
        sink: EventPublisher,
        on_cancel: Callable[[ExecutionId], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._sink = sink
        self._on_cancel = on_cancel
        self._decoded_commits = DecodedCommits(clock)

    async def find(
        self, scope: AccessScope, request_id: RequestId, *, with_header: bool = False
    ) -> StoredExecution | None:
        which = {"the_tenant": scope.tenant, "the_user_id": scope.user, "the_request_id": request_id}
        statement = queries.WITH_HEADER if with_header else queries.BY_REQUEST_ID
        found = await self._database.read(lambda: _with_suspensions(statement, which, with_header=with_header))
        return found[0] if found else None

    async def find_all(self, tenant: TenantId, execution_ids: Sequence[ExecutionId]) -> Sequence[StoredExecution]:
        found: list[StoredExecution] = []
        for start in range(0, len(execution_ids), _IDS_PER_QUERY):
            part = execution_ids[start : start + _IDS_PER_QUERY]
            count = 1 if len(part) == 1 else _IDS_PER_QUERY
            padded = [*part, *[part[0]] * (count - len(part))]
            ids = {f"id_{number}": execution_id for number, execution_id in enumerate(padded)}
            found += await self._database.read(
                partial(_with_suspensions, queries.by_ids(count), {"the_tenant": tenant, **ids})
            )
        return found

    async def executions(
        self, scope: AccessScope, selection: ExecutionFilter, *, after: str | None = None, limit: int
    ) -> ResultPage[StoredExecution]:
        filters = {f"the_{name}": getattr(selection, name) for name in (*queries.FILTERS, "model", "origin")}
        states = {f"state_{number}": state for number, state in enumerate(selection.states)}
        prefix = {"prefix": selection.prefix, "behind_prefix": f"{selection.prefix}{_AFTER_ALL_IDS}"}
        period = {"since": selection.since, "until": selection.until}
        pairs = {f"entry_{number}": metadata_entry(*pair) for number, pair in enumerate(selection.metadata)}
        start = "" if selection.oldest_first else _AFTER_ALL_IDS
        owner = {"the_tenant": scope.tenant} | ({} if scope.user is None else {"the_user_id": scope.user})
        position = {**owner, "position": after or start, "at_most": limit + 1}
        statement = queries.page(
            queries.PageForm(
                len(states),
                len(pairs),
                by_prefix=selection.prefix is not None,
                by_origin=selection.origin is not None,
                for_user=scope.user is not None,
                oldest_first=selection.oldest_first,
            )
        )
        values = filters | states | prefix | period | pairs | position
        found = await self._database.read(lambda: _with_suspensions(statement, values))
        items = found[:limit]
        return ResultPage(items, items[-1].execution_id if len(found) > limit else None)

    async def load(self, tenant: TenantId, execution_id: ExecutionId) -> ExecutionHistory | None:
        return await load_history(self._database, tenant, execution_id)

    async def events(
        self, tenant: TenantId, execution_id: ExecutionId, *, after: int = 0, limit: int
    ) -> Sequence[StoredEvent] | None:
        values = {"the_tenant": tenant, "the_execution_id": execution_id, "after": after, "up_to": after + limit}
        rows = await self._read(queries.EVENTS_BETWEEN, values)
        if not rows:
            return None
        encoded = [(row[0], row[1]) for row in rows if row[1] is not None]
        events = await self._decoded_commits.events(execution_id, encoded)
        return [event for event in events if event.sequence_number > after]

    async def answer(
        self, tenant: TenantId, execution_id: ExecutionId, answers: SuspensionAnswers, *, claim: bool = False
    ) -> AnswerReceipt:
        which = {"the_tenant": tenant, "the_execution_id": execution_id}
        now, owner = self._clock.now(), self._owner if claim else None
        receipt = await self._database.write(lambda: _answer(which, answers, now=now, owner=owner))
        if receipt.events:
            self._sink.publish(execution_id, receipt.events)
        return receipt

    async def claim(self, execution_id: ExecutionId, epoch: int, *, cancel: bool = False) -> ExecutionHistory | None:
        cancelled_at = self._clock.now() if cancel else None
        claimed = await self._database.write(lambda: claim_execution(execution_id, epoch, self._owner, cancelled_at))
        if claimed is None:
            return None
        try:
            history = await decode_sized(lambda: history_of_rows(claimed.rows), encoded_size(claimed.rows))
        except StorageFailure as unreadable:
            numbered = unreadable_events(claimed, unreadable, self._clock.now())
        else:
            return replace(history, cancel_requested=claimed.cancel_requested)
        if await self._database.write(lambda: end_unreadable(claimed, numbered)):
            self._sink.publish(execution_id, numbered)
        return None

    async def release(self, execution_id: ExecutionId, epoch: int) -> None:
        which = {"the_execution_id": execution_id, "the_epoch": epoch}
        await self._database.write(lambda: execute(queries.RELEASE, which))

    async def request_cancel(self, tenant: TenantId, execution_id: ExecutionId) -> None:
        asked = {"the_tenant": tenant, "the_execution_id": execution_id, "asked_at": self._clock.now()}
        await self._database.write(lambda: execute(queries.REQUEST_CANCEL, asked), idempotent=True)
        self._on_cancel(execution_id)

    async def cancel_requested(self) -> Sequence[RecoveryTicket]:
        return [RecoveryTicket(*row) for row in await self._read(queries.CANCEL_REQUESTED, {"the_owner": self._owner})]

    async def orphaned(self, alive: Collection[str]) -> Sequence[RecoveryTicket]:
        found = [RecoveryTicket(*row) for row in await self._read(queries.ORPHANED, {})]
        return [each for each in found if each.owner not in alive]

    async def expired(self) -> Sequence[RecoveryTicket]:
        return [RecoveryTicket(*row) for row in await self._read(queries.EXPIRED, {"now": self._clock.now()})]

    async def _read(self, statement: Statement, values: Mapping[str, Any]) -> ResultRows:
        return await self._database.read(lambda: execute(statement, values))


def _with_suspensions(
    statement: Statement, values: Mapping[str, Any], *, with_header: bool = False
) -> Transaction[list[StoredExecution]]:
    """Return the executions that the statement selects, the suspended ones with their open suspensions."""
    read = _execution_with_header if with_header else _execution
    found = [read(row) for row in (yield from execute(statement, values))]
    for index, each in enumerate(found):
        if each.status.state is State.SUSPENDED:
            which = {"the_tenant": each.tenant, "the_execution_id": each.execution_id}
            rows = yield from execute(queries.OPEN_SUSPENSIONS, which)
            found[index] = replace(each, suspensions=[codec.decode_suspension(row[0]) for row in rows])
    return found


def _execution_with_header(row: ResultRow) -> StoredExecution:
    *cells, header = row
    return replace(_execution(cells), header=codec.decode_header_alone(header))


def _execution(row: Iterable[Any]) -> StoredExecution:
    execution_id, tenant, request_id, session_id, mode, created_at, owner, epoch, events, agent, *rest = row
    *status_cells, title, origin, origin_step, user, channel, run_at = rest
    try:
        status, known_mode = _status(status_cells), Mode(mode)
    except ValueError:
        raise StorageFailure(
            Code.STORAGE_SNAPSHOT_INVALID, "a stored execution was written by a later version"
        ) from None
    return StoredExecution(
        execution_id,
        tenant,
        request_id,
        session_id,
        known_mode,
        created_at,
        status,
        owner,
        epoch,
        events,
        user,
        agent,
        title=None if title is None else title.decode(),
        origin=origin,
        origin_step=origin_step,
        channel=channel,
        run_at=run_at,
    )


def _status(cells: Sequence[Any]) -> ExecutionStatus:
    entered_at, state, attempt, total_steps, last_step, last_error, *engine, fork_points, response = cells
    error = None if last_error is None else Code(last_error)
    answered = None
    if response is not None:
        try:
            answered = codec.decode_response(response)
        except StorageFailure as unreadable:
            error = unreadable.code
    started_at, provider, model = engine
    return ExecutionStatus(
        entered_at,
        State(state),
        attempt,
        total_steps,
        last_step,
        last_error=error,
        response=answered,
        started_at=started_at,
        provider=provider,
        model=model,
        fork_points=fork_points,
    )


def _answer(
    which: Mapping[str, Any], answers: SuspensionAnswers, *, now: float, owner: str | None
) -> Transaction[AnswerReceipt]:
    """Record the answers; the `owner`, if there is one, claims the execution with the last answer."""
    steps, events = answers.steps, answers.events
    grown = {"committed": max(1, len(steps)), "grown_by": len(events)}
    moved = yield from execute(queries.ADVANCE_SUSPENDED, {**which, **grown})
    if not moved:
        raise RequestFailure(
            Code.REQUEST_RESUME_UNEXPECTED, "the execution is not suspended, or is about to be cancelled"
        )
    epoch, last_commit, last_event = moved[0]
    if answers.after is not None and last_event != answers.after + len(events):
        raise OutdatedAnswers
    yield from _close_and_change(which, answers, now)
    yield from insert_grants(answers.grants, now)
    commits = [
        empty_commit_row(which["the_execution_id"], number=number, epoch=epoch)
        for number in range(last_commit - grown["committed"] + 1, last_commit + 1)
    ]
    commits = [row | step_columns(step) for row, step in zip(commits, steps, strict=True)] if steps else commits
    numbered = number_events(events, last_event - len(events) + 1, now)
    if numbered:
        commits[-1] |= event_columns(numbered)
    yield from execute_each(INSERT_COMMIT, commits)
    left = yield from execute(queries.COUNT_OPEN_SUSPENSIONS, which)
    open_suspensions = left[0][0]
    if owner is not None and open_suspensions == 0:
        claimed = {"the_execution_id": which["the_execution_id"], "the_epoch": epoch, "owner": owner}
        *_, epoch, _run_at = (yield from execute(queries.CLAIM, claimed))[0]
        yield from execute(queries.CONTINUE_ANSWERED, {**which, "now": now})
    return AnswerReceipt(open_suspensions, epoch, last_commit, numbered)


def _close_and_change(which: Mapping[str, Any], answers: SuspensionAnswers, now: float) -> Transaction[None]:
    """Close the suspensions that are answered, and change those that stay open."""
    open_after = 0.0 if answers.expired else now
    for step in answers.steps:
        closed = {**which, "the_suspension_id": step.key, "now": now, "open_after": open_after}
        if not (yield from execute(queries.ANSWER, closed)):
            raise _not_open()
    for each in answers.changed:
        changed = {"the_suspension_id": each.suspension_id, "changed": codec.encode_suspension(each), "now": now}
        if not (yield from execute(queries.CHANGE_SUSPENSION, {**which, **changed})):
            raise _not_open()


def _not_open() -> RequestFailure:
    return RequestFailure(Code.REQUEST_RESUME_MISMATCH, "this question is not open")
