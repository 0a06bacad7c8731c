"""Offline replay of stored executions: over HTTP, before a resume, and from the command line."""

from collections.abc import Mapping

from pydantic import BaseModel, Field

from portico.domain.access.principal import AccessScope
from portico.domain.failures import Code, Failure, RequestFailure
from portico.domain.ids import RequestId, TenantId
from portico.domain.lifecycle import Mode, State
from portico.domain.value import value
from portico.orchestration.execution.execution import Execution
from portico.orchestration.execution.pattern import Pattern
from portico.orchestration.runtime.driver import pattern_for, replay, require_current_version
from portico.orchestration.runtime.resume import as_suspended
from portico.ports.journal import ExecutionHistory
from portico.ports.storage import ExecutionFilter, ExecutionStore, StoredExecution

_PAGE_SIZE = 100


class ReplayReport(BaseModel):
    """Result of an offline replay."""

    identical: bool = Field(description="True if the replay equals the record, step by step.")
    steps: int | None = Field(None, description="The number of steps.")
    step: str | None = Field(None, description="The first step that differs.")
    recorded: str | None = Field(None, description="The kind of that step in the record.")
    replayed: str | None = Field(None, description="The kind of that step in the replay.")


@value
class SuspendedFlow:
    """A suspended execution of a flow. `obstacle` is the reason for which it would not resume; None if it would."""

    request_id: RequestId
    flow: str
    obstacle: str | None


class OfflineReplayer:
    """Replays histories with today's patterns, without an event loop and without an environment."""

    def __init__(self, patterns: Mapping[Mode, Pattern]) -> None:
        self._patterns = patterns

    def replay(self, history: ExecutionHistory) -> ReplayReport:
        """Replay the history; of a suspended one, the answers recorded since are left out.

        Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if the pattern has another version by now.
        """
        require_current_version(history.header, self._patterns)
        history = as_suspended(history)
        execution = Execution(history.header, environment=None, journal=None, history=history)
        try:
            steps = replay(execution, pattern_for(history.header, self._patterns))
        except Failure as difference:
            if difference.code is not Code.ORCHESTRATION_REPLAY_DIVERGED:
                raise
            return ReplayReport(identical=False, **difference.details)
        return ReplayReport(identical=True, steps=steps)


class HistoryReader:
    """Reads stored executions of all users beside a running service. Raises: StorageFailure, in every method."""

    def __init__(self, store: ExecutionStore, patterns: Mapping[Mode, Pattern]) -> None:
        self._store = store
        self._patterns = patterns
        self._replayer = OfflineReplayer(patterns)

    async def newest(self, tenant: TenantId, count: int) -> list[RequestId]:
        """Return the request ids of the newest `count` executions, newest first."""
        names: list[RequestId] = []
        after: str | None = None
        while len(names) < count:
            limit = min(_PAGE_SIZE, count - len(names))
            page = await self._store.executions(AccessScope(tenant), ExecutionFilter(), after=after, limit=limit)
            names += [each.request_id for each in page.items]
            if page.next is None:
                break
            after = page.next
        return names

    async def replay(self, tenant: TenantId, request_id: RequestId) -> ReplayReport:
        """Replay a stored execution.

        Raises: RequestFailure (REQUEST_NOT_FOUND) if it or its journal is not stored, (REQUEST_IN_PROGRESS) while it
        runs.
        """
        stored = await self._store.find(AccessScope(tenant), request_id)
        if stored is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "no execution has this id", condition="path")
        require_at_rest(stored)
        history = await self._store.load(tenant, stored.execution_id)
        if history is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "the execution's journal was deleted", condition="path")
        return self._replayer.replay(history)

    async def suspended_flows(self, tenant: TenantId) -> list[SuspendedFlow]:
        """Return all suspended executions of flows, newest first, and if they would resume with today's graphs."""
        selected = ExecutionFilter(state=State.SUSPENDED, mode=Mode.FLOW)
        found: list[SuspendedFlow] = []
        after: str | None = None
        while True:
            page = await self._store.executions(AccessScope(tenant), selected, after=after, limit=_PAGE_SIZE)
            for stored in page.items:
                history = await self._store.load(tenant, stored.execution_id)
                if history is not None and history.header.request.flow is not None:
                    name = history.header.request.flow.name
                    found.append(SuspendedFlow(stored.request_id, name, self._obstacle(history)))
            if page.next is None:
                return found
            after = page.next

    def _obstacle(self, history: ExecutionHistory) -> str | None:
        header, pattern = history.header, self._patterns[Mode.FLOW]
        fingerprint = None if pattern.fingerprint is None else pattern.fingerprint(header.request)
        if fingerprint is None:
            return "the flow is not registered"
        if fingerprint != header.flow_fingerprint:
            return "the graph of the flow has changed"
        if not pattern.can_continue(header):
            return "another version of this service wrote its journal"
        report = self._replayer.replay(history)
        return None if report.identical else f"the flow differs from its record at step {report.step}"


def require_at_rest(stored: StoredExecution) -> None:
    """Raise RequestFailure (REQUEST_IN_PROGRESS) unless the execution has ended, or is suspended and unowned."""
    if stored.owner is not None or not (stored.status.ended or stored.status.state is State.SUSPENDED):
        raise RequestFailure(Code.REQUEST_IN_PROGRESS, "the execution is still running", retry_after=1.0)
