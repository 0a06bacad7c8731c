"""Runner of timers: one task that waits for the next due row, claims what is due, and runs the job of its kind.

Theory of operation

1. What this replica stores, it notices; so it wakes up when that is due, and asks the database only then. A replica
   that is the only one on its database never has to look for rows of others.
2. One of several looks every `POLL_INTERVAL_S` seconds when something is due, in one statement for all kinds, as long
   as there are rows at all. Before the first row, and after the last, it asks nothing: its heartbeat says that there is
   a row of another replica.
3. A claim whose answer was lost is found by comparing what is claimed with what runs, after each storage failure.
   Claims of dead replicas end in the sweep of the heartbeat, and when an only replica starts.
4. The wait is never longer than `MAX_WAIT_S`, because due times are those of the wall clock, which may be set.
"""

from collections.abc import Callable, Collection
from math import inf
from typing import Final

import anyio
from anyio.abc import TaskGroup

from portico.domain.failures import StorageFailure
from portico.domain.ids import ReplicaId
from portico.domain.value import value
from portico.ports.runtime import Clock
from portico.ports.timers import DueTimer, TimerJob, TimerKind, TimerStore

POLL_INTERVAL_S: Final = 2.0
MAX_WAIT_S: Final = 30.0
RETRY_S: Final = 1.0
"""Seconds after a storage failure, and after a claim that left what was due."""
BUG_RETRY_S: Final = 60.0


class _Kind:
    """Rows of one kind as this replica knows them: when one is due, by the last read and by a notice, and what runs.

    Until `paused_until` none is claimed, since the last claim left what was due, or the database did not answer.
    """

    __slots__ = ("due", "job", "noticed", "paused_until", "running")

    def __init__(self, job: TimerJob) -> None:
        self.job = job
        self.due = self.noticed = inf
        self.paused_until = -inf
        self.running: set[str] = set()

    @property
    def room(self) -> int:
        """Return how many more jobs may run."""
        return self.job.at_once - len(self.running)

    @property
    def claimable_at(self) -> float:
        """Return when a row may be claimed; inf while there is none, or no room for its job."""
        return max(min(self.due, self.noticed), self.paused_until) if self.room > 0 else inf


@value
class TimerReports:
    """Reports of timers: `on_error` gets the first of consecutive storage failures, `on_bug` what else a job raises."""

    on_error: Callable[[Exception], None]
    on_bug: Callable[[Exception], None]


