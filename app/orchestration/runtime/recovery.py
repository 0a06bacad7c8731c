"""Who goes on with which stored execution: what had its turn, was left by its owner, timed out, or is to be cancelled.

Theory of operation

1. An execution belongs to whoever claimed it last. A claim names the epoch that it was read in, so of several that try
   at once one has it; whatever an earlier owner still writes is refused from then on.
2. Nobody owns what waits for its turn or for an answer. What is found without an owner, and without an open question,
   in two sweeps running has been forgotten by whoever should have queued it; so has what this replica owns but does
   not run, and what belongs to somebody who was never seen to live. What an owner left that is gone is queued at once.
3. A cancel of what another replica runs is written down, and its owner told; it is heeded by whoever owns the execution
   when it is read, or by anybody when nobody does.
4. What a later version wrote, or a later version of its pattern tells, is left to replicas that know it, as they come
   while all are being replaced. It is looked at once in each of its epochs, which stays as it is.
"""

from collections.abc import Collection
from contextlib import suppress

from app.domain.failures import Code, RequestFailure, StorageFailure
from app.domain.journal.events import LifecycleTransition
from app.domain.journal.status import ExecutionStatus
from app.domain.lifecycle import State
from app.orchestration.execution.environment import Environment
from app.orchestration.execution.execution import Execution
from app.orchestration.runtime.handle import ExecutionHandle
from app.orchestration.runtime.launcher import Launcher
from app.orchestration.runtime.resume import RESUME_ANCHOR
from app.ports.journal import ExecutionHistory
from app.ports.runtime import QueueTicket
from app.ports.storage import ExecutionStore, RecoveryTicket, StoredExecution


class Recovery:
    """Takes executions out of the store and has them go on.

    Raises: StorageFailure, in everything.
    """

    def __init__(self, world: Environment, store: ExecutionStore, launcher: Launcher) -> None:
        self._world = world
        self._store = store
        self._launcher = launcher
        self._left: frozenset[tuple[str, int]] = frozenset()
        self._later: set[tuple[str, int]] = set()

    async def run_ticket(self, ticket: QueueTicket) -> None:
        """Runs it, now that it is its turn, until it ends or is suspended; does nothing when somebody else has it."""
        execution = await self._claimed(ticket.execution_id, ticket.epoch)
        if execution is not None:
            await self._launcher.run(execution)

    async def continue_now(self, stored: StoredExecution, epoch: int, *, watch: bool = False) -> ExecutionHandle | None:
        """Runs it from its record, at once; None when somebody else does."""
        execution = await self._claimed(stored.execution_id, epoch)
        return None if execution is None else self._launcher.start(execution, watch=watch, claimed=True)

    async def end_unowned(self, left: RecoveryTicket | StoredExecution, code: Code, why: str) -> bool:
        """Ends what waits; False when somebody else has it. Where there is no room now its next owner does.

        Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) when a later version wrote it, which is left as it is.
        """
        record = await self._store.claim(left.execution_id, left.epoch)
        if record is None:
            return False
        execution = self._launcher.attach(record)
        execution.stop(code, why)
        with suppress(RequestFailure):
            self._launcher.start(execution, watch=False, claimed=True)
        return True

    async def recover(self, alive: Collection[str], gone: Collection[str] | None) -> int:
        """Queues what nobody runs though it should run; how many that were.

        `alive` are the other replicas that live. What belonged to one that is `gone` is queued at once, with None
        everything is; else what is found a second time.
        """
        found = [each for each in await self._store.orphaned(alive) if not self._launcher.is_running(each.execution_id)]
        before, self._left = self._left, frozenset(map(_at_epoch, found))
        self._later &= self._left
        known = [each for each in found if _at_epoch(each) not in self._later]
        left = [each for each in known if gone is None or each.owner in gone or _at_epoch(each) in before]
        for each in left:
            await self._launcher.queue(QueueTicket(each.tenant, each.execution_id, each.epoch))
        return len(left)

    async def expire(self) -> int:
        """Ends the executions of which a question was not answered in time. How many that were."""
        found = await self._store.expired()
        for left in found:
            await self._end_here(left, Code.CANCELLED_TIMEOUT, "a question was not answered in time")
        return len(found)

    async def process_cancels(self) -> int:
        """Ends what somebody asked to cancel elsewhere, if it is this replica's or nobody's. How many that were."""
        found = await self._store.cancel_requested()
        for left in found:
            if not self._launcher.cancel_if_local(left.execution_id):
                await self._end_here(left, Code.CANCELLED_SIGNAL, "a client cancelled it")
        return len(found)

    async def _end_here(self, left: RecoveryTicket, code: Code, why: str) -> None:
        """Ends what waits, unless it is somebody else's or of a later version."""
        if _at_epoch(left) in self._later:
            return
        try:
            await self.end_unowned(left, code, why)
        except StorageFailure as failure:
            if not _is_later(failure):
                raise
            self._later.add(_at_epoch(left))

    async def _claimed(self, execution_id: str, epoch: int) -> Execution | None:
        """The execution, which is ours now; None when somebody else has it, or knows it."""
        if self._launcher.is_running(execution_id):
            return None
        try:
            record = await self._store.claim(execution_id, epoch)
        except StorageFailure as failure:
            if not _is_later(failure):
                raise
            self._later.add((execution_id, epoch))
            return None
        if record is None:
            return None
        if self._launcher.is_newer_version(record.header):
            await self._store.release(execution_id, record.epoch)
            self._later.add((execution_id, epoch))
            return None
        execution = self._launcher.attach(record)
        standing = status_of(record)
        if standing.state is State.SUSPENDED:
            moved = LifecycleTransition(State.SUSPENDED, State.EXECUTE, standing.attempt, "resumed")
            self._world.journal.put(execution_id, None, [(RESUME_ANCHOR, execution.correlation, moved)])
            execution.history.mark_resumed()
        return execution


def _at_epoch(left: RecoveryTicket) -> tuple[str, int]:
    return left.execution_id, left.epoch


def _is_later(failure: StorageFailure) -> bool:
    """Whether a claim was refused since a later version wrote what was to be claimed."""
    return failure.code is Code.STORAGE_SNAPSHOT_INVALID


def status_of(record: ExecutionHistory) -> ExecutionStatus:
    """Where the execution of that record stands."""
    return ExecutionStatus(record.header.created_at).apply(list(record.steps.values()), record.events)
