"""Records told again, offline: by whoever asks for one over HTTP, before a resume, and from the command line."""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import BaseModel, Field

from app.domain.failures import Code, Failure, RequestFailure
from app.domain.journal.events import ExecutionSuspended, LifecycleTransition
from app.domain.journal.header import ExecutionHeader
from app.domain.journal.outcomes import Outcome
from app.domain.lifecycle import Mode, State
from app.orchestration.execution.execution import Execution
from app.orchestration.execution.pattern import Pattern
from app.orchestration.runtime.driver import replay
from app.orchestration.runtime.launcher import program_for, version_mismatch
from app.ports.journal import ExecutionHistory
from app.ports.storage import ExecutionFilter, ExecutionStore, StoredExecution

_A_PAGE = 100


class ReplayReport(BaseModel):
    """What an offline replay found."""

    identical: bool = Field(description="Whether it is the record, step by step.")
    steps: int | None = Field(None, description="How many steps there are.")
    step: str | None = Field(None, description="The first that differs.")
    recorded: str | None = Field(None, description="What the record has there.")
    replayed: str | None = Field(None, description="What the replay has there.")


class OfflineReplayer:
    """Tells records again with today's patterns, which takes neither an event loop nor a world."""

    def __init__(self, patterns: Mapping[Mode, Pattern]) -> None:
        self._patterns = patterns

    def replay(self, record: ExecutionHistory) -> ReplayReport:
        """What a replay of it finds; what was answered since it was suspended is left out.

        Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when the pattern has another version by now.
        """
        self.require_current_version(record.header)
        record = _as_it_was_suspended(record)
        execution = Execution(record.header, world=None, journal=None, record=record)
        try:
            return ReplayReport(
                identical=True, steps=replay(execution, program_for(record.header, self._patterns, _never))
            )
        except Failure as difference:
            if difference.code is not Code.ORCHESTRATION_REPLAY_DIVERGED:
                raise
            return ReplayReport(identical=False, **difference.details)

    def require_current_version(self, header: ExecutionHeader) -> None:
        """Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) for a journal that today's pattern cannot go on with."""
        pattern = self._patterns.get(header.mode)
        if pattern is None or header.pattern_version != pattern.version:
            raise version_mismatch()


class HistoryReader:
    """Executions as they are stored, looked at beside whoever runs them. Raises: StorageFailure, in everything."""

    def __init__(self, store: ExecutionStore, patterns: Mapping[Mode, Pattern]) -> None:
        self._store = store
        self._replayer = OfflineReplayer(patterns)

    async def newest(self, tenant: str, count: int) -> list[str]:
        """The request ids of so many executions, the newest first; of fewer when that is all there are."""
        names: list[str] = []
        after: str | None = None
        while len(names) < count:
            page = await self._store.executions(
                tenant, ExecutionFilter(), after=after, limit=min(_A_PAGE, count - len(names))
            )
            names += [each.request_id for each in page.items]
            if page.next is None:
                break
            after = page.next
        return names

    async def replay(self, tenant: str, request_id: str) -> ReplayReport:
        """Tells its record again.

        Raises: RequestFailure (REQUEST_NOT_FOUND, also when its journal is not kept any more; REQUEST_IN_PROGRESS).
        """
        stored = await self._store.find(tenant, request_id)
        if stored is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "there is no execution of that id", condition="path")
        require_at_rest(stored)
        record = await self._store.load(tenant, stored.execution_id)
        if record is None:
            raise RequestFailure(Code.REQUEST_NOT_FOUND, "its journal is not kept any more", condition="path")
        return self._replayer.replay(record)


def require_at_rest(stored: StoredExecution) -> None:
    """Raises: RequestFailure (REQUEST_IN_PROGRESS) unless it ended, or waits and nobody is taking it over."""
    if stored.owner is not None or not (stored.status.ended or stored.status.state is State.SUSPENDED):
        raise RequestFailure(Code.REQUEST_IN_PROGRESS, "the execution is still running", retry_after=1.0)


def _as_it_was_suspended(record: ExecutionHistory) -> ExecutionHistory:
    """Without the answers to its last suspension, where it has not gone on since."""
    waits, asked = False, frozenset[str]()
    for item in record.events:
        if isinstance(item.event, ExecutionSuspended):
            waits, asked = True, frozenset(each.suspension_id for each in item.event.suspensions)
        elif isinstance(item.event, LifecycleTransition) and item.event.from_state is State.SUSPENDED:
            waits = False
    if not waits:
        return record
    return replace(record, steps={key: row for key, row in record.steps.items() if key not in asked})


async def _never() -> Outcome:
    raise RuntimeError("an offline replay prepares nothing")
