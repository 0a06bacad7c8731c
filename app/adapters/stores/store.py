"""Executions as the store keeps them: found, listed, read, answered, taken over and forgotten."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from app.adapters.stores import codec, queries
from app.adapters.stores.batching import COMMIT
from app.adapters.stores.claiming import broken, claim, end
from app.adapters.stores.database import Cells, Database, Rows, Statement, Transaction, ask, ask_each
from app.adapters.stores.entries import empty_commit, log, step
from app.adapters.stores.openings import KEY_KEPT_S
from app.adapters.stores.records import decoded, load, record, weight
from app.domain.effects import Row
from app.domain.events import Anchored, Recorded, numbered
from app.domain.failures import Code, RequestFailure, StorageFailure
from app.domain.lifecycle import Mode, State
from app.domain.standing import Standing
from app.keeping import Answer, Left, Page, Pending, Selection, Stored
from app.ports import Clock, EventSink, Record

_BEHIND_ALL = "\U0010ffff"
"""Sorts behind every id."""


class DatabaseStore:
    """Implements `keeping.Store`. `owner` names this replica; `sink` hears the events that it commits.

    `on_cancel` is told of what others are to cancel.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        owner: str,
        sink: EventSink,
        on_cancel: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._sink = sink
        self._on_cancel = on_cancel

    async def find(self, tenant: str, request_id: str) -> Stored | None:
        found = await self._read(queries.NAMED, {"the_tenant": tenant, "the_request_id": request_id})
        return _stored(found[0]) if found else None

    async def executions(
        self, tenant: str, selection: Selection, *, after: str | None = None, limit: int
    ) -> Page[Stored]:
        chosen = {f"the_{name}": getattr(selection, name) for name in queries.FILTERS}
        place = {"the_tenant": tenant, "before": after or _BEHIND_ALL, "at_most": limit + 1}
        rows = await self._read(queries.LISTED, chosen | place)
        items = [_stored(row) for row in rows[:limit]]
        return Page(items, items[-1].execution_id if len(rows) > limit else None)

    async def load(self, tenant: str, execution_id: str) -> Record | None:
        return await load(self._database, tenant, execution_id)

    async def events(self, tenant: str, execution_id: str, *, after: int = 0, limit: int) -> Sequence[Recorded]:
        values = {"the_tenant": tenant, "the_execution_id": execution_id, "after": after, "up_to": after + limit}
        rows = await self._read(queries.EVENTS_BETWEEN, values)
        return await decoded(lambda: _events(rows, after, after + limit), sum(len(row[0]) for row in rows))

    async def suspensions(self, tenant: str, execution_id: str | None = None) -> Sequence[Pending]:
        rows = await self._read(queries.PENDING, {"the_tenant": tenant, "the_execution_id": execution_id})
        return [Pending(row[0], row[1], codec.decode_suspension(row[2])) for row in rows]

    async def answer(
        self, tenant: str, execution_id: str, suspension_id: str, row: Row, events: Sequence[Anchored] = ()
    ) -> Answer:
        which = {"the_tenant": tenant, "the_execution_id": execution_id, "the_suspension_id": suspension_id}
        now = self._clock.now()
        taken, told = await self._database.write(lambda: _answer(which, row, events, now))
        if told:
            self._sink.publish(execution_id, told)
        return taken

    async def claim(self, execution_id: str, epoch: int) -> Record | None:
        claimed = await self._database.write(lambda: claim(execution_id, epoch, self._owner))
        if claimed is None:
            return None
        try:
            return await decoded(lambda: record(claimed.rows), weight(claimed.rows))
        except StorageFailure as unreadable:
            told = broken(claimed, unreadable, self._clock.now())
        if await self._database.write(lambda: end(claimed, told)):
            self._sink.publish(execution_id, told)
        return None

    async def give_back(self, execution_id: str, epoch: int) -> None:
        which = {"the_execution_id": execution_id, "the_epoch": epoch}
        await self._database.write(lambda: ask(queries.GIVE_BACK, which))

    async def ask_to_cancel(self, tenant: str, execution_id: str) -> None:
        asked = {"the_tenant": tenant, "the_execution_id": execution_id, "asked_at": self._clock.now()}
        await self._database.write(lambda: ask(queries.ASK_TO_CANCEL, asked), recognisable=True)
        self._on_cancel(execution_id)

    async def to_cancel(self) -> Sequence[Left]:
        return [Left(*row) for row in await self._read(queries.TO_CANCEL, {"the_owner": self._owner})]

    async def waiting(self) -> int:
        """How many executions wait for their turn."""
        found: int = (await self._read(queries.WAITING, {}))[0][0]
        return found

    async def unattended(self, alive: Collection[str]) -> Sequence[Left]:
        found = [Left(*row) for row in await self._read(queries.UNATTENDED, {})]
        return [each for each in found if each.owner not in alive]

    async def expired(self) -> Sequence[Left]:
        return [Left(*row) for row in await self._read(queries.EXPIRED, {"now": self._clock.now()})]

    async def forget(self, *, ended_before: float, limit: int) -> int:
        forgotten = self._clock.now() - KEY_KEPT_S
        return await self._database.write(lambda: _forget(ended_before, limit, forgotten), recognisable=True)

    async def _read(self, statement: Statement, values: Mapping[str, Any]) -> Rows:
        return await self._database.read(lambda: ask(statement, values))


