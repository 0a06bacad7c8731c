"""Circuit breakers and retry budgets of the configured engines."""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from app.ports.runtime import Clock

BreakerPeriod = NewType("BreakerPeriod", int)
"""Number of a period of a breaker, from 1: the next one begins whenever it opens or closes."""


@dataclass(frozen=True, slots=True)
class FailoverPolicy:
    """The `[failover]` settings, with times in seconds and the retry budget as a share of the attempts."""

    max_retries: int
    retry_after_cap: float
    breaker_failures: int
    breaker_window: float
    breaker_cooldown: float
    retry_budget: float
    retry_floor: int


class BreakerState(StrEnum):
    """The state of a breaker: `half_open` lets one probe through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """The circuit breaker of one provider.

    It opens when at least `breaker_failures` attempts within `breaker_window` failed and they are more than half of the
    attempts there; after `breaker_cooldown` one probe is let through, and its success closes the breaker. With
    `breaker_failures` 0 it never opens. Only an attempt that began in the current period counts: one from before can
    neither end a probe nor decide about the breaker.
    """

    def __init__(self, policy: FailoverPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._attempts: deque[tuple[float, bool]] = deque()
        self._failed = 0
        self._opened_at: float | None = None
        self._probing = False
        self._period = BreakerPeriod(1)

    @property
    def state(self) -> BreakerState:
        """Return the state that a new attempt would meet."""
        if self._opened_at is None:
            return BreakerState.CLOSED
        if self._clock.monotonic() - self._opened_at < self._policy.breaker_cooldown:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    @property
    def seconds_until_probe(self) -> float:
        """Return the time until an attempt is let through; 0 if one is now, or while a probe is under way."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._policy.breaker_cooldown - self._clock.monotonic())

    @property
    def allows_attempt(self) -> bool:
        """Return True if an attempt may begin."""
        return self._opened_at is None or (self.state is BreakerState.HALF_OPEN and not self._probing)

    def try_begin(self) -> BreakerPeriod | None:
        """Begin an attempt, the one probe if half open, and return its period; None if none may begin."""
        if not self.allows_attempt:
            return None
        self._probing = self._opened_at is not None
        return self._period

    def end_without_result(self, period: BreakerPeriod) -> None:
        """End an attempt without a result: refused, cancelled or out of time."""
        if period == self._period:
            self._probing = False

    def record_success(self, period: BreakerPeriod) -> None:
        """Record a successful attempt; a probe closes the breaker."""
        if period != self._period:
            return
        if self._probing:
            self._begin_period(opened_at=None)
        self._record(failed=False)

    def record_failure(self, period: BreakerPeriod, *, trip: bool) -> None:
        """Record a failed attempt; `trip` opens the breaker at once, and so does a failed probe."""
        if period != self._period:
            return
        self._record(failed=True)
        enough = self._failed >= self._policy.breaker_failures and self._failed * 2 > len(self._attempts)
        if self._policy.breaker_failures and (trip or self._probing or enough):
            self._begin_period(opened_at=self._clock.monotonic())

    def _begin_period(self, *, opened_at: float | None) -> None:
        self._period = BreakerPeriod(self._period + 1)
        self._opened_at = opened_at
        self._probing = False
        self._attempts.clear()
        self._failed = 0

    def _record(self, *, failed: bool) -> None:
        now = self._clock.monotonic()
        self._attempts.append((now, failed))
        self._failed += failed
        while self._attempts[0][0] <= now - self._policy.breaker_window:
            self._failed -= self._attempts.popleft()[1]


_BUDGET_WINDOW_S = 10.0


class RetryBudget:
    """Limit of the retries of the last 10 s: the share `retry_budget` of the attempts, but at least `retry_floor`."""

    def __init__(self, policy: FailoverPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._seconds: deque[list[int]] = deque()

    def record_attempt(self) -> None:
        """Record an attempt."""
        self._current()[1] += 1

    def try_take(self) -> bool:
        """Take one retry if the budget allows it."""
        current = self._current()
        attempts = sum(second[1] for second in self._seconds)
        retries = sum(second[2] for second in self._seconds)
        granted = retries < max(self._policy.retry_floor, self._policy.retry_budget * attempts)
        current[2] += granted
        return granted

    def _current(self) -> list[int]:
        now = int(self._clock.monotonic())
        while self._seconds and self._seconds[0][0] <= now - _BUDGET_WINDOW_S:
            self._seconds.popleft()
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append([now, 0, 0])
        return self._seconds[-1]
