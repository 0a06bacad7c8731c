"""Room: where attempts on a deployment, or on an engine with caps, wait until they may be sent.

One waits at a time, the others wait for it: executions in turn, as for a connection. What has room elsewhere does not
wait here.
"""

from collections.abc import Callable
from math import isfinite
from typing import Final, Protocol

import anyio

from portico.capabilities.limits.caps import CallSize, CapReservation, Caps
from portico.capabilities.models.deployments import AVAILABLE, DeploymentState, DeploymentStatus
from portico.capabilities.models.lane import Lane
from portico.domain.ids import ExecutionId
from portico.domain.model_call import AttemptFailureReason
from portico.ports.runtime import Clock

_SMALLEST: Final = CallSize(1, 1e-6)


class Resting(Protocol):
    """A deployment that may rest; it calls `on_change` when an attempt on it has ended."""

    on_change: Callable[[], None]

    @property
    def is_well(self) -> bool: ...

    def seconds_until_free(self) -> float: ...


class Room:
    """The room of one address: the rest of a deployment, and the caps that hold for it."""

    def __init__(self, clock: Clock, health: Resting | None, caps: Caps | None) -> None:
        self._clock = clock
        self._health = health
        self.caps = caps
        """What may be sent; None if that is not limited."""
        self._turn = Lane(1)
        self._changed: anyio.Event | None = None
        if health is not None:
            health.on_change = self.wake

    @property
    def is_unlimited(self) -> bool:
        """True if an attempt may be sent without asking."""
        return self.caps is None and self._health is not None and self._health.is_well and bool(self._turn.free)

    def seconds_until(self, size: CallSize) -> float:
        """Return after how long a call of that size may be sent, as far as this replica knows; 0 if it may now."""
        rest = 0.0 if self._health is None else self._health.seconds_until_free()
        return rest if self.caps is None else max(rest, self.caps.seconds_until(size))

    def status(self) -> DeploymentStatus:
        """Return whether the caps leave room for any call at all, for a deployment that is available otherwise."""
        seconds = 0.0 if self.caps is None else self.caps.seconds_until(_SMALLEST)
        if not seconds:
            return AVAILABLE
        known = seconds if isfinite(seconds) else None
        return DeploymentStatus(DeploymentState.RESTING, known, AttemptFailureReason.LIMITED)

    async def take(self, execution_id: ExecutionId, size: CallSize, patience: float) -> CapReservation | float:
        """Take what a call of that size needs; after so many seconds, return instead how many it would take.

        Raises: StorageFailure.
        """
        if self._turn.free:
            taken = await self._take(size)
            if isinstance(taken, CapReservation) or taken > patience:
                return taken
        ends_at = self._clock.monotonic() + patience
        if patience <= 0 or not await self._turn.enter_within(execution_id, patience, self._clock):
            return max(self.seconds_until(size), 1.0)
        try:
            while not isinstance(taken := await self._take(size), CapReservation):
                left = ends_at - self._clock.monotonic()
                if taken > left:
                    return taken
                await self._wait(taken)
            return taken
        finally:
            self._turn.close()

    def wake(self) -> None:
        """Let the attempt that waits look again."""
        if self._changed is not None:
            self._changed.set()

    async def _take(self, size: CallSize) -> CapReservation | float:
        rest = 0.0 if self._health is None else self._health.seconds_until_free()
        if rest:
            return rest
        return CapReservation((), (), self.wake) if self.caps is None else await self.caps.take(size, self.wake)

    async def _wait(self, seconds: float) -> None:
        changed = self._changed = anyio.Event()
        cancel_timer = self._clock.call_later(seconds, changed.set)
        try:
            await changed.wait()
        finally:
            cancel_timer()
            self._changed = None
