"""Accounts: rates and slots of one key or tenant, as this replica leases them from the store.

Theory of operation

1. The store has the state that all replicas share. A replica takes a lease, a fortieth of what is left but at least
   what it needs, and spends it from memory. What it holds was taken before, so replicas together exceed a rate by what
   they hold at most: two of them by a twentieth.
2. A refusal comes from memory, too: the state as it was last read says when the units come back. It is read again after
   a second, because other replicas may have given units back.
3. Units that are not spent are given back by `Quotas.settle`; so are those that a reservation took in excess.
4. A slot is held while an execution runs. One that is not used is given back within a second.

The library `limits` was considered and is not used: its strategies take units and have no way to give a part of them
back, its storages know neither leases nor SQLAlchemy's databases, and the arithmetic that is left is ten lines.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil, inf
from typing import Final

import anyio

from portico.domain.access.limits import LEASES, MILLIONTHS, Rate
from portico.domain.failures import StorageFailure
from portico.ports.limits import LimitStore
from portico.ports.runtime import Clock

_TRUST_S: Final = 1.0
"""Seconds for which a refusal is believed."""


class RateAccount:
    """One rate: the units that this replica has leased and not spent, less those that it has overspent."""

    def __init__(self, name: str, policy: str, rate: Rate, store: LimitStore, clock: Clock) -> None:
        self.name = name
        self.policy = policy
        self.rate = rate
        self.balance = 0
        self.was_used = False
        """True if it was used since this was last set to False."""
        self._store = store
        self._clock = clock
        self._lock = anyio.Lock()
        self._full_at = 0.0
        self._read_at = -inf
        self._waiting: set[anyio.Event] = set()

    def state(self, now: float) -> tuple[int, float]:
        """Return how many units may be spent now and in how many seconds all of them, as far as this replica knows."""
        rate = self.rate
        full_in = self._full_at - now - self.balance * rate.seconds / rate.quota
        return max(0, self.balance + rate.available(self._full_at, now)), max(0.0, full_in)

    @property
    def is_idle(self) -> bool:
        """True if nothing would be lost with this account."""
        is_full = self._full_at <= self._clock.now()
        return is_full and not (self.balance or self.was_used or self._waiting or self._lock.locked())

    def seconds_until(self, units: int) -> float:
        """Return after how long so many units are available, as far as this replica knows; 0 if they are."""
        missing = units - self.balance
        return 0.0 if missing <= 0 else self.rate.seconds_until(self._full_at, self._clock.now(), missing)

    async def lease(self, units: int) -> float:
        """Lease what is missing of the units. Return 0, or after how many seconds they may be available.

        Raises: StorageFailure.
        """
        async with self._lock:
            missing = units - self.balance
            if missing <= 0:
                return 0.0
            wait = self.seconds_until(units)
            if wait and self._clock.monotonic() - self._read_at < _TRUST_S:
                return wait
            lease = await self._store.lease_units(self.name, self.rate, missing)
            self._full_at, self._read_at = lease.full_at, self._clock.monotonic()
            self.balance += lease.units
            return 0.0 if lease.units else max(self.seconds_until(units), 1 / self.rate.quota)

    def spend(self, units: int) -> None:
        """Spend units; if negative, give them back, which wakes those who wait for some."""
        self.balance -= units
        self.was_used = True
        if units < 0:
            for waiting in self._waiting:
                waiting.set()

    async def wait(self, seconds: float) -> None:
        """Wait that long, or until units are given back here."""
        changed = anyio.Event()
        cancel_timer = self._clock.call_later(seconds, changed.set)
        self._waiting.add(changed)
        try:
            await changed.wait()
        finally:
            cancel_timer()
            self._waiting.discard(changed)

    def give_back(self, units: int) -> None:
        """Count so many units as given back to the store, or as taken from it if negative."""
        self.balance -= units
        self._full_at = self.rate.take(self._full_at, self._clock.now(), -units)

    def surplus(self) -> int:
        """Return the units to give back: all if it was not used, else what is more than a lease; a debt is negative."""
        lease = self.rate.quota // LEASES if self.was_used else 0
        return min(self.balance, 0) or max(0, self.balance - lease)


class SlotAccount:
    """The slots for executions that run at the same time: those that this replica holds, and uses."""

    def __init__(self, name: str, policy: str, limit: int, store: LimitStore, clock: Clock) -> None:
        self.name = name
        self.policy = policy
        self.limit = limit
        self.held = 0
        self.used = 0
        self.lock = anyio.Lock()
        """Held while the store is given the number of slots."""
        self.renewed_at = -inf
        """When the store was last given the number of slots, by the monotonic clock."""
        self._store = store
        self._clock = clock
        self._refused_at = -inf
        self._waiting: deque[_Turn] = deque()

    @property
    def available(self) -> int:
        """The slots that are free, as far as this replica knows."""
        return max(0, self.limit - self.used)

    @property
    def is_idle(self) -> bool:
        """True if nothing would be lost with this account."""
        return not (self.held or self.used or self._waiting or self.lock.locked())

    async def take(self) -> bool:
        """Take a slot if there is one and no execution waits for one. Raises: StorageFailure."""
        return not self._waiting and await self._take()

    async def wait_and_take(self) -> None:
        """Take a slot once there is one; those who wait take turns. A store that does not answer is waited for."""
        turn = _Turn()
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn or not await self._take_if_known():
                await turn.wait(self._clock, is_first=self._waiting[0] is turn)
        finally:
            self._waiting.remove(turn)
            self._wake_first()

    def release(self) -> None:
        """Free a slot, and let the first one who waits try."""
        self.used -= 1
        self._wake_first()

    async def _take(self) -> bool:
        if self.used >= self.held:
            now = self._clock.monotonic()
            if self.held >= self.limit or now - self._refused_at < _TRUST_S / 2:
                return False
            async with self.lock:
                if self.used >= self.held:
                    self.held = await self._store.lease_slots(self.name, self.limit, self.held)
                    self.renewed_at = now
                if self.used >= self.held:
                    self._refused_at = now
                    return False
        self.used += 1
        return True

    async def _take_if_known(self) -> bool:
        try:
            return await self._take()
        except StorageFailure:
            return False

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].wake()


class _Turn:
    """A place in the queue for a slot."""

    def __init__(self) -> None:
        self._called = anyio.Event()

    def wake(self) -> None:
        self._called.set()

    async def wait(self, clock: Clock, *, is_first: bool) -> None:
        """Wait until `wake` is called; the first in the queue at most `_TRUST_S`, as other replicas free slots, too."""
        cancel_timer = clock.call_later(_TRUST_S, self._called.set) if is_first else None
        try:
            await self._called.wait()
        finally:
            if cancel_timer is not None:
                cancel_timer()
        self._called = anyio.Event()


Claim = tuple[RateAccount, int]
"""Units to take of an account."""


async def take_units(claims: Sequence[Claim]) -> dict[RateAccount, float]:
    """Spend all claims and return nothing, or spend none and return which do not fit for how many seconds."""
    while short := [(account, units) for account, units in claims if account.balance < units]:
        waits = {account: await account.lease(units) for account, units in short}
        late = {account: seconds for account, seconds in waits.items() if seconds}
        if late:
            return late
    for account, units in claims:
        account.spend(units)
    return {}


def millionths(cost: float) -> int:
    """Return a cost in the units of its limits, rounded up."""
    return ceil(cost * MILLIONTHS - 1e-6)
