"""Lane of an engine: where an attempt waits for a reservation, a slot and a connection, in this order.

A reservation is taken from the limits of the caller, a slot is one of those that the concurrent branches of an
execution share, and a connection is one of the engine's. The one that most attempts share is taken last, so that no
attempt holds it while it waits for another.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from portico.domain.ids import ExecutionId
from portico.ports.runtime import Clock


class Lane:
    """Lane of one engine with a number of connections.

    Those that wait for a connection get one in rotation of their executions, so that an execution with many attempts
    does not hold up one with few.
    """

    def __init__(self, connections: int) -> None:
        self.free = connections
        """Connections that are not taken; none while an attempt waits for one."""
        self._waiting: dict[ExecutionId, deque[anyio.Event]] = {}

    def enter_if_free(self, slots: anyio.Semaphore | None) -> bool:
        """Take a slot, if slots are shared, and a connection; return False and take none if that would wait."""
        if not self.free or (slots is not None and not slots.value):
            return False
        if slots is not None:
            slots.acquire_nowait()
        self.free -= 1
        return True

    async def enter(
        self,
        execution_id: ExecutionId,
        slots: anyio.Semaphore | None = None,
        reserve: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Wait for a reservation, if there is one to make, for a slot, if slots are shared, and for a connection."""
        if reserve is not None:
            await reserve()
        if slots is not None:
            await slots.acquire()
        try:
            await self._connect(execution_id)
        except BaseException:
            if slots is not None:
                slots.release()
            raise

    async def enter_within(self, execution_id: ExecutionId, seconds: float, clock: Clock) -> bool:
        """Wait so long for a connection; return whether there was one."""
        if self.free:
            self.free -= 1
            return True
        turn, is_late = anyio.Event(), False

        def give_up() -> None:
            nonlocal is_late
            if not turn.is_set():
                is_late = True
                self._leave(execution_id, turn)
                turn.set()

        self._waiting.setdefault(execution_id, deque()).append(turn)
        cancel_timer = clock.call_later(seconds, give_up)
        try:
            await turn.wait()
        except BaseException:
            if not is_late:
                self._abandon(execution_id, turn)
            raise
        finally:
            cancel_timer()
        return not is_late

    def close(self, slots: anyio.Semaphore | None = None) -> None:
        """Give the slot back, and the connection, which goes to the next one that waits."""
        if slots is not None:
            slots.release()
        if not self._waiting:
            self.free += 1
            return
        execution_id = next(iter(self._waiting))
        turns = self._waiting.pop(execution_id)
        turns.popleft().set()
        if turns:
            self._waiting[execution_id] = turns

    async def _connect(self, execution_id: ExecutionId) -> None:
        if self.free:
            self.free -= 1
            return
        turn = anyio.Event()
        self._waiting.setdefault(execution_id, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            self._abandon(execution_id, turn)
            raise

    def _abandon(self, execution_id: ExecutionId, turn: anyio.Event) -> None:
        """Give up the turn, or the connection that it was given."""
        if turn.is_set():
            self.close()
        else:
            self._leave(execution_id, turn)

    def _leave(self, execution_id: ExecutionId, turn: anyio.Event) -> None:
        turns = self._waiting[execution_id]
        turns.remove(turn)
        if not turns:
            del self._waiting[execution_id]
