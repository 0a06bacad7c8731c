"""Delayed start port: stored executions that wait for the time at which they are to start."""

from typing import Protocol

from portico.domain.journal.header import Delay, ExecutionHeader


class DelayedStartStore(Protocol):
    """Delayed starts. Every method raises StorageFailure."""

    async def start(self, header: ExecutionHeader, delay: Delay) -> int | None:
        """Let an execution wait no longer, with this header and what became of its delay, and return its epoch.

        It takes its turn in its session in the same transaction; without one it is refused. None if this replica has
        not claimed its time, as it was cancelled or erased.
        """
        ...
