"""Live list: the executions and suspensions that a principal may read, and what changes in them.

A reader begins with everything that is unfinished, then gets the latest state of what changes. Rows are encoded once
for all readers with the same rights. A reader that is slow misses states in between, but not the last one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from pydantic import BaseModel, Field

from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.contract.response import Suspension
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, SessionId, TenantId
from portico.domain.journal.suspensions import ABOUT_CALLS
from portico.domain.value import value
from portico.orchestration.execution_views import listed_execution
from portico.orchestration.records import Records, SuspensionView, suspension_view
from portico.orchestration.redaction import redacted_suspensions, sees_all
from portico.ports.events import Change, ChangeFeed, ExecutionRemoval
from portico.ports.runtime import Clock
from portico.ports.storage import (
    UNFINISHED,
    ExecutionFilter,
    ExecutionStore,
    OpenSuspension,
    StoredExecution,
    SuspensionFilter,
)

MAX_READERS: Final = 8
"""Live lists that one user may read at a time."""
MAX_LISTED: Final = 1_000
SNAPSHOT_SECONDS: Final = 1.0
_MAX_QUEUED: Final = 4_000
"""Changes that wait for one reader; one with more is disconnected."""
_RETRY_AFTER: Final = 5.0


class SuspensionChange(BaseModel):
    """A suspension that was opened, or is not open any more."""

    open: bool = Field(description="True while it can be answered.")
    suspension: SuspensionView = Field(description="The suspension.")


class RemovedExecution(BaseModel):
    """An execution that was deleted."""

    request_id: RequestId = Field(description="The request's id.")


class ListReady(BaseModel):
    """The end of the beginning of a live list."""

    truncated: bool = Field(description="True if more is unfinished than the list began with.")


class ListChange(NamedTuple):
    """A change as a reader gets it; of those of one `key` only the last one counts."""

    name: str
    key: str
    session_id: SessionId | None
    data: bytes


@value
class _Rights:
    """Rights of a reader: those with equal ones see the same."""

    own: AccessScope
    readable: AccessScope
    approves: bool
    sees_all: bool

    @classmethod
    def of_principal(cls, principal: Principal) -> "_Rights":
        approves = principal.permissions.allows(Permission.APPROVE)
        return cls(principal.own, principal.readable, approves, sees_all(principal))


@value
class _Snapshot:
    """Unfinished executions and open suspensions, and the time at which they were read."""

    changes: Sequence[ListChange]
    is_truncated: bool
    read_at: float


class ChangeReader:
    """One reader of the live list. It may be read with `notify` and `take`."""

    def __init__(self, rights: _Rights, session_id: SessionId | None, leave: Callable[["ChangeReader"], None]) -> None:
        self.rights = rights
        self.ended = False
        self._session_id = session_id
        self._leave = leave
        self._queue: dict[str, ListChange] = {}
        self._notify: Callable[[], None] | None = None

    def begin(self, snapshot: _Snapshot) -> None:
        """Put what is unfinished, and `ready`, before the changes that have come since."""
        later, self._queue = self._queue, {}
        ready = ListReady(truncated=snapshot.is_truncated).model_dump_json().encode()
        self.offer([later.pop(each.key, each) for each in snapshot.changes])
        self._queue["ready"] = ListChange("ready", "ready", None, ready)
        self._queue |= later

    def offer(self, changes: Sequence[ListChange]) -> None:
        """Queue the changes in place of earlier ones of the same things."""
        for change in changes:
            if self._session_id is None or change.session_id == self._session_id:
                self._queue.pop(change.key, None)
                self._queue[change.key] = change
        if len(self._queue) > _MAX_QUEUED:
            self.close()
        elif self._queue and self._notify is not None:
            self._notify()

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Call back when there are changes, or the list ends."""
        self._notify = callback

    def take(self) -> Sequence[ListChange]:
        """Return all changes that are queued."""
        taken, self._queue = self._queue, {}
        return [*taken.values()]

    def close(self) -> None:
        """End the list. Closing twice is allowed."""
        if not self.ended:
            self.ended = True
            self._leave(self)
            if self._notify is not None:
                self._notify()


