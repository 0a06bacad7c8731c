"""Timers: stored rows that become due, and what a replica does about those that are.

Each kind has a table of its own, with the columns of a timer beside those of what it is about. So a row is stored, and
is due from some time on, in the one statement that stores what it is about. A claimed row belongs to its replica until
the job gives it another time, or the replica is gone.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from portico.domain.ids import ReplicaId, TenantId
from portico.domain.value import value


class TimerKind(StrEnum):
    """Kinds of rows that become due."""

    START = "start"
    SCHEDULE = "schedule"
    DELIVERY = "delivery"


@value
class DueTimer:
    """Row that this replica has claimed, and that is due since `due_at`, in Unix seconds.

    `timer_id` is unique among all kinds.
    """

    timer_id: str
    tenant: TenantId
    due_at: float


@value
class TimerState:
    """Times at which the first unclaimed row of each kind is due, in Unix seconds, and whether any row is claimed."""

    due: Mapping[TimerKind, float]
    has_claims: bool

    @property
    def is_empty(self) -> bool:
        """Return whether no row is due, now or later."""
        return not self.due and not self.has_claims


class TimerQueue(Protocol):
    """Rows of one kind. Every method raises StorageFailure."""

    async def claim(self, now: float, limit: int) -> Sequence[DueTimer]:
        """Claim at most `limit` rows that are due, and return them, the longest due first."""
        ...

    async def postpone(self, timer: DueTimer, until: float) -> None:
        """End the claim, and let the row be due then. A row that is not claimed by this replica stays as it is."""
        ...


class TimerStore(Protocol):
    """Due times of all kinds. Every method raises StorageFailure."""

    async def state(self) -> TimerState:
        """Return when something is due, in one statement."""
        ...

    async def release(self, alive: Collection[ReplicaId], running: Collection[str]) -> None:
        """End the claims of replicas that are not alive, and those of this one that it does not know as `running`."""
        ...


class TimerNotices(Protocol):
    """Notices to this replica about rows that it has stored."""

    def notify(self, kind: TimerKind, due_at: float) -> None:
        """Say that a row of that kind is due then, so that this replica does not have to look for it."""
        ...


@value
class TimerJob:
    """Work on the due rows of one kind, at most `at_once` at the same time.

    `run` ends the claim itself, in the transaction that records what it did. It returns when the row is due again, or
    None if it is not. If it raises StorageFailure the row is postponed.
    """

    kind: TimerKind
    queue: TimerQueue
    run: Callable[[DueTimer], Awaitable[float | None]]
    at_once: int