def _stored(row: Cells) -> Stored:
    execution_id, tenant, request_id, session_id, mode, created_at, owner, epoch, events, *standing = row
    try:
        stands, runs = _standing(standing), Mode(mode)
    except ValueError:
        raise StorageFailure(Code.STORAGE_SNAPSHOT_INVALID, "a stored execution is of a later version") from None
    return Stored(execution_id, tenant, request_id, session_id, runs, created_at, stands, owner, epoch, events)


def _standing(cells: Sequence[Any]) -> Standing:
    entered_at, state, attempt, total_steps, last_step, last_error, response = cells
    error = None if last_error is None else Code(last_error)
    answered = None
    if response is not None:
        try:
            answered = codec.decode_response(response)
        except StorageFailure as unreadable:
            error = unreadable.code
    return Standing(entered_at, State(state), attempt, total_steps, last_step, error, answered)


def _events(rows: Rows, after: int, up_to: int) -> list[Recorded]:
    events = (event for row in rows for event in codec.decode_events(row[0]))
    return [event for event in events if after < event.sequence_number <= up_to]


def _answer(
    which: Mapping[str, Any], row: Row, events: Sequence[Anchored], now: float
) -> Transaction[tuple[Answer, Sequence[Recorded]]]:
    """What becomes of the answer, and the events as they were numbered."""
    grown = {"grown_by": len(events), "key": row.key}
    moved = yield from ask(queries.MOVE_ON_SUSPENDED, {**which, **grown})
    if not moved:
        raise RequestFailure(Code.REQUEST_RESUME_UNEXPECTED, "the execution is not suspended")
    answered = yield from ask(queries.ANSWER, {**which, "now": now})
    if not answered:
        raise RequestFailure(Code.REQUEST_RESUME_MISMATCH, "no such question is open")
    epoch, number, last_event = moved[0]
    stored = empty_commit(which["the_execution_id"], number=number, epoch=epoch) | step(row)
    told = numbered(events, last_event - len(events) + 1, now)
    if told:
        stored |= log(told)
    yield from ask_each(COMMIT, [stored])
    left = yield from ask(queries.OPEN_LEFT, which)
    return Answer(left[0][0], epoch), told


def _forget(ended_before: float, limit: int, forgotten: float) -> Transaction[int]:
    ended = yield from ask(queries.ENDED, {"before": ended_before, "at_most": limit})
    these = [{"the_execution_id": execution_id} for (execution_id,) in ended]
    yield from ask_each(queries.FORGET_COMMITS, these)
    yield from ask_each(queries.FORGET_SUSPENSIONS, these)
    yield from ask_each(queries.FORGET_CANCELS, these)
    yield from ask(queries.FORGET_KEYS, {"before": forgotten})
    return len(these)
