"""Erasure: deletion of executions and sessions, of forks only if asked for, and the end of those that are live."""

from collections.abc import Sequence
from functools import partial

from portico.domain.access.principal import AccessScope, Permission, Principal
from portico.domain.failures import Code, RequestFailure
from portico.domain.ids import RequestId, SessionId, TenantId
from portico.domain.journal.header import ExecutionHeader
from portico.domain.tools import Caller
from portico.orchestration.changes import Changes
from portico.orchestration.execution.environment import Environment
from portico.orchestration.executions import Executions
from portico.orchestration.records import Records
from portico.orchestration.rights import require
from portico.orchestration.runtime.handle import LocalExecutions
from portico.ports.events import ExecutionRemoval
from portico.ports.storage import ExecutionFilter, RecordStore


class Erasure:
    """Commands that delete; what belongs to another tenant or user does not exist.

    Executions in memory that have just ended are stored before, so that they are found if they hold copies. One that
    still runs in memory and goes on from what was deleted is not stored at its end.

    Raises: RequestFailure (REQUEST_NOT_FOUND; REQUEST_HAS_FORKS naming the forks that hold copies of the messages),
    StorageFailure; nothing is changed then.
    """

    def __init__(
        self,
        environment: Environment,
        store: RecordStore,
        executions: Executions,
        records: Records,
        local: LocalExecutions,
        *,
        changes: Changes,
    ) -> None:
        self._environment = environment
        self._store = store
        self._executions = executions
        self._records = records
        self._local = local
        self._changes = changes
        self._files = environment.files

    async def delete_execution(self, principal: Principal, request_id: RequestId, *, with_forks: bool) -> bool:
        """Delete an execution; return False if it or a fork still runs, which stops and is deleted at its end.

        Raises: RequestFailure (REQUEST_SESSION_BUSY, REQUEST_RESUME_REQUIRED) if a later turn of its session is live.
        """
        require(principal.permissions, Permission.SEND_MESSAGES, "delete executions")
        journal, local = self._environment.journal, self._local.find(principal.own, request_id)
        if local is not None:
            if journal.discard(local.execution_id):
                local.handle.add_done_callback(
                    partial(self._announce, principal.tenant, _removal(local.execution.header))
                )
                local.stop("it was deleted")
                return False
            await journal.flush(local.execution_id)
        stored = await self._records.stored(principal.own, request_id)
        await journal.flushed()
        forks = await self._changes.removals(stored.tenant, ExecutionFilter(origin=request_id)) if with_forks else ()
        pending = await self._store.erase_execution(stored.tenant, stored.execution_id, with_forks=with_forks)
        journal.forget(stored.tenant, request_id)
        own = ExecutionRemoval(stored.request_id, stored.user, stored.session_id)
        all_ended = await self._end(principal, pending)
        self._announce_all(stored.tenant, (own, *forks))
        await self._remove_files()
        return all_ended

    async def delete_session(self, principal: Principal, session_id: SessionId, *, with_forks: bool) -> None:
        """Stop the executions of the session that run here, then delete it with its messages and executions."""
        require(principal.permissions, Permission.SEND_MESSAGES, "delete sessions")
        await self._environment.journal.flushed()
        has_forks = not with_forks and bool(await self._store.forks_of_session(principal.own, session_id))
        running = () if has_forks else self._local.in_session(principal.own, session_id)
        for local in running:
            local.stop("its session was deleted")
        for local in running:
            await local.handle.wait()
        removals = await self._changes.removals(principal.tenant, ExecutionFilter(session_id=session_id))
        pending = await self._store.erase_session(principal.own, session_id, with_forks=with_forks)
        if pending is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "no session has this id", condition="path")
        await self._end(principal, pending)
        self._announce_all(principal.tenant, removals)
        if self._files is not None:
            self._files.discard(Caller(principal.tenant, principal.user, session_id, RequestId("")))
        await self._remove_files()

    async def _remove_files(self) -> None:
        if self._files is not None:
            await self._files.remove_discarded()

    def _announce_all(self, tenant: TenantId, removals: Sequence[ExecutionRemoval]) -> None:
        """Announce the removals, those of executions that still run here after their end."""
        for removal in removals:
            local = self._local.find(AccessScope(tenant), removal.request_id)
            if local is None:
                self._announce(tenant, removal)
            else:
                local.handle.add_done_callback(partial(self._announce, tenant, removal))

    def _announce(self, tenant: TenantId, removal: ExecutionRemoval) -> None:
        self._changes.remove(tenant, [removal])
        if self._files is not None:
            self._files.discard(Caller(tenant, removal.user, None, removal.request_id))

    async def _end(self, principal: Principal, live: Sequence[RequestId]) -> bool:
        """Cancel the executions; return True if all have ended, as those that were waiting do at once."""
        all_ended = True
        for request_id in live:
            waits = self._local.find(principal.own, request_id) is None
            try:
                is_stopping = await self._executions.cancel(principal, request_id)
            except RequestFailure as gone:
                if gone.code is not Code.REQUEST_NOT_FOUND:
                    raise
                continue
            local = self._local.find(principal.own, request_id)
            if waits and local is not None:
                await local.handle.wait()
            else:
                all_ended = all_ended and not is_stopping
        return all_ended


def _removal(header: ExecutionHeader) -> ExecutionRemoval:
    return ExecutionRemoval(header.request_id, header.user, header.request.session_id)
