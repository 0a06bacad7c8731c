"""Recovery: which replica continues a stored execution that was queued, orphaned, expired, or cancelled elsewhere.

Theory of operation

1. An execution belongs to the replica that claimed it last. A claim names the epoch in which the execution was read, so
   one of several concurrent claims succeeds; from then on every write of an earlier owner is refused.
2. An execution that is queued or waits for an answer has no owner. An unowned execution without open suspensions that
   is found in two consecutive sweeps is treated as orphaned; so is one that this replica owns but does not run, and
   one whose owner was never seen alive. The executions of a replica that has died are queued at once.
3. A request to cancel an execution that another replica runs is stored, and its owner is notified. The owner acts on
   it when it reads it; if there is no owner, the first replica that reads it does. Any replica that claims the
   execution meanwhile ends it, since the client was answered that it ends.
4. An execution that a newer release wrote, or whose pattern has a newer version, is left to the replicas that know it,
   as they exist during a rolling update. Each of its epochs is looked at once and left unchanged.
"""

from collections.abc import Collection
from contextlib import suppress

from portico.domain.failures import Code, RequestFailure, StorageFailure
from portico.domain.ids import ExecutionId, ReplicaId
from portico.domain.journal.outcomes import StopDecision
from portico.orchestration.runtime.approval_answer import expiry_answers
from portico.orchestration.runtime.driver import is_newer_version
from portico.orchestration.runtime.handle import CANCELLED_BY_CLIENT
from portico.orchestration.runtime.launcher import Launcher
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import Clock, QueueTicket
from portico.ports.storage import ExecutionStore, RecoveryTicket, StoredExecution

_EXPIRED = StopDecision(Code.CANCELLED_TIMEOUT, "a suspension expired before it was answered")


class Recovery:
    """Claims stored executions and starts them from their histories. Raises: StorageFailure, in every method."""

    def __init__(self, store: ExecutionStore, launcher: Launcher, clock: Clock) -> None:
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._found_before: frozenset[tuple[str, int]] = frozenset()
        self._newer_versions: set[tuple[str, int]] = set()

    async def run_ticket(self, ticket: QueueTicket) -> None:
        """Run a queued execution until it ends or is suspended; do nothing if another replica owns it by now."""
        history = await self._claim(ticket.execution_id, ticket.epoch)
        if history is not None:
            await self._launcher.run(history)

    async def end_unowned(self, stored: RecoveryTicket | StoredExecution, decision: StopDecision) -> bool:
        """End an execution that waits; return False if another replica owns it by now.

        A cancellation is stored when this returns. Without room to run it here the execution is left to its next
        owner. Raises: StorageFailure (STORAGE_SNAPSHOT_INVALID) if a
        newer release wrote it, which leaves it unchanged.
        """
        cancel = decision.code is Code.CANCELLED_SIGNAL
        history = await self._store.claim(stored.execution_id, stored.epoch, cancel=cancel)
        if history is None:
            return False
        with suppress(RequestFailure):
            self._launcher.start(history, claimed=True, stop=decision)
        return True

    async def recover(self, alive: Collection[ReplicaId], gone: Collection[ReplicaId] | None) -> int:
        """Queue the orphaned executions and return how many they are.

        `alive` are the other live replicas. Executions of an owner in `gone` are queued at once, with None all of them;
        the others when they are found a second time.
        """
        is_running = self._launcher.local.is_running
        found = [each for each in await self._store.orphaned(alive) if not is_running(each.execution_id)]
        found_before, self._found_before = self._found_before, frozenset(map(_at_epoch, found))
        self._newer_versions &= self._found_before
        known = [each for each in found if _at_epoch(each) not in self._newer_versions]
        orphaned = [each for each in known if gone is None or each.owner in gone or _at_epoch(each) in found_before]
        for each in orphaned:
            await self._launcher.queue(QueueTicket(each.tenant, each.execution_id, each.epoch))
        return len(orphaned)

    async def expire(self) -> int:
        """End the executions with an expired suspension and return how many were found.

        One whose expired suspensions are approvals that are denied then goes on instead.
        """
        expired = await self._store.expired()
        for each in expired:
            if not await self._deny_expired(each):
                await self._end_known(each, _EXPIRED)
        return len(expired)

    async def _deny_expired(self, ticket: RecoveryTicket) -> bool:
        """Answer the expired approvals of an execution that goes on without them; return False if it does not."""
        now = self._clock.now()
        try:
            found = await self._store.find_all(ticket.tenant, [ticket.execution_id])
            expired = [each for stored in found for each in stored.suspensions if each.expires_at.timestamp() <= now]
            if not expired or any(each.on_expiry != "deny" for each in expired):
                return False
            history = await self._store.load(ticket.tenant, ticket.execution_id)
        except StorageFailure as failure:
            if not _is_newer_release(failure):
                raise
            return False
        if history is None:
            return False
        answers = expiry_answers(expired, history.events[0].correlation, now)
        with suppress(RequestFailure):  # answered or cancelled meanwhile
            receipt = await self._store.answer(ticket.tenant, ticket.execution_id, answers)
            if receipt.open_suspensions == 0:
                await self._launcher.queue(QueueTicket(ticket.tenant, ticket.execution_id, receipt.epoch))
        return True

    async def process_cancels(self) -> int:
        """End the executions that another replica was asked to cancel and that are this one's or unowned."""
        requested = await self._store.cancel_requested()
        for each in requested:
            if not self._launcher.local.cancel_if_local(each.execution_id):
                await self._end_known(each, CANCELLED_BY_CLIENT)
        return len(requested)

    async def _end_known(self, ticket: RecoveryTicket, decision: StopDecision) -> None:
        """End an execution that waits, unless a newer release wrote it."""
        if _at_epoch(ticket) in self._newer_versions:
            return
        try:
            await self.end_unowned(ticket, decision)
        except StorageFailure as failure:
            if not _is_newer_release(failure):
                raise
            self._newer_versions.add(_at_epoch(ticket))

    async def _claim(self, execution_id: ExecutionId, epoch: int) -> ExecutionHistory | None:
        """Return the claimed history; None if another replica owns it or only a newer version can run it."""
        if self._launcher.local.is_running(execution_id):
            return None
        try:
            history = await self._store.claim(execution_id, epoch)
        except StorageFailure as failure:
            if not _is_newer_release(failure):
                raise
            self._newer_versions.add((execution_id, epoch))
            return None
        if history is not None and is_newer_version(history.header, self._launcher.patterns):
            await self._store.release(execution_id, history.epoch)
            self._newer_versions.add((execution_id, epoch))
            return None
        return history


def _at_epoch(ticket: RecoveryTicket) -> tuple[str, int]:
    return ticket.execution_id, ticket.epoch


def _is_newer_release(failure: StorageFailure) -> bool:
    """Return whether a claim was refused because a newer release wrote the execution."""
    return failure.code is Code.STORAGE_SNAPSHOT_INVALID
