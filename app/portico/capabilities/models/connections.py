"""Connections of one engine, which the executions that wait for one share fairly."""

from collections import deque

import anyio

from portico.domain.ids import ExecutionId


class ConnectionLimit:
    """The limit of the attempts on one engine that run at the same time.

    Those that wait get a connection one execution after the other, so that an execution with many attempts does not
    hold up one with few.
    """

    def __init__(self, maximum: int) -> None:
        self._free = maximum
        self._waiting: dict[ExecutionId, deque[anyio.Event]] = {}

    async def acquire(self, execution_id: ExecutionId) -> None:
        """Take a connection; wait for one if there is none."""
        if self._free:
            self._free -= 1
            return
        turn = anyio.Event()
        self._waiting.setdefault(execution_id, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.release()
            else:
                self._leave(execution_id, turn)
            raise

    def release(self) -> None:
        """Give a connection back, or hand it to the next one that waits."""
        if not self._waiting:
            self._free += 1
            return
        execution_id = next(iter(self._waiting))
        turns = self._waiting.pop(execution_id)
        turns.popleft().set()
        if turns:
            self._waiting[execution_id] = turns

    def _leave(self, execution_id: ExecutionId, turn: anyio.Event) -> None:
        turns = self._waiting[execution_id]
        turns.remove(turn)
        if not turns:
            del self._waiting[execution_id]