class Changes:
    """Live lists of executions and suspensions, by principal."""

    def __init__(self, feed: ChangeFeed, store: ExecutionStore, records: Records, clock: Clock) -> None:
        self._feed = feed
        self._store = store
        self._records = records
        self._clock = clock
        self._readers: dict[TenantId, list[ChangeReader]] = {}
        self._snapshots: dict[_Rights, _Snapshot] = {}

    async def watch(self, principal: Principal, session_id: SessionId | None = None) -> ChangeReader:
        """Return a reader of what the principal may see, in one session if it is given.

        Raises: RequestFailure (REQUEST_RATE_LIMITED) for more readers than one user may have; StorageFailure.
        """
        tenant, rights = principal.tenant, _Rights.of_principal(principal)
        readers = self._readers.get(tenant, [])
        if sum(reader.rights.own.user == principal.user for reader in readers) >= MAX_READERS:
            message = f"a user may read {MAX_READERS} live lists at a time"
            raise RequestFailure(Code.REQUEST_RATE_LIMITED, message, retry_after=_RETRY_AFTER)
        reader = ChangeReader(rights, session_id, self._leave)
        if not readers:
            self._readers[tenant] = readers
            self._feed.watch(tenant, partial(self._pass_on, tenant))
        readers.append(reader)
        try:
            reader.begin(await self._snapshot(principal, rights))
        except BaseException:
            reader.close()
            raise
        return reader

    async def removals(self, tenant: TenantId, where: ExecutionFilter) -> Sequence[ExecutionRemoval]:
        """Return what to pass on if these executions are deleted; nothing while no list of the tenant is read."""
        if tenant not in self._readers:
            return ()
        page = await self._store.executions(AccessScope(tenant), where, limit=MAX_LISTED)
        return [ExecutionRemoval(row.request_id, row.user, row.session_id) for row in page.items]

    def remove(self, tenant: TenantId, removals: Sequence[ExecutionRemoval]) -> None:
        """Pass on that these executions were deleted."""
        if removals and tenant in self._readers:
            self._feed.remove(tenant, removals)

    def disconnect(self) -> None:
        """End all live lists."""
        for readers in list(self._readers.values()):
            for reader in list(readers):
                reader.close()

    def _leave(self, reader: ChangeReader) -> None:
        tenant = reader.rights.own.tenant
        self._readers[tenant].remove(reader)
        if not self._readers[tenant]:
            del self._readers[tenant]
            self._snapshots = {rights: each for rights, each in self._snapshots.items() if rights.own.tenant != tenant}
            self._feed.unwatch(tenant)

    def _pass_on(self, tenant: TenantId, changes: Sequence[Change]) -> None:
        by_rights: dict[_Rights, list[ListChange]] = {}
        encoded: dict[tuple[int, bool], ListChange] = {}
        for reader in list(self._readers.get(tenant, ())):
            if reader.rights not in by_rights:
                by_rights[reader.rights] = list(_listed(changes, tenant, reader.rights, encoded))
            reader.offer(by_rights[reader.rights])

    async def _snapshot(self, principal: Principal, rights: _Rights) -> _Snapshot:
        """Return what is unfinished; it is read at most once in `SNAPSHOT_SECONDS` for equal rights."""
        known = self._snapshots.get(rights)
        if known is not None and self._clock.monotonic() < known.read_at + SNAPSHOT_SECONDS:
            return known
        read_at = self._clock.monotonic()
        page = await self._store.executions(rights.readable, ExecutionFilter(UNFINISHED), limit=MAX_LISTED)
        running = await self._feed.running(rights.readable)
        rows = {row.execution_id: row for row in (*page.items, *running)}
        newest = sorted(rows.values(), key=lambda row: row.execution_id, reverse=True)
        suspensions = await self._records.suspensions(principal, SuspensionFilter(), after=None, limit=MAX_LISTED)
        changes = [_execution(row, is_whole=rights.sees_all) for row in newest[:MAX_LISTED]]
        changes += [_suspension(view, is_open=True) for view in suspensions.suspensions]
        is_truncated = page.next is not None or len(newest) > MAX_LISTED or suspensions.next is not None
        self._snapshots[rights] = _Snapshot(changes, is_truncated, read_at)
        return self._snapshots[rights]


def _listed(
    changes: Sequence[Change], tenant: TenantId, rights: _Rights, encoded: dict[tuple[int, bool], ListChange]
) -> Iterator[ListChange]:
    """Yield the changes that a reader with these rights may see; executions are `encoded` once for all readers."""
    for number, change in enumerate(changes):
        if isinstance(change, ExecutionRemoval):
            if rights.readable.includes(tenant, change.user):
                data = RemovedExecution(request_id=change.request_id).model_dump_json().encode()
                yield ListChange("removed", f"execution {change.request_id}", change.session_id, data)
            continue
        row = change.execution
        if rights.readable.includes(tenant, row.user):
            if (number, rights.sees_all) not in encoded:
                encoded[number, rights.sees_all] = _execution(row, is_whole=rights.sees_all)
            yield encoded[number, rights.sees_all]
        for suspension, is_open in (
            *((each, True) for each in row.suspensions),
            *((each, False) for each in change.closed),
        ):
            view = _visible(row, suspension, rights)
            if view is not None:
                yield _suspension(view, is_open=is_open)


def _execution(row: StoredExecution, *, is_whole: bool) -> ListChange:
    data = listed_execution(row, is_whole=is_whole)
    return ListChange("execution", f"execution {row.request_id}", row.session_id, data)


def _suspension(view: SuspensionView, *, is_open: bool) -> ListChange:
    data = SuspensionChange(open=is_open, suspension=view).model_dump_json(by_alias=True).encode()
    key = f"suspension {view.request_id} {view.suspension_id}"
    return ListChange("suspension", key, view.session_id, data)


def _visible(row: StoredExecution, suspension: Suspension, rights: _Rights) -> SuspensionView | None:
    """Return the suspension as a reader with these rights may see it; None if it may not."""
    is_readable = rights.readable.includes(row.tenant, row.user)
    if not is_readable and not (rights.approves and suspension.kind in ABOUT_CALLS):
        return None
    found = OpenSuspension(row.execution_id, row.request_id, row.session_id, row.user, row.channel, suspension)
    view = suspension_view(found, is_whole=is_readable)
    return view if rights.sees_all else redacted_suspensions([view])[0]
