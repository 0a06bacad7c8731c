"""Runs executions as tasks of this process."""

from collections.abc import Awaitable, Callable

import anyio

from app.adapters.durable.tasks import Starts
from app.domain.failures import Code, RequestFailure

_RETRY_AFTER = 1.0
_LAST_WORDS = 1.5


class InlineRunner:
    """Implements `ports.Runner` on tasks that its owner opens and closes.

    What a body raises is a bug of ours: it ends that one execution and is told to `on_bug`.
    """

    def __init__(
        self,
        tasks: Starts,
        *,
        max_in_flight: int,
        drain_seconds: float,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._tasks = tasks
        self._max_in_flight = max_in_flight
        self._drain_seconds = drain_seconds
        self._on_bug = on_bug
        self._in_flight = 0
        self._draining = False
        self._idle = anyio.Event()

    def start(self, execution_id: str, body: Callable[[], Awaitable[None]]) -> None:
        if self._draining:
            raise _refused(Code.REQUEST_SHUTTING_DOWN, "this replica is stopping")
        if self._in_flight >= self._max_in_flight:
            raise _refused(Code.REQUEST_OVERLOADED, "as many executions run as may")
        self._tasks.start_soon(self._run, execution_id, body)
        self._in_flight += 1

    @property
    def draining(self) -> bool:
        return self._draining

    @property
    def in_flight(self) -> int:
        """How many executions run right now."""
        return self._in_flight

    async def drain(self, cancel: Callable[[], None]) -> None:
        """Takes no more work and returns when all has ended.

        What still runs after `drain_seconds` is ended by `cancel`, and has 1.5 s more for that; then it is left to
        whoever closes the tasks. Draining twice is fine.
        """
        self._draining = True
        if await self._ends_within(self._drain_seconds):
            return
        cancel()
        await self._ends_within(_LAST_WORDS)

    async def _run(self, execution_id: str, body: Callable[[], Awaitable[None]]) -> None:
        try:
            await body()
        except Exception as bug:  # noqa: BLE001 - this runs one execution: its bug must not end the others
            self._on_bug(execution_id, bug)
        finally:
            self._in_flight -= 1
            if self._draining and self._in_flight == 0:
                self._idle.set()

    async def _ends_within(self, seconds: float) -> bool:
        if self._in_flight > 0:
            with anyio.move_on_after(seconds):
                await self._idle.wait()
        return self._in_flight == 0


def _refused(code: Code, message: str) -> RequestFailure:
    return RequestFailure(code, message, retry_after=_RETRY_AFTER)