class TimerRunner:
    """Implementation of the `TimerNotices` port; `run` is its only task.

    `alive` returns the live replicas, this one included. It `polls` if others may store rows. Nothing more is claimed
    once it `is_leaving`.
    """

    def __init__(
        self,
        store: TimerStore,
        clock: Clock,
        *,
        alive: Callable[[], Collection[ReplicaId]],
        is_leaving: Callable[[], bool],
        polls: bool,
        reports: TimerReports,
    ) -> None:
        self._store = store
        self._clock = clock
        self._alive = alive
        self._is_leaving = is_leaving
        self._polls = polls
        self._reports = reports
        self._kinds: dict[TimerKind, _Kind] = {}
        self._has_rows = False
        self._read_at = -inf
        self._failed_before = False
        self._is_unsure = True
        """True if there may be claims of this replica that it does not know: at the start and after a failure."""
        self._wake_up = anyio.Event()

    def add(self, job: TimerJob) -> None:
        """Run this job for the rows of its kind."""
        self._kinds[job.kind] = _Kind(job)

    def notify(self, kind: TimerKind, due_at: float) -> None:
        known = self._kinds[kind]
        self._has_rows = True
        if due_at < known.noticed:
            known.noticed, known.paused_until = due_at, -inf
            self._wake_up.set()

    def notify_rows(self) -> None:
        """Look for rows soon, because another replica has stored one, unless this replica knows of some."""
        if not self._has_rows:
            self._look_soon()

    async def release(self, alive: Collection[ReplicaId]) -> None:
        """End the claims of dead replicas, if there are rows at all. Raises: StorageFailure."""
        if self._has_rows:
            await self._release(alive)
            self._look_soon()

    async def run(self) -> None:
        """Run what is due until cancelled."""
        async with anyio.create_task_group() as group:
            while not self._is_leaving():
                await self._look(group)
                with anyio.move_on_after(self._seconds_to_wait()):
                    await self._wake_up.wait()
                self._wake_up = anyio.Event()

    async def _look(self, group: TaskGroup) -> None:
        """Claim what is due and start its jobs, then find out when something is due next."""
        now = self._clock.now()
        claimable = [kind for kind in self._kinds.values() if kind.claimable_at <= now]
        try:
            for kind in claimable:
                await self._claim(kind, group)
            if claimable or self._next_read_at() <= self._clock.monotonic():
                await self._read()
            for kind in claimable:
                if kind.due > now:
                    kind.paused_until = -inf
        except StorageFailure as fault:
            self._on_failure(fault)
            self._read_at = self._clock.monotonic() - POLL_INTERVAL_S + RETRY_S
            for kind in self._kinds.values():
                kind.paused_until = self._clock.now() + RETRY_S

    async def _claim(self, kind: _Kind, group: TaskGroup) -> None:
        """Claim what is due. The pause is for what stays due; a notice or the end of a job takes it back meanwhile."""
        kind.noticed, kind.paused_until = inf, self._clock.now() + RETRY_S
        for timer in await kind.job.queue.claim(self._clock.now(), kind.room):
            kind.running.add(timer.timer_id)
            group.start_soon(self._run, kind, timer)

    async def _read(self) -> None:
        """Read when something is due. What is noticed meanwhile may not be in that, and stays noticed."""
        for kind in self._kinds.values():
            kind.noticed = inf
        self._read_at = self._clock.monotonic()
        state = await self._store.state()
        if state.has_claims and self._is_unsure:
            await self._release(self._alive())
            state = await self._store.state()
        self._is_unsure = self._failed_before = False
        for name, kind in self._kinds.items():
            kind.due = state.due.get(name, inf)
        self._has_rows = not state.is_empty or any(kind.noticed < inf for kind in self._kinds.values())

    def _next_read_at(self) -> float:
        """Return when to look: at the start, soon after a failure, and periodically if others may store rows."""
        is_due = self._read_at == -inf or self._is_unsure or (self._polls and self._has_rows)
        return self._read_at + POLL_INTERVAL_S if is_due else inf

    def _seconds_to_wait(self) -> float:
        now, read_in = self._clock.now(), self._next_read_at() - self._clock.monotonic()
        return max(0.0, min(MAX_WAIT_S, read_in, *(kind.claimable_at - now for kind in self._kinds.values())))

    def _look_soon(self) -> None:
        self._read_at = -inf
        self._wake_up.set()

    async def _release(self, alive: Collection[ReplicaId]) -> None:
        running = frozenset[str]().union(*(kind.running for kind in self._kinds.values()))
        await self._store.release(alive, running)

    async def _run(self, kind: _Kind, timer: DueTimer) -> None:
        try:
            due_at = await kind.job.run(timer)
        except StorageFailure as fault:
            self._on_failure(fault)
            due_at = await self._postpone(kind, timer, RETRY_S)
        except Exception as bug:  # noqa: BLE001 - a job handles one row, whose bug must not end the others
            self._reports.on_bug(bug)
            due_at = await self._postpone(kind, timer, BUG_RETRY_S)
        finally:
            kind.running.discard(timer.timer_id)
            kind.paused_until = -inf
            self._wake_up.set()
        if due_at is not None:
            self.notify(kind.job.kind, due_at)

    async def _postpone(self, kind: _Kind, timer: DueTimer, seconds: float) -> float | None:
        """Return the new time of a row whose job failed; None if it cannot be stored, so the claim ends later."""
        until = self._clock.now() + seconds
        try:
            await kind.job.queue.postpone(timer, until)
        except StorageFailure as fault:
            self._on_failure(fault)
            return None
        return until

    def _on_failure(self, fault: StorageFailure) -> None:
        if not self._failed_before:
            self._reports.on_error(fault)
        self._failed_before = self._is_unsure = True
