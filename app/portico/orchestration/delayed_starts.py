"""Delayed starts: executions whose request says when they are to start.

Theory of operation

1. Such an execution is stored as it was admitted, without an owner and without a turn in its session, and its time is a
   timer. What looks for orphans, waiting turns and idle sessions leaves it alone until then.
2. The replica that claims the time changes the header in one transaction: the rights that the caller has then, when it
   has begun, and why it may not if so. From then on it is as any queued execution, so a replica that takes over from a
   dead one runs it with the same rights.
3. One that is refused runs to its end without any effect. So its end is recorded, announced and replayed as any other.
"""

from typing import Final

from portico.domain.access.principal import ALL, Permission, Principal
from portico.domain.failures import AccessFailure, Code, StorageFailure
from portico.domain.ids import ExecutionId
from portico.domain.journal.header import ExecutionHeader
from portico.domain.journal.outcomes import Refused
from portico.domain.value import replace, value
from portico.orchestration.execution.environment import Environment
from portico.orchestration.later_rights import TOKEN_DAYS, LaterRights
from portico.orchestration.rights import require, require_models_and_tools
from portico.orchestration.runtime.launcher import Launcher
from portico.ports.delayed_starts import DelayedStartStore
from portico.ports.journal import ExecutionHistory
from portico.ports.runtime import QueueTicket
from portico.ports.storage import ExecutionStore
from portico.ports.timers import DueTimer, TimerQueue

_RETRY_S: Final = 5.0
_UNREADABLE_RETRY_S: Final = 60.0
_NO_KEY: Final = "its key was revoked or has expired before it started"
_NO_TOKEN: Final = f"the rights of its token ended before it started: they hold for {TOKEN_DAYS} days"


@value
class DelayedStartParts:
    """Parts of delayed starts: their store, that of all executions, their timers, and the rights of their callers."""

    store: DelayedStartStore
    executions: ExecutionStore
    queue: TimerQueue
    rights: LaterRights


class DelayedStarts:
    """Starts of executions whose time has come."""

    def __init__(self, environment: Environment, launcher: Launcher, parts: DelayedStartParts) -> None:
        self._environment = environment
        self._launcher = launcher
        self._parts = parts

    async def run_due(self, timer: DueTimer) -> float | None:
        """Queue the execution of a claimed time; return when it is tried again, or None. Raises: StorageFailure."""
        try:
            history = await self._parts.executions.load(timer.tenant, ExecutionId(timer.timer_id))
        except StorageFailure as unreadable:
            if unreadable.code is not Code.STORAGE_SNAPSHOT_INVALID:
                raise
            return await self._postpone(timer, _UNREADABLE_RETRY_S)  # a newer replica can read it
        if history is None or history.header.delay is None:
            return None
        try:
            header, refusal = await self._with_rights(history)
        except AccessFailure:
            return await self._postpone(timer, _RETRY_S)
        delay = replace(history.header.delay, started_at=self._environment.clock.now(), refusal=refusal)
        epoch = await self._parts.store.start(header, delay)
        if epoch is not None:
            await self._launcher.queue(QueueTicket(header.tenant, header.execution_id, epoch))
        return None

    async def _with_rights(self, history: ExecutionHistory) -> tuple[ExecutionHeader, Refused | None]:
        """Return the header with the rights of now, and why the execution may not run.

        Raises: AccessFailure (ACCESS_UNAVAILABLE); StorageFailure.
        """
        header = history.header
        asked_by = Principal(header.tenant, header.user, header.key_id, header.permissions)
        try:
            acting = await self._parts.rights.principal(
                self._parts.rights.owner(asked_by, header.created_at), header.channel
            )
            header = replace(header, permissions=acting.permissions, key_limits=acting.limits)
            self._require(header)
        except AccessFailure as refusal:
            if refusal.code is Code.ACCESS_UNAVAILABLE:
                raise
            if refusal.code is Code.ACCESS_UNAUTHENTICATED:
                reason = _NO_TOKEN if header.key_id is None else _NO_KEY
                refusal = AccessFailure(Code.ACCESS_DENIED, reason)
            return header, Refused.by(refusal)
        return header, None

    def _require(self, header: ExecutionHeader) -> None:
        """Raise AccessFailure (ACCESS_DENIED) for a request that is not permitted any more."""
        request, permissions = header.request, header.permissions
        require(permissions, Permission.SEND_MESSAGES, "send messages")
        if permissions != ALL:
            pattern = self._launcher.patterns.get(request.mode)
            require_models_and_tools(request, permissions, self._environment.catalogue, pattern)

    async def _postpone(self, timer: DueTimer, seconds: float) -> float:
        until = self._environment.clock.now() + seconds
        await self._parts.queue.postpone(timer, until)
        return until
