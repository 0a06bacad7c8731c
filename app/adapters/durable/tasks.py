"""Tasks that nobody waits for one by one.

Those of a task group of anyio cost four times as much to start and to end; one is started for every request.
"""

from asyncio import Task, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVarTuple, Unpack

import anyio

Given = TypeVarTuple("Given")


class Starts(Protocol):
    """What starts tasks: `Tasks`, and any task group."""

    def start_soon(self, work: Callable[[Unpack[Given]], Awaitable[None]], /, *given: *Given) -> object: ...


class Tasks:
    """Every task that was started and has not ended. What one raises is a bug of whoever made it."""

    def __init__(self) -> None:
        self._running: dict[Task[None], anyio.CancelScope] = {}
        self._idle: anyio.Event | None = None

    def start_soon(self, work: Callable[[Unpack[Given]], Awaitable[None]], /, *given: *Given) -> None:
        """Does the work in a task of its own."""
        scope = anyio.CancelScope()
        task = get_running_loop().create_task(_within(scope, work, *given))
        self._running[task] = scope
        task.add_done_callback(self._end)

    async def cancel(self) -> None:
        """Cancels all of them, and returns when they have ended; what is shielded is waited for."""
        for scope in self._running.values():
            scope.cancel()
        if self._running:
            self._idle = anyio.Event()
            with anyio.CancelScope(shield=True):
                await self._idle.wait()

    def _end(self, task: Task[None]) -> None:
        del self._running[task]
        if self._idle is not None and not self._running:
            self._idle.set()


@asynccontextmanager
async def open_tasks() -> AsyncIterator[Tasks]:
    """Tasks that are cancelled when the context ends."""
    tasks = Tasks()
    try:
        yield tasks
    finally:
        await tasks.cancel()


async def _within(
    scope: anyio.CancelScope, work: Callable[[Unpack[Given]], Awaitable[None]], /, *given: *Given
) -> None:
    with scope:
        await work(*given)
